"""Questions about tensors and dtypes: is_tensor, numel, is_nonzero, result_type, can_cast, ...

Each is answered without running anything, but for `is_nonzero`, which reads a value.
"""

from typing import Any

import numpy as np

from .. import dtypes
from ..config import settings
from ..tensor import Tensor
from .registry import FUNCTIONS, composite


def is_tensor(obj: Any) -> bool:
    """Whether an object is a Tensor."""
    return isinstance(obj, Tensor)


FUNCTIONS[""]["is_tensor"] = is_tensor


@composite(method=False)
def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


@composite(method=False)
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating-point one."""
    return input.dtype in dtypes.FLOATS


@composite(method=False)
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is a complex one."""
    return input.dtype in dtypes.COMPLEX


@composite(method=False)
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.is_signed()


@composite
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero.  Raises `RuntimeError` for a tensor with another number of elements."""
    if input.numel() != 1:
        what = "more than one value" if input.numel() else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
    return bool(input)


@composite
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape."""
    return input.shape == other.shape


def _operand(x: Any) -> tuple[np.dtype, int]:
    """(dtype, priority) of a tensor or a number."""
    if isinstance(x, Tensor):
        return x.dtype, 2 if x.ndim else 1
    if not isinstance(x, (bool, int, float, complex)):
        raise TypeError(f"result_type(): expected Tensors or numbers, but got {type(x).__name__}")
    return (dtypes.default_integer() if type(x) is int else np.dtype(type(x))), 0


@composite("result_type", method=False)
def result_type(tensor1: Tensor | complex, tensor2: Tensor | complex) -> np.dtype:
    """The dtype of an arithmetic operation on two tensors or numbers.

    >>> import xgrad
    >>> xgrad.result_type(xgrad.arange(3), 1.0)
    dtype('float32')
    """
    return dtypes.result_dtype((_operand(tensor1), _operand(tensor2)), settings.default_dtype)


def can_cast(from_: Any, to: Any) -> bool:
    """Whether PyTorch converts a dtype to another by itself: bool → integral → floating → complex.

    >>> import xgrad
    >>> xgrad.can_cast(xgrad.float64, xgrad.float16), xgrad.can_cast(xgrad.float32, xgrad.int64)
    (True, False)
    """
    return dtypes.category(dtypes.as_dtype(from_)) <= dtypes.category(dtypes.as_dtype(to))


FUNCTIONS[""]["can_cast"] = can_cast


@composite("fill_diagonal_", function=False)
def fill_diagonal_(input: Tensor, fill_value: complex, wrap: bool = False) -> Tensor:
    """Fill the main diagonal in place; `wrap`: of a tall matrix a new one begins one row below the end of each.

    Raises `RuntimeError` for fewer than two dimensions, and for several that differ in size.
    """
    if input.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if input.ndim > 2 and len(set(input.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    mask = np.zeros(tuple(input.shape), bool)
    if mask.size:
        np.fill_diagonal(mask, True, wrap)
    return input.masked_fill_(FUNCTIONS[""]["from_numpy"](mask), fill_value)
