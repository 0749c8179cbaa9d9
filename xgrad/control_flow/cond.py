"""cond: calls one of two functions, by the value of a bool or a tensor (PyTorch: torch/_higher_order_ops/cond.py)."""

from collections.abc import Callable
from typing import Any

from jax import lax

from ..batching.trees import flatten, unflatten
from ..config import state
from ..dispatch.tables import FUNCTIONS
from ..interop.jax import from_jax
from ..tensor import Tensor
from .checks import leaves_of, run, same
from .lifted import Lifted, is_traced, keys_of, look, move_on


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """Return `true_fn(*operands)` if `pred` is true, else `false_fn(*operands)`.

    pred: a tensor with one element; or a bool, with which nothing below is checked.
    operands: a tuple of tensors, which may be nested in tuples, lists and dictionaries.

    The functions return new tensors, or integers, nested likewise; they may use tensors from outside, to which
    gradients go too, and must not write to any (outside of programs they may while gradients are off).

    Inside of `xgrad.compile`, where `pred` has no value, the program contains both functions and runs one of them;
    their results must have the same structure, shapes and dtypes.  A generator goes on as the function that runs has
    drawn from it.  Where the entries of an `xgrad.vmap` have a `pred` each, both run, and each entry has the result of
    one.

    Raises `RuntimeError` for another `pred`, for operands or results that are not tensors, for functions that write to
    an input or return one, and for results that differ; `NotImplementedError` in a program for functions that seed or
    make a generator.

    >>> import xgrad
    >>> @xgrad.compile
    ... def root(x):
    ...     return xgrad.cond(x.sum() > 0, lambda x: x.sqrt(), lambda x: x * 0, (x,))
    >>> x = xgrad.tensor([1.0, 4.0], requires_grad=True)
    >>> root(x).sum().backward()
    >>> x.grad, root(-x)
    (tensor([0.5000, 0.2500]), tensor([-0., -0.], grad_fn=<CompiledFunctionBackward>))

    Source: PyTorch's `torch.cond`.
    """
    if isinstance(pred, (bool, int, float)):
        return (true_fn if pred else false_fn)(*operands)
    _check(pred, true_fn, false_fn, operands)
    if pred._level is not None:
        return _selected(pred, true_fn, false_fn, operands)
    if is_traced(pred):
        run_in = _selected if state.vmap_levels else _in_program
        return run_in(pred, true_fn, false_fn, operands)
    chosen = true_fn if bool(pred) else false_fn
    if not state.grad_enabled:
        return chosen(*operands)
    result = run("cond", chosen, operands, flatten(operands)[0])
    leaves_of("cond", chosen, result)
    return result


def _check(pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> None:
    if not isinstance(pred, Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred.numel() != 1:
        raise RuntimeError(
            f"Expected pred to be bool or single-element tensor, but got a tensor of shape {list(pred.shape)}."
        )
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")
    if not isinstance(operands, (tuple, list)) or any(not isinstance(t, Tensor) for t in flatten(operands)[0]):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only consists of tensor leaves, but "
            f"got {operands}."
        )


_MERGED = "When merging two branches' output in torch.cond, expected"


def _compared(true_fn: Any, false_fn: Any, results: list[Any]) -> tuple[list[Any], list[Any], Any]:
    """Return the leaves of both results, and their structure.  Raises `RuntimeError` if they differ."""
    one, structure = leaves_of("cond", true_fn, results[0])
    two, other = leaves_of("cond", false_fn, results[1])
    if structure != other:
        raise RuntimeError(
            "cond: Unmatched output spec from torch.cond branches: true branch tree_spec "
            f"{structure} vs false branch tree_spec {other}."
        )
    same("cond", [*zip(one, two, strict=True)], _MERGED)
    return one, two, structure


def _selected(pred: Tensor, true_fn: Any, false_fn: Any, operands: Any) -> Any:
    """Run both functions, and select for each entry."""
    results = [run("cond", f, operands, flatten(operands)[0]) for f in (true_fn, false_fn)]
    one, two, structure = _compared(true_fn, false_fn, results)
    chosen, where = pred.reshape(()) != 0, FUNCTIONS[""]["where"]
    leaves = [where(chosen, a, b) if isinstance(a, Tensor) else a for a, b in zip(one, two, strict=True)]
    return unflatten(structure, leaves)


def _in_program(pred: Tensor, true_fn: Any, false_fn: Any, operands: Any) -> Any:
    looks = [look("cond", f, operands) for f in (true_fn, false_fn)]
    one, _, structure = _compared(true_fn, false_fn, [each.result for each in looks])
    outside = [*{id(t): t for each in looks for t in each.outside}.values()]
    generators = [*{g: None for each in looks for g in each.generators}]
    branches = [Lifted("cond", f, operands, outside, generators) for f in (true_fn, false_fn)]

    def chosen(pred: Any, *arrays: Any) -> Any:
        return lax.cond(pred.reshape(()) != 0, *branches, *arrays)

    chosen.__name__ = "cond"
    found = iter(from_jax(chosen)(pred, *flatten(operands)[0], *outside, *keys_of(generators)))
    leaves = [next(found) if isinstance(leaf, Tensor) else leaf for leaf in one]
    move_on(generators, found)
    return unflatten(structure, leaves)
