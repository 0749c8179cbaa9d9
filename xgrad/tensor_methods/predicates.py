"""is_tensor, is_nonzero, result_type, can_cast, ...: test tensors, or compute the dtype of a result.

The functions `numel` and `set_printoptions` of other modules are declared here too.
"""

from typing import Any

import numpy as np

from ..base import dtypes
from ..base.dtype_object import dtype, of
from ..config import settings
from ..dispatch.declare import composite
from ..dispatch.promotion import operand
from ..dispatch.wrong_arguments import require_tensor
from ..tensor import Tensor
from . import conversion
from .printing import set_printoptions

for _question in (conversion.numel, set_printoptions):
    composite(method=False)(_question)


def _dtype_of(input: Any, name: str) -> np.dtype:
    """The dtype of a tensor, or one itself."""
    if isinstance(input, (Tensor, np.dtype, dtype)):
        return input._dtype if isinstance(input, Tensor) else np.dtype(input)
    raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor or a dtype, not {type(input).__name__}")


@composite(method=False)
def is_floating_point(input: Any) -> bool:
    """True if a tensor's dtype, or a dtype, is a floating-point one.

    Takes NumPy's dtypes too, for whose `issubdtype` bfloat16 and float8 are not floats.

    >>> import xgrad
    >>> x = xgrad.ones(2, dtype=xgrad.bfloat16)
    >>> x.is_floating_point(), xgrad.is_floating_point(x), xgrad.is_floating_point(x.dtype)
    (True, True, True)
    """
    return _dtype_of(input, "is_floating_point") in dtypes.FLOATS


@composite(method=False)
def is_complex(input: Any) -> bool:
    """True if a tensor's dtype, or a dtype (PyTorch: `dtype.is_complex`), is a complex one."""
    return _dtype_of(input, "is_complex") in dtypes.COMPLEX


@composite(method=False)
def is_signed(input: Any) -> bool:
    """True if a tensor's dtype, or a dtype (PyTorch: `dtype.is_signed`), has negative numbers."""
    return _dtype_of(input, "is_signed").kind in "ifcV"


@composite(method=False)
def is_tensor(obj: Any) -> bool:
    """True if an object is a Tensor."""
    return isinstance(obj, Tensor)


@composite
def is_nonzero(input: Tensor) -> bool:
    """True if the one element is not zero.  Raises `RuntimeError` for more or fewer elements than one.

    >>> import xgrad
    >>> xgrad.is_nonzero(xgrad.tensor([[0.5]]))
    True
    """
    require_tensor("is_nonzero", input)
    return bool(input)


@composite
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """True if two tensors have the same shape."""
    return input.shape == other.shape


@composite(method=False)
def result_type(tensor1: Any, tensor2: Any) -> dtype:
    """The dtype of an arithmetic operation on two operands, tensors or numbers.

    >>> import xgrad
    >>> xgrad.result_type(xgrad.tensor([1, 2], dtype=xgrad.int32), 1.0)
    xgrad.float32
    """
    for place, x in enumerate((tensor1, tensor2), 1):
        if not isinstance(x, (Tensor, bool, int, float, complex)):
            raise TypeError(
                f"result_type(): argument 'tensor{place}' (position {place}) must be Tensor or Number, not "
                f"{type(x).__name__}"
            )
    operands = tuple(operand(x) if isinstance(x, Tensor) else (np.dtype(type(x)), 0) for x in (tensor1, tensor2))
    return of(dtypes.result_dtype(operands, settings.default_dtype))


@composite(method=False)
def can_cast(from_: Any, to: Any) -> bool:
    """True if PyTorch's casting rules allow to write a result of dtype `from_` to dtype `to`.

    >>> import xgrad
    >>> xgrad.can_cast(xgrad.float64, xgrad.float32), xgrad.can_cast(xgrad.float32, xgrad.int32)
    (True, False)
    """
    return dtypes.category(dtypes.named_dtype(from_)) <= dtypes.category(dtypes.named_dtype(to))
