"""The Function of a registered operator: its formula, its rule for vmap, its writes.

(PyTorch: torch/_library/autograd.py.)

`autograd.Function` takes tensors one by one; an operator has lists of them, numbers and keywords between.  A `Call`
has all that is no tensor, and places for those that are:

    (x, [y, z], 2.0)  ──►  x, y, z  +  Call((0, [1, 2], 2.0))  ──►  Function.apply(x, y, z, call)

Tensors that the operator writes are outputs of the Function, marked as dirty: their new values have its node.
"""

import warnings
from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..batching.trees import spread
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor

if TYPE_CHECKING:
    from .operator import OpOverload


class _Place(int):
    """The number of a tensor among the Function's arguments or results."""


def _taken(value: Any, tensors: list[Any]) -> Any:
    """Append the tensors in `value` to a list; return it with places for them."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    if isinstance(value, (list, tuple)):
        return type(value)([_taken(v, tensors) for v in value])
    return value


def _filled(value: Any, found: Any) -> Any:
    """Return `value` with `found` at the places; None at a place beyond its end."""
    if isinstance(value, _Place):
        return found[value]
    if isinstance(value, (list, tuple)):
        return type(value)([_filled(v, found) for v in value])
    return value


def _only(value: Any, found: Any) -> Any:
    """Return `value` with `found` at the places, and None for all that is no tensor: dimensions, or gradients."""
    if isinstance(value, _Place):
        return found[value]
    if isinstance(value, (list, tuple)) and _has_place(value):
        return type(value)([_only(v, found) for v in value])
    return None


def _has_place(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_place, value))
    return isinstance(value, _Place)


class Call:
    """One call of an operator, without its tensors."""

    def __init__(self, operator: "OpOverload", values: list[Any], named: dict[str, Any]) -> None:
        self.operator = operator
        self.tensors: list[Tensor] | None = []
        self.values = [_taken(v, self.tensors) for v in values]
        self.named = {name: _taken(v, self.tensors) for name, v in named.items()}
        self.result: Any = None  # with places

    def arguments(self, tensors: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the operator's arguments, with these tensors."""
        return [_filled(v, tensors) for v in self.values], {n: _filled(v, tensors) for n, v in self.named.items()}

    def split(self, result: Any) -> list[Any]:
        """Record the form of the operator's result, and return its tensors."""
        found: list[Any] = []
        self.result = _taken(result, found)
        return found

    def filled(self, tensors: list[Any]) -> Any:
        """Return the operator's result, with these tensors."""
        return _filled(self.result, tensors)

    def gradients(self, result: Any, n: int) -> tuple[Any, ...]:
        """Return the gradient of each tensor from what a formula returned for each positional argument.

        Raises `RuntimeError` for another number of gradients, or another structure.
        """
        given = [*result] if isinstance(result, tuple) else [result]
        if all(extra is None for extra in given[len(self.values) :]):
            given = given[: len(self.values)]
        if not any(map(_has_place, self.values[len(given) :])):
            given += [None] * (len(self.values) - len(given))  # nothing that has a gradient
        if len(given) != len(self.values):
            raise RuntimeError(
                f"{self.operator}: the backward that was registered returned an incorrect number of gradients "
                f"(expected {len(self.values)}, got {len(given)})"
            )
        found: list[Any] = [None] * n
        for i, (place, gradient) in enumerate(zip(self.values, given, strict=True)):
            self._place(place, gradient, found, i)
        return tuple(found)

    def _place(self, place: Any, gradient: Any, found: list[Any], i: int) -> None:
        if gradient is None:
            return
        if isinstance(place, _Place):
            found[place] = gradient
        elif isinstance(place, (list, tuple)) and isinstance(gradient, (list, tuple)):
            if len(place) != len(gradient):
                raise RuntimeError(
                    "Expected the return from backward to be of the same structure as the inputs. Got: a list of "
                    f"{len(gradient)} for argument {i} of {self.operator}, which is a list of {len(place)}"
                )
            for p, g in zip(place, gradient, strict=True):
                self._place(p, g, found, i)
        else:
            raise RuntimeError(
                f"{self.operator}: backward returned a gradient different than None at position {i + 1}, but the "
                "corresponding forward input was not a Variable"
                if not _has_place(place)
                else "Expected the return from backward to be of the same structure as the inputs. Got: a "
                f"{type(gradient).__name__} for argument {i} of {self.operator}, which is a list"
            )


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
        ctx.needs_input_grad = tuple(_wanted(v, flat) for v in call.values)
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
            ctx.needs_input_grad = tuple(_wanted(v, before) for v in call.values)
        try:
            several = len(call.operator._schema.returns) > 1
            result = formula(ctx, *(_only(r, grads) for r in (call.result if several else (call.result,))))
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
        dims = tuple(_only(v, in_dims) for v in call.values)
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


def _wanted(place: Any, flat: Any) -> Any:
    if isinstance(place, _Place):
        return flat[place]
    if isinstance(place, (list, tuple)) and _has_place(place):
        return type(place)([_wanted(p, flat) for p in place])
    return False


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


def function_of(operator: "OpOverload") -> type[OperatorFunction]:
    """Return an operator's class of OperatorFunction, whose name its nodes have."""
    schema = operator._schema
    name = f"GeneratedBackwardFor_{schema.namespace}_{schema.op_name}_{schema.overload_name or 'default'}"
    return type(OperatorFunction)(name, (OperatorFunction,), {})


def apply(operator: "OpOverload", values: list[Any], named: dict[str, Any]) -> Any:
    """Run an operator as a Function: recorded, over a batch, with tangents."""
    call = Call(operator, values, named)
    tensors, call.tensors = call.tensors or [], None
    found = operator.function.apply(*tensors, call)
    return call.filled(found)
