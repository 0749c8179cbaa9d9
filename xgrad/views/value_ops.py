"""Conj, Real, Imag, BitCast, ...: one class for each view operation that changes values or dtype, such as `x.conj()`.

A view is a chain of such steps (chain.py); their methods are those that `view_ops.py` lists.  Invariant: as_strided can
express none of them, because each changes values or their dtype; so `geometric` is false, and a chain with one of them
has no single as_strided of its root.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import NotDifferentiableError
from .geometry import Shape, TensorGeometry
from .platforms import ROW, forms
from .view_ops import Starts, ViewStep

PARTS: Any = {np.dtype("complex64"): np.dtype("float32"), np.dtype("complex128"): np.dtype("float64")}  # of complex
WHOLE: Any = {part: whole for whole, part in PARTS.items()}


def _map(numbers: Sequence[int], factor: int) -> Shape:
    return tuple(n * factor for n in numbers)


class ValueStep(ViewStep):
    """A step that as_strided cannot express, because it changes values or their dtype."""

    __slots__ = ()
    geometric: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Conj(ValueStep):
    """The complex conjugate; its write-back is itself."""

    def elementwise(self, dtype: np.dtype) -> bool:
        return True

    def replay(self, array: Any, starts: Starts) -> Any:
        return jnp.conj(array)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return jnp.conj(grad)


@dataclass(frozen=True, slots=True)
class Neg(ValueStep):
    """The negative; its write-back is itself."""

    def elementwise(self, dtype: np.dtype) -> bool:
        return True

    def replay(self, array: Any, starts: Starts) -> Any:
        return -array

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return -grad


@dataclass(frozen=True, slots=True)
class Real(ValueStep):
    """The real part, as every second number of the storage."""

    def elementwise(self, dtype: np.dtype) -> bool:
        return True

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return shape, PARTS[dtype]

    def replay(self, array: Any, starts: Starts) -> Any:
        return jnp.real(array)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        return lax.complex(new, jnp.imag(array))

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return lax.complex(grad, jnp.zeros_like(grad))

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        return replace(seen, strides=_map(seen.strides, 2), offset=2 * seen.offset)


@dataclass(frozen=True, slots=True)
class Imag(ValueStep):
    """The imaginary part, as every second number of the storage."""

    def elementwise(self, dtype: np.dtype) -> bool:
        return True

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return shape, PARTS[dtype]

    def replay(self, array: Any, starts: Starts) -> Any:
        return jnp.imag(array)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        return lax.complex(jnp.real(array), new)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return lax.complex(jnp.zeros_like(grad), grad)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        return replace(seen, strides=_map(seen.strides, 2), offset=2 * seen.offset + 1)


@dataclass(frozen=True, slots=True)
class ViewAsReal(ValueStep):
    """Views a complex array as a real one, with a last dimension of size 2."""

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return shape + (2,), PARTS[dtype]

    def replay(self, array: Any, starts: Starts) -> Any:
        return jnp.stack([jnp.real(array), jnp.imag(array)], axis=-1)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return lax.complex(grad[..., 0], grad[..., 1])

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        return TensorGeometry(seen.sizes + (2,), _map(seen.strides, 2) + (1,), 2 * seen.offset)


@dataclass(frozen=True, slots=True)
class ViewAsComplex(ValueStep):
    """Views a real array with a last dimension of size 2 as a complex one."""

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return shape[:-1], WHOLE[dtype]

    def replay(self, array: Any, starts: Starts) -> Any:
        return lax.complex(array[..., 0], array[..., 1])

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return jnp.stack([jnp.real(grad), jnp.imag(grad)], axis=-1)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry | None:
        return TensorGeometry(seen.sizes[:-1], tuple(s // 2 for s in seen.strides[:-1]), seen.offset // 2)


@dataclass(frozen=True, slots=True)
class BitCast(ValueStep):
    """Views the same bytes as another dtype, `view(dtype)`; the last dimension changes with the element size."""

    dtype: np.dtype

    def elementwise(self, dtype: np.dtype) -> bool:
        return dtype.itemsize == self.dtype.itemsize

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        if self.elementwise(dtype):
            return shape, self.dtype
        return shape[:-1] + (shape[-1] * dtype.itemsize // self.dtype.itemsize,), self.dtype

    def normalize(self, shape: Shape, dtype: np.dtype) -> "BitCast | None":
        return None if dtype == self.dtype else self

    def replay(self, array: Any, starts: Starts) -> Any:
        return _bit_cast(array, self.result(array.shape, array.dtype)[0], self.dtype)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        return _bit_cast(new, array.shape, array.dtype)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        raise NotDifferentiableError(f"view({self.dtype.name}) of {dtype.name} reinterprets bits: it has no gradient")

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        if self.elementwise(dtype):
            return seen
        old, new = dtype.itemsize, self.dtype.itemsize
        return TensorGeometry(
            self.result(seen.sizes, dtype)[0],
            tuple(s * old // new for s in seen.strides[:-1]) + (1,),
            seen.offset * old // new,
        )


def _bit_cast(array: Any, shape: Shape, dtype: np.dtype) -> Any:
    # XLA bit-casts neither complex nor bool: go through their parts and their bytes.
    array = lax.reshape(array, array.shape or (1,))
    if array.dtype in PARTS:
        array = jnp.stack([jnp.real(array), jnp.imag(array)], axis=-1).reshape(*array.shape[:-1], 2 * array.shape[-1])
    elif array.dtype == bool:
        array = array.astype(np.uint8)
    plain = PARTS.get(dtype, np.dtype(np.uint8) if dtype.kind == "b" else dtype)
    ratio = plain.itemsize // array.dtype.itemsize
    if ratio > 1:
        array = array.reshape(*array.shape[:-1], array.shape[-1] // ratio, ratio)
    shifted = plain.itemsize < array.dtype.itemsize < 8 and forms().shifted
    cast = _shifted(array, plain) if shifted else lax.bitcast_convert_type(array, plain)
    if dtype in PARTS:
        cast = cast.reshape(*shape, 2)
        return lax.complex(cast[..., 0], cast[..., 1])
    cast = cast.reshape(shape)
    return cast != 0 if dtype.kind == "b" else cast


def _shifted(array: Any, dtype: np.dtype) -> Any:
    """Return the parts of each element side by side, the low one first, as a TPU is quick to do it: by columns."""
    rows = array.reshape(-1, ROW) if array.ndim == 1 and array.size % ROW == 0 else array
    columns = jnp.moveaxis(lax.bitcast_convert_type(rows, np.dtype(f"uint{8 * array.dtype.itemsize}")), -1, 0)
    bits = 8 * dtype.itemsize
    shifts = range(0, 8 * array.dtype.itemsize, bits)
    parts = jnp.stack([(columns >> shift).astype(np.dtype(f"uint{bits}")) for shift in shifts], axis=1)
    parts = jnp.moveaxis(parts.reshape(-1, *columns.shape[1:]), 0, -1)
    return lax.bitcast_convert_type(parts, dtype)
