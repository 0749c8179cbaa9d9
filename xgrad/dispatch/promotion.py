"""Helpers that operators' JAX functions call: type promotion, dimensions, broadcasting, PyTorch's errors.

Most run while a kernel is traced, once for each (shapes, dtypes, static arguments), so checks here cost eager calls
nothing.  An error raised here ends the call before anything is changed.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..base import dtypes
from ..config import settings
from ..errors import ShapeMismatchError
from ..execution.programs.half import widen as widen
from ..views.named.arguments import wrap_dim as wrap_dim


def operand(x: Any) -> tuple[np.dtype, int]:
    """(dtype, priority) of an operand: 2 for a tensor with dimensions, 1 for a 0-dim one, 0 for a Python number."""
    return x.dtype, 0 if getattr(x, "weak_type", False) else 2 if x.ndim else 1


def common_dtype(*operands: Any) -> np.dtype:
    """PyTorch's result dtype of arrays and Python numbers (which arrive as weakly typed 0-dim arrays)."""
    return dtypes.result_dtype(tuple(operand(jnp.asarray(x)) for x in operands), settings.default_dtype)


def promote(*operands: Any) -> tuple[Any, ...]:
    """Cast the operands to their common dtype."""
    dtype = common_dtype(*operands)
    return tuple(dtypes.converted(jnp.asarray(x), dtype) for x in operands)


def promote_float(*operands: Any) -> tuple[Any, ...]:
    """Cast the operands to their common dtype, or to the default float if that is integral or bool."""
    dtype = common_dtype(*operands)
    if dtype not in dtypes.INEXACT:
        dtype = settings.default_dtype
    return tuple(dtypes.converted(jnp.asarray(x), dtype) for x in operands)


def scalar(x: Any, value: Any, name: str) -> Any:
    """Cast a number argument for the array `x`: Python numbers stay weakly typed, a 0-dim tensor gets x's dtype.

    Raises `TypeError` for a value that is not a number and `RuntimeError` for a complex number beside a real array.
    """
    if value is None or jnp.ndim(value):
        found = "None" if value is None else f"a tensor with {value.ndim} dimensions"
        raise TypeError(f"argument '{name}' must be a number, not {found}")
    value = jnp.asarray(value)
    if jnp.iscomplexobj(value) and x.dtype not in dtypes.COMPLEX:
        raise RuntimeError(
            f"value cannot be converted to type {dtypes.torch_name(x.dtype)} without overflow: "
            f"argument '{name}' is complex"
        )
    return value if value.weak_type else dtypes.converted(value, x.dtype)


def cast(x: Any, dtype: np.dtype) -> Any:
    """Cast `x` to `dtype`: a complex number becomes its real part, or for bool True unless it is 0."""
    x = jnp.asarray(x)
    if x.dtype in dtypes.COMPLEX and dtype not in dtypes.COMPLEX and dtype != dtypes.bool:
        x = jnp.real(x)
    return dtypes.converted(x, dtype)


def as_float(x: Any) -> Any:
    """Cast `x` to the default float, unless it is floating or complex."""
    return promote_float(x)[0]


def accumulate_dtype(x: Any, dtype: Any) -> np.dtype:
    """The dtype of a sum or product: `dtype`, else int64 (int32 without x64) for integers and bools."""
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    return x.dtype if x.dtype in dtypes.INEXACT else dtypes.default_integer()


def require_float(x: Any, name: str) -> None:
    """Raise for integers and bools where PyTorch does."""
    if x.dtype not in dtypes.INEXACT:
        raise RuntimeError(
            f'"{name}": could not infer output dtype. Input dtype must be either a floating point or complex dtype. '
            f"Got: {dtypes.torch_name(x.dtype)}"
        )


def require_floating(x: Any, name: str) -> None:
    """Raise for integers and bools, whose dtypes cannot represent the function's values."""
    if x.dtype not in dtypes.INEXACT:
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{dtypes.torch_name(x.dtype)}': "
            "convert the tensor to a floating-point dtype first"
        )


def require_real_floating(x: Any, name: str) -> None:
    """Raise for all dtypes but floating-point ones: PyTorch has no kernel for the others."""
    if x.dtype not in dtypes.FLOATS:
        require_floating(x, name)
        refuse_complex(x, name)


def refuse_complex(x: Any, name: str) -> None:
    """Raise for complex numbers, for which PyTorch has no kernel."""
    if x.dtype in dtypes.COMPLEX:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.torch_name(x.dtype)}'")


def refuse_bool(what: str, *operands: Any) -> None:
    """Refuse to subtract or negate truth values."""
    bools = sum(x.dtype == bool for x in operands)
    if bools:
        advice = "Use the `^` or `logical_xor()`"
        if bools == 1:
            advice = "If you are trying to invert a mask, use the `~` or `logical_not()`"
        found = "a bool tensor" if bools == 1 else "two bool tensors"
        raise RuntimeError(f"{what}, the `-` operator, with {found} is not supported. {advice} operator instead.")


def require_32_bits(x: Any, name: str) -> None:
    """Raise for the half precisions, for which PyTorch has no kernel on the CPU."""
    if x.dtype in dtypes.FLOATS and x.dtype.itemsize < 4:
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{dtypes.torch_name(x.dtype)}': convert the tensor to float32 first"
        )


def require_real(x: Any, name: str) -> None:
    """Raise for complex numbers and bools, which have no order or no arithmetic."""
    if x.dtype in dtypes.COMPLEX or x.dtype == bool:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dtypes.torch_name(x.dtype)}'")


def require_same_dtype(x: Any, weight: Any, name: str) -> None:
    """Raise if a layer's input and weight have different dtypes, as PyTorch does: layers do not promote."""
    if x.dtype != weight.dtype:
        names = [dtypes.torch_name(a.dtype) for a in (x, weight)]
        raise RuntimeError(
            f"{name}: expected input and weight to have the same dtype, but got {names[0]} and {names[1]}"
        )


def wrap_dims(dims: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions (an int, a sequence, or None and () for all), counted from the front.  Raises for repeated ones."""
    if dims is None or (isinstance(dims, Sequence) and not len(dims)):
        return tuple(range(ndim))
    dims = dims if isinstance(dims, Sequence) else (dims,)
    wrapped = tuple(wrap_dim(d, ndim) for d in dims)
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(
            f"dim {next(d for d in wrapped if wrapped.count(d) > 1)} appears multiple times in the list of dims"
        )
    return wrapped if ndim else ()


def broadcast_shapes(*shapes: tuple[Any, ...]) -> tuple[int, ...]:
    """The broadcast shape.  Raises PyTorch's size error."""
    result: list[int] = []
    for i in range(max(map(len, shapes), default=0)):
        size = 1
        for shape in shapes:
            n = shape[-1 - i] if i < len(shape) else 1
            if n != 1 and size not in (1, n):
                where = max(map(len, shapes)) - 1 - i
                raise ShapeMismatchError(
                    f"The size of tensor a ({size}) must match the size of tensor b ({n}) "
                    f"at non-singleton dimension {where}"
                )
            size = n if n != 1 else size
        result.append(size)
    return tuple(reversed(result))


def check_broadcast(*operands: Any) -> None:
    """Raise PyTorch's size error for operands that do not broadcast together."""
    shapes = [x.shape for x in operands if hasattr(x, "shape")]
    if any(s != shapes[0] for s in shapes):
        broadcast_shapes(*shapes)


def refuse_broader(x: Any, other: Any) -> None:
    """Raise for an operand, or None, that would make the shape of `x` a larger one."""
    if other is not None and (wide := broadcast_shapes(x.shape, other.shape)) != x.shape:
        raise ShapeMismatchError(f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(wide)}")


def promote_together(*operands: Any) -> tuple[Any, ...]:
    """Cast the operands to their common dtype; raise if their shapes do not broadcast."""
    check_broadcast(*operands)
    return promote(*operands)


def conj(x: Any) -> Any:
    """The complex conjugate; a real array itself."""
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


def restore_dims(x: Any, shape: tuple[Any, ...], dims: tuple[int, ...], keepdim: bool) -> Any:
    """Broadcast the result of a reduction over `dims` back to `shape`, the reduced array's."""
    if not keepdim:
        x = jnp.expand_dims(x, dims) if len(shape) else x
    return jnp.broadcast_to(x, shape)
