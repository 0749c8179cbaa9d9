"""while_loop: repeats a function while a condition holds (PyTorch: torch/_higher_order_ops/while_loop.py)."""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from ..batching.batched_tensor import remove_batch, wrap
from ..batching.trees import flatten, unflatten
from ..config import Unrecorded, state
from ..dispatch.tables import FUNCTIONS
from ..interop.jax import from_jax
from ..tensor import Tensor, from_array
from .checks import leaves_of, run, same
from .lifted import Lifted, is_traced, keys_of, look, move_on
from .repeated import repeated_while

_METADATA = "Expected body_fn_output and carried_inputs to have"


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """Return the inputs after `inputs = body_fn(*inputs)` was repeated while `cond_fn(*inputs)` is true.

    cond_fn: returns a bool or a tensor without dimensions.  body_fn: returns as many new tensors as there are inputs,
    of their shapes and dtypes.  carried_inputs: a tuple or list of tensors and numbers, which may be nested.  Neither
    function may write to a tensor from outside.

    Inside of `xgrad.compile`, where the condition has no value, the program contains the loop.  Its gradients need the
    carried values of all steps.  The program keeps 32 of them and computes the others again (binomial checkpointing):
    backward runs each step once more in a loop of up to 33 steps, twice up to 561, three times up to 6545.  Outside of
    programs the steps are recorded.
    Where entries of an `xgrad.vmap` have conditions of their own, each keeps its values from the step in which it ends.

    Raises `RuntimeError` for another condition, for inputs that are not tensors or numbers, for functions that write to
    an input or return one, and for a body that returns another number of tensors, other shapes or dtypes;
    `NotImplementedError` for a loop in a program through which tangents go, or gradients inside of vmap, whose
    condition draws random numbers, or whose functions seed or make a generator.

    >>> import xgrad
    >>> xgrad.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (xgrad.tensor(0), xgrad.ones(2)))
    (tensor(3), tensor([8., 8.]))
    >>> x = xgrad.ones(2, requires_grad=True)
    >>> grown = xgrad.compile(lambda x: xgrad.while_loop(lambda x: x.sum() < 9, lambda x: (x * 2,), (x,))[0])
    >>> grown(x).sum().backward()
    >>> x.grad
    tensor([8., 8.])

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
    start = [t if isinstance(t, Tensor) else FUNCTIONS[""]["tensor"](t) for t in flatten(carried)[0]]
    if state.vmap_levels:
        return _over_batch(cond_fn, body_fn, start, structure)
    given = unflatten(structure, start)
    question, turn = (look("while_loop", f, given) for f in (cond_fn, body_fn))
    if question.generators:
        raise NotImplementedError(_ASKS)
    _compared(body_fn, given, turn.result, structure)
    everything = [*start, *{id(t): t for t in (*question.outside, *turn.outside)}.values()]
    if any(t._tangents for t in everything):
        raise NotImplementedError(_DUAL)
    records = state.grad_enabled and any(t.requires_grad for t in everything)
    if records or turn.generators:
        if records and any(t._level is not None and t.requires_grad for t in everything):
            raise NotImplementedError(_INSIDE)
        outside = [t for t in everything[len(start) :] if t._level is None]  # of entries: the tensors of the batches
        return unflatten(structure, _recorded(cond_fn, body_fn, given, start, outside, turn.generators))

    def of(function: Any) -> Any:
        def over(arrays: Any) -> Any:
            given = [from_array(a) for a in arrays]
            return run("while_loop", function, unflatten(structure, given), given)

        return over

    ends, step = of(cond_fn), of(body_fn)
    with Unrecorded():
        arrays = lax.while_loop(
            lambda arrays: ends(arrays)._read(),
            lambda arrays: tuple(t._read() for t in _leaves(body_fn, step(arrays))[0]),
            tuple(t._read() for t in start),
        )
    return unflatten(structure, [from_array(a) for a in arrays])


def _recorded(
    cond_fn: Any, body_fn: Any, given: Any, start: list[Tensor], outside: list[Tensor], generators: list[Any]
) -> list[Any]:
    """Return the carried tensors after the loop, which is one operator of the tape; it carries the keys too."""
    goes = Lifted("while_loop", cond_fn, given, outside)
    body = Lifted("while_loop", body_fn, given, outside, generators)
    n, count = len(start), len(start) + len(generators)

    def step(*arrays: Any) -> Any:
        return body(*arrays[:n], *arrays[count:], *arrays[n:count])

    loop: Any = repeated_while(lambda *arrays: goes(*arrays[:n], *arrays[count:])[0], step, count)
    loop.__name__ = "while_loop"
    # The number of steps is saved: without it backward would run the loop once more, to count them.
    recorded = from_jax(loop, policy=jax.checkpoint_policies.everything_saveable)
    found = recorded(*start, *keys_of(generators), *outside)
    move_on(generators, found[n:])
    return [*found[:n]]


# ---------------------------------------------------------------- batches


def _over_batch(cond_fn: Any, body_fn: Any, start: list[Any], structure: Any) -> Any:
    """Repeat steps of all entries while one of them goes on; each keeps its values from the step in which it ends."""
    levels, where = state.vmap_levels, FUNCTIONS[""]["where"]
    if state.grad_enabled and any(t._level is not None and t.requires_grad for t in start):
        raise NotImplementedError(_INSIDE)

    def entries(tensors: Any) -> list[Tensor]:
        for level in levels:
            tensors = [wrap(t, level) for t in tensors]
        return tensors

    def whole(tensor: Tensor) -> Tensor:
        for level in reversed(levels):
            tensor = remove_batch(tensor, 0, level)
        return tensor

    def goes(given: Any) -> Tensor:
        go = run("while_loop", cond_fn, unflatten(structure, given), given)
        return whole(go if isinstance(go, Tensor) else FUNCTIONS[""]["tensor"](go)) != 0

    def body(go: Tensor, *tensors: Tensor) -> list[Tensor]:
        opened = [level.open for level in levels]
        before, state.vmap_levels = state.vmap_levels, levels
        for level in levels:  # backward runs the step again, after vmap has returned
            level.open = True
        try:
            old = entries(tensors)
            new = run("while_loop", body_fn, unflatten(structure, old), old)
            _, after = _compared(body_fn, unflatten(structure, old), new, structure)
            if state.grad_enabled and any(t._level is not None and t.requires_grad for t in after):
                raise NotImplementedError(_INSIDE)
            chosen = [where(entries([go])[0], a, b) for a, b in zip(after, old, strict=True)]
            return [go & goes(chosen), *map(whole, chosen)]
        finally:
            state.vmap_levels = before
            for level, was in zip(levels, opened, strict=True):
                level.open = was

    values = [whole(t) for t in start]
    first = goes(entries(values))
    state.vmap_levels = ()
    try:
        found = while_loop(lambda go, *_: go.any(), body, (first, *values))
    finally:
        state.vmap_levels = levels
    return unflatten(structure, entries(found[1:]))


_ASKS = "while_loop: the condition of a loop of a program draws no random numbers: draw them in body_fn, and carry them"
_DUAL = (
    "while_loop: a loop of a program has no forward mode: call it outside of xgrad.compile, where each step has one, "
    "or repeat a known number of steps with Python's for and xgrad.where"
)
_INSIDE = (
    "while_loop: a loop of a program has no gradient inside of vmap, one for each entry: call vmap within the function "
    "that is differentiated, or call while_loop outside of xgrad.compile"
)
