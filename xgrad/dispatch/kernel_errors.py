"""explain: turns JAX's error in an operator's program into PyTorch's, for dispatch/call.py and inplace.py."""

import re
from typing import Any

import jax

from ..base import dtypes
from ..base.limits import out_of_memory
from ..errors import DtypeDisabledError, NumberOverflowError, OutOfMemoryError
from .operator import Operator

# JAX's messages about shapes, which say them: "add got incompatible shapes for broadcasting: (2,), (3,)."
_SHAPES = re.compile(r"(incompatible|same|of|operand|for|case)[. ]shapes?\b.*\([\d)]")


def explain(error: Exception, op: Operator, arrays: list[Any]) -> Exception:
    """Convert an error of a kernel to the type and message that PyTorch's users know."""
    if isinstance(error, DtypeDisabledError):
        return error
    if (memory := out_of_memory(error)) is not None:
        return memory
    if isinstance(error, OverflowError) and "jitted computation" in str(error):
        return NumberOverflowError(
            f"{op.name}(): sizes or numbers beyond int32, in which JAX counts while its 64-bit mode is off"
            f"{dtypes.widen(dtypes.default_integer())}: {error}"
        )
    if isinstance(error, MemoryError):
        return OutOfMemoryError(f"can't allocate memory: {op.name}(): {error}")
    if arrays and arrays[0] is None and op.parameters and op.parameters[0] not in op.defaults:
        return TypeError(f"{op.name}(): argument 'input' (position 1) must be Tensor, not NoneType")
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, jax.errors.ConcretizationTypeError):
        return error  # the kernel reads a value that is traced
    if isinstance(error, TypeError) and _SHAPES.search(text):
        shapes = ", ".join(str(list(a.shape)) for a in arrays if hasattr(a, "shape"))
        return RuntimeError(f"{op.name}(): the shapes {shapes} do not fit together: {text}")
    if isinstance(error, ValueError) and "None is not a valid value" in text:
        return TypeError(f"{op.name}(): expected a Tensor or a number as an array argument, but got NoneType")
    if isinstance(error, ValueError) and "incompatible devices" in text:
        return RuntimeError(
            f"Expected all tensors to be on the same device, but {op.name}() got tensors on several: {text}"
        )
    return error
