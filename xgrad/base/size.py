"""Size: PyTorch's type of a tensor's shape, a tuple of ints whose slices, sums and repetitions are sizes too."""

from functools import partial
from math import prod
from typing import Any, SupportsIndex, overload

import numpy as np


class Size(tuple[int, ...]):
    """A shape, printed as PyTorch prints it.  Raises `TypeError` unless it is made of an iterable of ints.

    >>> import xgrad
    >>> shape = xgrad.zeros(2, 3, 4).size()
    >>> shape[1:], (7,) + shape, shape.numel()
    (xgrad.Size([3, 4]), xgrad.Size([7, 2, 3, 4]), 24)
    """

    __slots__ = ()

    def __new__(cls, sizes: Any = ()) -> "Size":
        return tuple.__new__(cls, [_int_of(n, i) for i, n in enumerate(sizes)])

    def __repr__(self) -> str:
        return f"xgrad.Size({list(self)})"

    def numel(self) -> int:
        """Return the number of elements of a tensor of this shape."""
        return prod(self)

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> "Size": ...
    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return unchecked(found) if found.__class__ is tuple else found

    # NotImplemented hands other operands on: arrays to NumPy, the rest to tuple, which raises the error.

    def __add__(self, other: Any) -> "Size":
        return Size(tuple.__add__(self, other)) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> "Size":
        return Size((*other, *self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, times: Any) -> "Size":
        return unchecked(tuple.__mul__(self, times)) if isinstance(times, (int, np.integer)) else NotImplemented

    def __rmul__(self, times: Any) -> "Size":
        return self.__mul__(times)


unchecked: Any = partial(tuple.__new__, Size)  # for a tuple of ints: `Tensor.shape` is read all the time


def _int_of(n: Any, place: int) -> int:
    if n.__class__ is int:
        return n
    try:
        return n.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"xgrad.Size() takes an iterable of 'int' (item {place} is '{type(n).__name__}')") from None
