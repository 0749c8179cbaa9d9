"""while_loop: a function again and again, while a tensor is true (PyTorch: torch/_higher_order_ops/while_loop.py)."""

from collections.abc import Callable
from typing import Any

from jax import lax

from ..batching.trees import flatten, unflatten
from ..config import state
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor, from_array
from .checks import leaves_of, run, same
from .lifted import is_traced, look

_METADATA = "Expected body_fn_output and carried_inputs to have"


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """Return the inputs after `inputs = body_fn(*inputs)` was repeated while `cond_fn(*inputs)` is true.

    cond_fn: returns a bool or a tensor without dimensions.  body_fn: returns as many new tensors as there are inputs,
    of their shapes and dtypes.  carried_inputs: a tuple or list of tensors and numbers, which may be nested.  Neither
    function may write to a tensor from outside.

    Inside of `xgrad.compile`, where the condition has no value, the program contains the loop.  Gradients need the
    number of steps, so there nothing may require grad; outside of programs the steps are recorded.  Where entries of
    an `xgrad.vmap` have conditions of their own, each keeps its values from the step in which it ends.

    Raises `RuntimeError` for another condition, for inputs that are no tensors or numbers, for functions that write to
    an input or return one, and for a body that returns another number of tensors, other shapes or dtypes;
    `NotImplementedError` for a gradient through a loop in a program.

    >>> import xgrad
    >>> xgrad.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (xgrad.tensor(0), xgrad.ones(2)))
    (tensor(3), tensor([8., 8.]))

    Source: PyTorch's `torch.while_loop`.
    """
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("Expect cond_fn and body_fn to be callable.")
    numbers = (Tensor, bool, int, float)
    if not isinstance(carried_inputs, (tuple, list)) or any(
        not isinstance(t, numbers) for t in flatten(carried_inputs)[0]
    ):
        raise RuntimeError(
            "Expect carried_inputs to be a tuple of possibly nested dict/list/tuple that only consists of tensor or "
            f"int leaves, but got {carried_inputs}."
        )
    carried, structure = carried_inputs, flatten(carried_inputs)[1]
    moved = False
    while True:
        tensors = [t for t in flatten(carried)[0] if isinstance(t, Tensor)]
        go = run("while_loop", cond_fn, carried, tensors)
        if not isinstance(go, bool) and not (isinstance(go, Tensor) and go.ndim == 0):
            shown = list(go.shape) if isinstance(go, Tensor) else type(go).__name__
            raise RuntimeError(f"while_loop: Expected cond_fn to return a scalar tensor or a bool but got {shown}")
        if isinstance(go, Tensor):
            if is_traced(_value(go)):
                return _in_program(cond_fn, body_fn, carried, structure)
            if not bool(_value(go).any()):
                break
        elif not go:
            break
        new = run("while_loop", body_fn, carried, tensors)
        before, after = _compared(body_fn, carried, new, structure)
        if isinstance(go, Tensor) and go._level is not None:
            where = FUNCTIONS[""]["where"]
            after = [where(go, a, b) for a, b in zip(after, before, strict=True)]
        carried, moved = unflatten(structure, after), True
    if moved:
        return carried
    return unflatten(structure, [t.clone() if isinstance(t, Tensor) else t for t in flatten(carried)[0]])


def _value(tensor: Tensor) -> Tensor:
    """Return the tensor with all entries of a batch, or the tensor itself."""
    while tensor._level is not None:
        tensor = tensor._value
    return tensor


def _compared(body_fn: Any, carried: Any, new: Any, structure: Any) -> tuple[list[Any], list[Any]]:
    """Return the leaves before a step and after it.  Raises `RuntimeError` if a step changed more than values."""
    before, (after, found) = flatten(carried)[0], _leaves(body_fn, new)
    if len(before) != len(after):
        raise RuntimeError(
            "while_loop: Expected body_fn_output and carried_inputs to have same number of outputs but got "
            f"{len(after)} and {len(before)}"
        )
    if [s.items for s in found.items] != [s.items for s in structure.items]:
        raise RuntimeError(f"while_loop: {_METADATA} the same structure but got {found} and {structure}")
    pairs = [(a, b) for a, b in zip(after, before, strict=True) if isinstance(a, Tensor) or isinstance(b, Tensor)]
    same("while_loop", pairs, f"{_METADATA} same metadata:")
    return before, after


def _leaves(body_fn: Any, new: Any) -> tuple[list[Any], Any]:
    leaves, structure = flatten(new)
    if any(not isinstance(leaf, float) for leaf in leaves):
        leaves_of("while_loop", body_fn, [leaf for leaf in leaves if not isinstance(leaf, float)])
    if structure.type is None:
        leaves, structure = flatten((new,))
    return leaves, structure


def _in_program(cond_fn: Any, body_fn: Any, carried: Any, structure: Any) -> Any:
    tensor = FUNCTIONS[""]["tensor"]
    if state.vmap_levels:
        raise NotImplementedError(
            "while_loop: a loop of a program cannot be inside of vmap: call it outside of xgrad.compile, or batch its "
            "functions by hand"
        )
    start = [t if isinstance(t, Tensor) else tensor(t) for t in flatten(carried)[0]]
    _, used = look("while_loop", cond_fn, unflatten(structure, start))
    new, more = look("while_loop", body_fn, unflatten(structure, start))
    _compared(body_fn, unflatten(structure, start), new, structure)
    if state.grad_enabled and any(t.requires_grad for t in (*start, *used, *more)):
        raise NotImplementedError(
            "while_loop: in a program the number of steps is not known, which a gradient needs. Call while_loop "
            "outside of xgrad.compile; or repeat a known number of steps with Python's for and xgrad.where; or use "
            "no_grad()."
        )

    def of(function: Any) -> Any:
        def over(arrays: Any) -> Any:
            given = [from_array(a) for a in arrays]
            return run("while_loop", function, unflatten(structure, given), given)

        return over

    ends, step = of(cond_fn), of(body_fn)
    enabled, state.grad_enabled = state.grad_enabled, False
    try:
        arrays = lax.while_loop(
            lambda arrays: ends(arrays)._read(),
            lambda arrays: tuple(t._read() for t in _leaves(body_fn, step(arrays))[0]),
            tuple(t._read() for t in start),
        )
    finally:
        state.grad_enabled = enabled
    return unflatten(structure, [from_array(a) for a in arrays])
