"""Forward-mode AD: dual levels, and tensors that carry a tangent (PyTorch: torch/autograd/forward_ad.py).

Invariant: the tangent of a view is the same view of its base's tangent, so an in-place write into either shows in both.
"""

import itertools
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..config import forward_levels, state
from ..dtypes import INEXACT
from ..tensor import Tensor
from .grad_mode import _Mode

# Each level that is entered gets a number of its own inside: tangents of a level that has ended match no other.  To
# the user it is level 0, as in PyTorch.
_numbers = itertools.count()


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Begin a level; nested levels are not supported, as in PyTorch."""
    if state.dual_level >= 0:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    state.dual_level = next(_numbers)
    if not state.inference:
        state.forward_level = state.dual_level
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: every tangent made at it is gone."""
    if state.dual_level < 0 or level not in (None, 0):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created")
    state.dual_level = -1
    if not state.inference:
        state.forward_level = -1


@contextmanager
def new_level() -> Any:
    """A level inside of those that are entered, for a `with` block: what `func.jvp`, which nests, differentiates at."""
    previous = state.forward_level, state.outer_forward_levels
    state.outer_forward_levels = forward_levels()
    state.forward_level = level = next(_numbers)
    try:
        yield level
    finally:
        state.forward_level, state.outer_forward_levels = previous


class dual_level(_Mode):
    """A `with` block in which tensors may carry tangents.

    >>> import xgrad
    >>> import xgrad.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(xgrad.tensor(3.0), xgrad.tensor(1.0))
    ...     fwAD.unpack_dual(x * x).tangent
    tensor(6.)
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *error: Any) -> None:
        exit_dual_level()


class _set_fwd_grad_enabled(_Mode):
    """Whether operations carry tangents on, within a dual level; for a `with` block."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self.previous = state.forward_level
        if not state.inference:
            state.forward_level = state.dual_level if self.mode else -1

    def __exit__(self, *error: Any) -> None:
        state.forward_level = self.previous

    def clone(self) -> "_set_fwd_grad_enabled":
        return _set_fwd_grad_enabled(self.mode)


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of `tensor` that carries `tangent`; in inference mode, which has no forward mode, it carries none.

    Raises `RuntimeError` outside of a level and for a tangent of another shape, `TypeError`/`ValueError` for dtypes
    without derivatives.
    """
    number = _level(level)
    if tensor.dtype not in INEXACT:
        raise ValueError(f"Expected primal to be floating point or complex, but got: {tensor.dtype.name}")
    if tangent.dtype not in INEXACT:
        raise ValueError(f"Expected tangent to be floating point or complex, but got: {tangent.dtype.name}")
    if tangent.shape != tensor.shape:
        raise RuntimeError(
            f"Expected tangent to have the same shape as primal, but got: {list(tangent.shape)} "
            f"and {list(tensor.shape)}"
        )
    dual = tensor.view_as(tensor)
    if not state.inference:
        dual._tangents = {number: tangent}
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The primal, without its tangent, and the tangent (None if there is none at this level, or no level)."""
    if state.dual_level < 0 and level is None:
        return UnpackedDualTensor(tensor, None)
    number = _level(level)
    tangent = None if tensor._tangents is None or state.inference else tensor._tangents.get(number)
    if tangent is None:
        return UnpackedDualTensor(tensor, None)
    with _set_fwd_grad_enabled(False):
        return UnpackedDualTensor(tensor.alias(), tangent)


def _level(level: int | None) -> int:
    if state.dual_level < 0 or level not in (None, 0):
        raise RuntimeError("Trying to use forward AD outside of a dual level: enter one with `with dual_level():`")
    return state.dual_level


def tangent_of(self: Tensor) -> Tensor | None:
    """The tangent at the present level, or None."""
    return None if self._tangents is None else self._tangents.get(state.forward_level)
