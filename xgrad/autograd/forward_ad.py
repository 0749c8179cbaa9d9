"""make_dual, unpack_dual, dual_level: forward-mode AD with tensors that carry tangents (torch/autograd/forward_ad.py).

Invariant: the tangent of a view is the same view of its base's tangent, so an in-place write into either shows in both.
A view of a tensor that gets its tangent later takes it over when its tangent is read (`Tensor._tangent_at`).
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import WeakSet

from ..base.dtypes import INEXACT
from ..base.missing import close_namespace as _close_namespace
from ..config import Generated, Recorded, forward_levels, state
from ..dispatch import tables
from ..dispatch.view import view, view_along
from ..engine.placement import zeros
from ..engine.python_function_jvp import check_shape, layout
from ..tensor import Tangents, Tensor, from_array
from ..views.storage import place_of
from ..views.value_ops import BitCast as _BitCast
from .grad_mode import _Mode

# Each level that is entered has a number of its own inside: tangents of a level that has ended match no other.  For
# the user it is level 0, as in PyTorch.
_numbers = itertools.count()


class UnpackedDualTensor(NamedTuple):
    """The result of `unpack_dual`."""

    primal: Tensor
    tangent: Tensor | None


class _Tangents(WeakSet[Any]):
    block: "dual_level"  # which does not end with its object, if nobody ends it


def enter_dual_level() -> int:
    """Begin a level; nested levels are not supported, as in PyTorch."""
    return dual_level().__enter__()


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: every tangent made at it is gone."""
    if state.dual_level < 0:
        raise RuntimeError(
            "Dual level must be a positive number: trying to exit a forward AD level, but none was entered."
        )
    if level not in (None, 0):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created")
    state.dual_tangents.block.__exit__(None, None, None)


def enter_level() -> int:
    """Enter a level inside of the present ones, for `func.jvp`, which nests.

    The caller restores `state.forward_level` and `state.outer_forward_levels`.
    """
    state.outer_forward_levels = forward_levels()
    state.forward_level = level = next(_numbers)
    return level


class dual_level(Generated, _Mode):
    """A `with` block in which tensors may carry tangents.

    >>> import xgrad
    >>> import xgrad.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(xgrad.tensor(3.0), xgrad.tensor(1.0))
    ...     fwAD.unpack_dual(x * x).tangent
    tensor(6.)
    """

    def _block(self) -> Iterator[int]:
        if state.dual_level >= 0:
            raise RuntimeError("Nested forward mode AD is not supported at the moment")
        level, tangents = next(_numbers), _Tangents()
        tangents.block = self
        try:
            state.dual_level, state.dual_tangents = level, tangents
            state.carry(level)
            yield 0
        finally:
            state.dual_level, state.dual_tangents = -1, None
            if state.suspended is not None:  # as `carry`, without a call, which could be interrupted
                state.suspended = (-1, ())
            elif not state.inference:
                state.forward_level = -1
            for of in tuple(tangents):
                of.pop(level, None)


def _is_fwd_grad_enabled() -> bool:
    """Return True if operations propagate tangents, within a dual level."""
    return state.suspended is None and not state.inference and (state.dual_level < 0 or state.forward_level >= 0)


def _switch(enabled: bool) -> dict[str, Any]:
    """Switch the propagation of tangents on or off; return the modes that were."""
    before = {name: getattr(state, name) for name in ("forward_level", "outer_forward_levels", "suspended")}
    if enabled and state.suspended is not None:
        (state.forward_level, state.outer_forward_levels), state.suspended = state.suspended, None
    elif not enabled and state.suspended is None:
        state.suspended = (state.forward_level, state.outer_forward_levels)
        if not state.inference:
            state.forward_level, state.outer_forward_levels = -1, ()
    return before


class _set_fwd_grad_enabled(_Mode):
    """Switch the propagation of tangents within a dual level on or off; at once, or for a `with` block."""

    def __init__(self, mode: bool) -> None:
        self.mode, self.previous = mode, state.suspended is None
        _switch(mode)

    def __call__(self, function: Any) -> Any:
        _switch(self.previous)
        return super().__call__(function)

    def __enter__(self) -> None:
        _switch(self.previous)
        self._before.append({})
        self._before[-1].update(_switch(self.mode))

    def clone(self) -> "_set_fwd_grad_enabled":
        return _set_fwd_grad_enabled(self.mode)


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """Return a view of `tensor` that carries `tangent`, or a copy of it if the layout of `tangent` differs.

    In inference mode, which has no forward mode, it carries none.

    Raises `RuntimeError` outside of a level, for a tangent of another shape, and if one of them has a tangent already;
    `ValueError` for dtypes without derivatives; `TypeError` for what is not a tensor.
    """
    for value in (tensor, tangent):
        if not isinstance(value, Tensor):
            raise TypeError(f"make_dual(): expected two tensors, but got {type(value).__name__}")
    if state.dual_level < 0 or (level is not None and level < 0):
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    if level not in (None, 0):
        raise RuntimeError(f"Invalid level given to _make_dual: {level}; there is one level, 0")
    if tensor.dtype not in INEXACT:
        raise ValueError(f"Expected primal to be floating point or complex, but got: {tensor.dtype.name}")
    if tangent.dtype not in INEXACT:
        raise ValueError(f"Expected tangent to be floating point or complex, but got: {tangent.dtype.name}")
    if tensor._tangent_at(state.dual_level) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level is not "
            "supported: make it of its primal, unpack_dual(tensor).primal."
        )
    if tangent._tangent_at(state.dual_level) is not None:
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level is not supported: the tangent "
            "is a dual tensor. For second derivatives use xgrad.func.jvp, which nests."
        )
    check_shape(tensor, tangent)
    if tangent._sparse:
        tangent._read()  # raises: a sparse tensor has no array
    dual = tensor.view_as(tensor)
    if not state.inference:
        dual._set_tangent(state.dual_level, _laid_out_like(tensor, tangent))
    return dual


def _laid_out_like(tensor: Tensor, tangent: Tensor) -> Tensor:
    """Return the tangent itself if its layout is the tensor's; else a copy with that layout.

    Views of the tensor, `as_strided` among them, are then views of the tangent as well.
    """
    if tensor._level is tangent._level and layout(tensor) == layout(tangent):
        return tangent
    mine = tensor._chain
    dtype = tangent.dtype if tangent.is_complex() else tensor.dtype
    if tensor._level is not None:
        if tensor._level is not tangent._level:  # one tangent for all entries of a batch: each entry gets its own
            return tables.FUNCTIONS[""]["zeros_like"](tensor.detach(), dtype=dtype).copy_(tangent)
        return tangent.to(dtype, copy=True)
    whole = mine is None or mine.is_root or mine.overlaps or tangent._level is not None
    if whole or any(isinstance(step, _BitCast) for step in mine.steps) or not (mine.expressible or dtype == mine.dtype):
        return tangent.to(dtype, copy=True)
    root = zeros(mine.root_shape, mine.root_dtype if dtype == mine.dtype else dtype, place_of(tensor._held()))
    with Recorded():  # else it could not be written in grad mode
        copy = view_along(from_array(root), mine, "AsStridedBackward0")
    return copy.copy_(tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Return the primal, a view without the tangent, and the tangent (None if there is none at this level).

    Outside of a level the tensor itself and None.
    """
    if state.dual_level < 0 and (level is None or level < 0):
        return UnpackedDualTensor(tensor, None)
    tangent = tensor._tangent_at(state.dual_level) if level in (None, 0) and _is_fwd_grad_enabled() else None
    present, alone = state.forward_level, state.forward_level == state.dual_level and not state.outer_forward_levels
    if alone:
        state.forward_level = -1
    try:
        primal = view(tensor, ("alias",), "Identity")
    finally:
        state.forward_level = present
    if primal._view is not None:
        primal._view = primal._view.of_primal()
    if primal._tangents:  # the tangents of func.jvp's levels
        primal._tangents = Tangents({at: t for at, t in primal._tangents.items() if at != state.dual_level})
    return UnpackedDualTensor(primal, tangent)


def tangent_of(self: Tensor) -> Tensor | None:
    """Return the tangent at the present level, or None."""
    return self._tangent_at(state.forward_level)


def __dir__() -> list[str]:
    """Return PyTorch's names, which users may use."""
    return ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


_close_namespace(__name__)
