"""Backward in a function's help: its node and what that saves, as declared; those of a composite, as recorded."""

import contextlib
import warnings
from typing import Any

from help_calls import Entry
from help_dtypes import _joined, replaced, tensors_in

from xgrad.dispatch.operator import Operator, asks_for, formula_of, linear
from xgrad.dispatch.samples import CONVENTION, FIRST_ORDER, STOPPED, Draw, Sample
from xgrad.dispatch.saved_attributes import kept_names


def backward(entry: Entry) -> str:
    """The sentences on derivatives."""
    op = entry.operator
    return _of_operator(op) if op is not None else _of_composite(entry)


def _of_operator(op: Operator) -> str:
    if op.overwrites:
        return f"node `{op.node_name}`; the values before are lost, and get a gradient of zeros."
    if not op.differentiable:
        return "none; the result does not require grad."
    if op.missing:
        return f"`NotImplementedError`: PyTorch has no derivative of `{op.missing}` either."
    saved = [f"for {_joined(names)} {_saves(values)}" for values, names in _by_values(op).items()]
    text = f"node `{op.node_name}`; " + ", ".join(saved)
    if STOPPED[0] in op.samples:
        return text + ".  The derivative is 0 by definition."
    if FIRST_ORDER[0] in op.samples:
        return text + ".  First derivatives only, in reverse and in forward mode."
    text += ".  Derivatives of any order, in reverse and in forward mode"
    if CONVENTION[0] in op.samples:
        text += "; the gradient is PyTorch's, which is not the function's derivative"
    return text + "."


def _by_values(op: Operator) -> dict[tuple[str, ...], list[str]]:
    """The arguments that have a gradient, by the values that it saves."""
    found: dict[tuple[str, ...], list[str]] = {}
    names = [*op.parameters, *([op.variadic] if op.variadic else [])]
    arrays = {"self": "input"}
    for i, name in enumerate(names):
        formula = formula_of(op, name)
        if (formula is None and op.formulas) or not _moves(op, i):
            continue
        if formula is None:
            values = (*[arrays.get(n, n) for n in names], "derived by JAX")
        elif formula is linear:
            values = tuple(arrays.get(n, n) for n in names if n != name and op.defaults.get(n, n) is not None)
        else:
            values = tuple(arrays.get(n, n) for n in asks_for(formula) if n in _saveable(op))
        found.setdefault(values, []).append(f"`{arrays.get(name, name)}`")
    return found


def _moves(op: Operator, i: int) -> bool:
    """Whether an argument is an array of numbers in a sample: an index or a key has no gradient."""
    drawn = [s.arrays[min(i, len(s.arrays) - 1)] for s in op.samples if isinstance(s, Sample) and s.arrays]
    kinds = {a.kind for a in drawn if isinstance(a, Draw)}
    return not kinds or bool(kinds & {"real", "complex", "definite", "regular", "rising"})


def _saveable(op: Operator) -> set[str]:
    results = {"result", "results"} | set(getattr(op.outputs, "_fields", ()))
    return {*op.parameters, *([op.variadic] if op.variadic else []), *results}


def _saves(values: tuple[str, ...]) -> str:
    derived = "derived by JAX" in values
    shown = [f"`{v}`" for v in values if v != "derived by JAX"]
    text = f"it saves {_joined(shown)}" if shown else "it saves no array"
    return f"{text} (no formula: JAX differentiates the function)" if derived else text


def _of_composite(entry: Entry) -> str:
    if entry.call is None:
        return "made of other operators, which are recorded."
    result = tensors_in(entry.result)
    if not result:
        return "none; the result is no tensor."
    args, named = entry.call
    floating = [t for t in tensors_in([args, named]) if t.dtype.kind in "fcV"]
    new: dict[int, Any] = {id(t): t.detach().clone().requires_grad_() for t in floating}
    if entry.inplace:  # a leaf that requires grad can't be written in place
        new = {id(t): new[id(t)].clone() for t in floating}
    nodes: dict[str, tuple[str, ...]] = {}
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outs = tensors_in(entry.function(*replaced(args, new), **replaced(named, new)))
        waiting = [o.grad_fn for o in outs if o.grad_fn is not None]
        seen: set[int] = set()
        while waiting:
            node = waiting.pop(0)
            if id(node) in seen:
                continue
            seen.add(id(node))
            if (
                node.name() not in ("AccumulateGrad", "xgrad::autograd::AccumulateGrad")
                and "Accumulate" not in node.name()
            ):
                nodes[node.name()] = _kept(node)
            waiting += [edge[0] for edge in node.next_functions if edge[0] is not None]
    if entry.inplace:
        nodes.pop("CloneBackward0", None)
    if not nodes:
        return "none; the result does not require grad."
    told = [f"`{n}`" + (f" ({', '.join(v)})" if v else "") for n, v in nodes.items()]
    saved = (
        "nodes of the example, and what they save"
        if any(nodes.values())
        else "nodes of the example, which save no array"
    )
    return f"made of other operators, which record themselves; {saved}: {', '.join(told)}."


def _kept(node: Any) -> tuple[str, ...]:
    if getattr(node, "plan", None) is None:
        return ()
    return tuple("input" if n == "self" else n for n in kept_names(node))
