"""Checks a caller's sizes, dimensions and slice bounds, and returns them as ints, for view functions and operators.

Sizes may be several arguments or one sequence.  Dimensions and slice bounds are returned in bounds and counted from 0;
`int_of` and `sizes_of` pass any int on.  Most messages are PyTorch's.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ...errors import public_caller
from ..geometry import Shape

_BOOL = np.dtype(bool)


# Classes of values that equal an int, or have such elements, and so would be found in its place where ints are keys.
NO_DIM = frozenset([bool, float, np.bool_, np.float64])
NO_DIMS: Any = NO_DIM | {tuple, list}


def int_of(value: Any) -> int:
    """Return one size, index or dimension as an int.  Raises `TypeError` for other values, a bool too."""
    if value.__class__ is int:
        return value
    try:
        if isinstance(value, bool) or getattr(value, "ndim", 0) or getattr(value, "dtype", None) == _BOOL:
            raise TypeError
        return value.__index__()
    except (AttributeError, TypeError):
        name = public_caller()
        called = f"{name}(): " if name else ""
        raise TypeError(f"{called}sizes and dims must be ints, but got {type(value).__name__}") from None


def require_dims(dim: Any) -> None:
    """Raise `TypeError` for a dimension that is not an int, and for a sequence that contains one."""
    if isinstance(dim, (tuple, list)):
        for d in dim:
            int_of(d)
    else:
        int_of(dim)


def sizes_of(args: Sequence[Any]) -> Shape:
    """Return the ints of `f(2, 3)` and of `f((2, 3))` alike.

    PyTorch refuses a bool in the first place only, so that `f((2, True))` means `f((2, 1))`.
    """
    if len(args) == 1 and args[0].__class__ is not int and isinstance(args[0], Sequence):
        args = args[0]
    for n in args:
        if n.__class__ is not int:
            return tuple(int(n) if i and isinstance(n, bool) else int_of(n) for i, n in enumerate(args))
    return tuple(args)


def variadic(function: str, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Shape:
    """Return the ints of `f(2, 3)`, `f((2, 3))` and `f(size=(2, 3))`; `TypeError` unless they are passed once.

    Python allows no parameter with the name of `*size`: `named` are the keyword arguments that `**named` caught.
    """
    if named:
        other = next((key for key in named if key != name), None)
        if other is not None:
            raise TypeError(f"{function}() got an unexpected keyword argument '{other}'")
        if args:
            raise TypeError(f"{function}() got multiple values for argument '{name}'")
        args = (named[name],)
        if not isinstance(args[0], Sequence):
            raise TypeError(f"{function}(): argument '{name}' must be tuple of ints, not {type(args[0]).__name__}")
    if not args:
        raise TypeError(f"{function}() missing 1 required positional argument: '{name}'")
    return sizes_of(args)


def wrap_dim(dim: Any, ndim: int) -> int:
    """Return `dim` counted from the front.  Raises `IndexError` if it is out of range (a 0-dim tensor has -1 and 0)."""
    dim, bound = int_of(dim), max(ndim, 1)
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim + bound if dim < 0 else dim


def own_dim(dim: Any, ndim: int) -> int:
    """`wrap_dim` for a tensor that must have the dimension: raises `IndexError` for a 0-dim one."""
    if not ndim:
        raise IndexError(f"Dimension specified as {int_of(dim)} but tensor has no dimensions")
    return wrap_dim(dim, ndim)


def require_dim(shape: Shape, name: str, error: type[Exception] = IndexError) -> None:
    """Raise `error` for a 0-dim tensor."""
    if not shape:
        raise error(f"{name}() cannot be applied to a 0-dim tensor.")


def infer_shape(shape: Sequence[int], numel: int) -> Shape:
    """Return `shape` with its -1 replaced by the size that `numel` elements give."""
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
    """Return `shape` without the sizes of some dimensions."""
    return tuple(n for d, n in enumerate(shape) if d not in dims)


def clamped(start: Any, end: Any, step: int, n: int) -> tuple[int, int]:
    """Return start and number of elements of a slice of `n`, clamped as Python does."""
    start = 0 if start is None else int_of(start)
    end = n if end is None else int_of(end)
    start = min(max(start + n if start < 0 else start, 0), n)
    end = min(max(end + n if end < 0 else end, start), n)
    return start, (end - start + step - 1) // step
