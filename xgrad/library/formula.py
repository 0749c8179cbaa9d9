"""OperatorFunction: runs the backward formula and vmap rule that a user registered for an operator by `xgrad.library`.

It is an `autograd.Function`.  Its arguments are the operator's tensors and a `Call` with all else (calls.py).  Tensors
that the operator writes are outputs, marked as dirty: their new values have its node.  (PyTorch:
torch/_library/autograd.py.)
"""

import warnings
from typing import Any

from ..autograd.function import Function
from ..batching.trees import spread
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from .calls import Call, only


class OperatorFunction(Function):
    """The Function of all registered operators; each of them has a subclass, for the name of its node."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        call: Call = inputs[-1]
        values, named = call.arguments(inputs)
        result = call.operator.compute(values, named)
        mutated = call.operator.mutated(values, named)
        found = call.split(result)
        return (*found, *(m for m in mutated if not any(m is t for t in found)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call: Call = inputs[-1]
        operator = call.operator
        values, named = call.arguments(inputs)
        ctx.mark_dirty(*operator.mutated(values, named))
        ctx.operator_call = call
        if operator.setup_context is None or not any(ctx.needs_input_grad):
            return
        flat = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(only(v, flat, False) for v in call.values)
        context: dict[str, Any] = {"ctx": ctx, "inputs": tuple(values), "output": call.filled(output)}
        if named:
            context["keyword_only_inputs"] = named
        operator.setup_context(**context)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call: Call = ctx.operator_call
        formula = call.operator.formula
        if formula is None:
            raise RuntimeError(
                f"Trying to backward through {call.operator} but no autograd formula was registered. Please use "
                "register_autograd to add one."
            )
        before = ctx.needs_input_grad
        if len(before) != len(call.values) or call.operator.setup_context is None:
            ctx.needs_input_grad = tuple(only(v, before, False) for v in call.values)
        try:
            several = len(call.operator._schema.returns) > 1
            result = formula(ctx, *(only(r, grads) for r in (call.result if several else (call.result,))))
        finally:
            ctx.needs_input_grad = before
        return (*call.gradients(result, len(ctx._places)), None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        call: Call = inputs[-1]
        operator = call.operator
        values, named = call.arguments(inputs)
        if operator.vmap_rule is None:
            return _entry_by_entry(call, info.batch_size, in_dims, inputs)
        dims = tuple(only(v, in_dims) for v in call.values)
        returned = operator.vmap_rule(info, dims, *values, **named)
        if not (isinstance(returned, tuple) and len(returned) == 2):
            raise RuntimeError(
                f"the vmap rule of {operator} must return (output, out_dims), but it returned a "
                f"{type(returned).__name__}"
            )
        result, out_dims = returned
        found = call.split(result)
        places = spread(out_dims, result)
        if places is None:
            raise RuntimeError(f"the vmap rule of {operator} returned out_dims={out_dims}, which do not fit its output")
        kept: list[Any] = []
        _taken_dims(result, iter(places), kept)
        mutated = operator.mutated(values, named)
        for t in mutated:
            if not any(t is other for other in found):
                found.append(t)
                kept.append(next(d for d, x in zip(in_dims, inputs, strict=True) if x is t))
        return tuple(found), tuple(kept)


def _taken_dims(value: Any, dims: Any, kept: list[Any]) -> None:
    """Append the dimension of each tensor in a result to a list; `dims` has one for each leaf."""
    if isinstance(value, (list, tuple)):
        for v in value:
            _taken_dims(v, dims, kept)
    else:
        dim = next(dims)
        if isinstance(value, Tensor):
            kept.append(dim)


def _entry_by_entry(call: Call, size: int, in_dims: tuple[Any, ...], inputs: tuple[Any, ...]) -> Any:
    """Call the operator for each entry of a batch: right for any operator that writes nothing, and slow."""
    operator = call.operator
    if operator._schema.is_mutable:
        raise RuntimeError(
            f"vmap: {operator} writes to its arguments ({', '.join(operator._schema.mutated)}) and has no rule for a "
            "batch: give it one with register_vmap"
        )
    if not operator.warned:
        operator.warned = True
        warnings.warn(
            "There is a performance drop because we have not yet implemented the batching rule for "
            f"{operator._qualname}: it runs for each entry. Give it one with register_vmap.",
            stacklevel=2,
        )
    rows: list[list[Any]] = []
    for i in range(size):
        entry = [x if d is None else x.select(d, i) for x, d in zip(inputs[:-1], in_dims[:-1], strict=True)]
        values, named = call.arguments(entry)
        rows.append(call.split(operator(*values, **named)))
    stack = FUNCTIONS[""]["stack"]
    found = tuple(stack(list(column)) for column in zip(*rows, strict=True))
    return found, (0,) * len(found)


def function_of(operator: Any) -> type[OperatorFunction]:
    """Return an operator's class of OperatorFunction, whose name its nodes have."""
    schema = operator._schema
    name = f"GeneratedBackwardFor_{schema.namespace}_{schema.op_name}_{schema.overload_name or 'default'}"
    kind: Any = type(OperatorFunction)
    return kind(name, (OperatorFunction,), {})


def apply(operator: Any, values: list[Any], named: dict[str, Any]) -> Any:
    """Run an operator as a Function: recorded, over a batch, with tangents."""
    call = Call(operator, values, named)
    tensors, call.tensors = call.tensors or [], None
    found = operator.function.apply(*tensors, call)
    return call.filled(found)
