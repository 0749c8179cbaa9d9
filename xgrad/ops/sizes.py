"""Sizes and indices as callers give them: ints, tensors of one element, one sequence or several arguments."""

from collections.abc import Sequence
from typing import Any

from ..tensor import Tensor


def sizes_of(size: tuple) -> tuple[int, ...]:
    """Sizes given as one sequence or as several ints."""
    if len(size) == 1 and isinstance(size[0], Sequence):
        size = tuple(size[0])
    if all(s.__class__ is int for s in size):
        return size
    return tuple(int_of(s) for s in size)


def int_of(s: Any) -> int:
    """One size or index as a Python int.  Raises `TypeError` for what is none."""
    if isinstance(s, Tensor):
        return int(s)
    try:
        return s.__index__()
    except AttributeError:
        raise TypeError(f"sizes and dims must be ints, but got {type(s).__name__}") from None
