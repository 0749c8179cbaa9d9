"""Arguments of view operations, checked: dimensions, sizes, bounds of a slice.

Invariant: what comes out is in bounds and counted from 0.  The messages are PyTorch's.
"""

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

from ..geometry import Shape


def wrap_dim(dim: Any, ndim: int) -> int:
    """A dimension counted from 0; a 0-dim tensor has dimensions 0 and -1."""
    dim, bound = operator.index(dim), max(ndim, 1)
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim + bound if dim < 0 else dim


def ints(args: Sequence[Any]) -> Shape:
    """`f(2, 3)` and `f((2, 3))` alike."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    return tuple(operator.index(a) for a in args)


def require_dim(shape: Shape, name: str, error: type[Exception] = IndexError) -> None:
    """Raise `error` for a 0-dim tensor."""
    if not shape:
        raise error(f"{name}() cannot be applied to a 0-dim tensor.")


def infer_shape(shape: Sequence[int], numel: int) -> Shape:
    """`shape` with its -1 worked out for `numel` elements."""
    for i, n in enumerate(shape):
        if n < -1:
            raise RuntimeError(f"invalid shape dimension {n} at index {i} of shape {list(shape)}")
    unknown = [i for i, n in enumerate(shape) if n == -1]
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    known = prod(n for n in shape if n != -1)
    if unknown and known == 0 and numel == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 "
            "can be any value and is ambiguous"
        )
    if (numel != known) if not unknown else (known == 0 or numel % known != 0):
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")
    return tuple(numel // known if n == -1 else n for n in shape)


def without(shape: Shape, dims: Sequence[int]) -> Shape:
    """`shape` without the sizes of some dimensions."""
    return tuple(n for d, n in enumerate(shape) if d not in dims)


def clamped(start: Any, end: Any, step: int, n: int) -> tuple[int, int]:
    """Start and number of elements of a slice of `n`, clamped as Python does."""
    start = 0 if start is None else operator.index(start)
    end = n if end is None else operator.index(end)
    start = min(max(start + n if start < 0 else start, 0), n)
    end = min(max(end + n if end < 0 else end, start), n)
    return start, (end - start + step - 1) // step
