"""Slice, Permute, Reshape, ...: the steps of a `ViewChain`, small frozen classes that select or move elements.

Operations that change values or dtype (conj, real, view(dtype), ...) are in `value_ops.py`.  `named/` turns PyTorch's
names (`select`, `t`, `squeeze`, ...) into both kinds.  Each step has its rules on arrays and on geometries:

    result(shape, dtype)                   the shape and dtype after the step
    normalize(shape, dtype)                the simplest equal step; None for the identity
    replay(array, starts)                  the forward of the view
    write_back(array, new, starts)         `array` with the view's part replaced by `new`
    transpose(grad, shape, dtype, starts)  the gradient of an input of `shape` and `dtype`
    geometry(geometry, dtype)              the places of the elements, in elements of the dtype after the step
    starts(shape)                          the numbers that are operands of its program, and not part of it
    program_key()                          the step without its starts
    over_batch(n, shape)                   the steps that do this to each entry of a new first dimension of n

Invariant: arguments were checked when the step was made (`named/`), so no rule clamps or raises for an index.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..errors import OverlapError
from ..execution.programs.half import summed, widen
from .geometry import OVERLAP, Shape, TensorGeometry
from .strided import (
    gather_strided,
    scatter_add_strided,
    scatter_strided,
    slice_read,
    slice_transpose,
    slice_write,
    strided_plan,
)
from .windows import add_windows, few, read_windows, write_windows

Starts = Sequence[Any]


class ViewStep:
    """The defaults of all steps: no starts, already in normal form, same shape, dtype and geometry."""

    __slots__ = ()
    geometric: ClassVar[bool] = True  # True if it moves elements and changes none: as_strided could express it
    repeats: ClassVar[bool] = False  # True if two elements of the result may be one element of the input

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return shape, dtype

    def normalize(self, shape: Shape, dtype: np.dtype) -> "ViewStep | None":
        return self

    def starts(self, shape: Shape) -> Shape:
        return ()

    def program_key(self) -> "ViewStep":
        return self

    def over_batch(self, n: int, shape: Shape) -> "tuple[ViewStep, ...]":
        return (self,)

    def elementwise(self, dtype: np.dtype) -> bool:
        """Return True if it does the same to each element in its place, so that geometric steps commute with it."""
        return False

    def replay(self, array: Any, starts: Starts) -> Any:
        raise NotImplementedError

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        # For a step that loses nothing of a real array: its transpose is its inverse.
        return self.transpose(new, array.shape, array.dtype, starts)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        raise NotImplementedError

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry | None:
        return seen


@dataclass(frozen=True, slots=True)
class Slice(ViewStep):
    """`x[start : : step]` cut to `size`, in each dimension.  A `select` is size 1, and a `Reshape` after it."""

    _starts: Shape
    sizes: Shape
    steps: Shape

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return self.sizes, dtype

    def normalize(self, shape: Shape, dtype: np.dtype) -> "Slice | None":
        steps = tuple(1 if n <= 1 else k for n, k in zip(self.sizes, self.steps))
        if self.sizes == shape and not any(self._starts):
            return None
        return self if steps == self.steps else Slice(self._starts, self.sizes, steps)

    def _cut(self, shape: Shape) -> list[int]:
        # A window that is the whole dimension can only start at 0, and needs no operand.
        return [
            d for d, (n, k, whole) in enumerate(zip(self.sizes, self.steps, shape)) if n and (n - 1) * k + 1 != whole
        ]

    def starts(self, shape: Shape) -> Shape:
        return () if 0 in self.sizes else tuple(self._starts[d] for d in self._cut(shape))

    def _operands(self, shape: Shape, starts: Starts) -> list[Any]:
        all_starts: list[Any] = [np.int32(0)] * len(shape)
        if starts:
            for d, start in zip(self._cut(shape), starts):
                all_starts[d] = start
        return all_starts

    def program_key(self) -> ViewStep:
        return Slice((), self.sizes, self.steps)

    def over_batch(self, n: int, shape: Shape) -> tuple[ViewStep, ...]:
        return (Slice((0, *self._starts), (n, *self.sizes), (1, *self.steps)),)

    def replay(self, array: Any, starts: Starts) -> Any:
        if 0 in self.sizes:
            return jnp.zeros(self.sizes, array.dtype)
        return slice_read(array, self._operands(array.shape, starts), self.sizes, self.steps)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        return slice_write(array, new, self._operands(array.shape, starts), self.sizes, self.steps)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return slice_transpose(grad, shape, self._operands(shape, starts), self.sizes, self.steps)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        offset = seen.offset + sum(i * s for i, s in zip(self._starts, seen.strides))
        return TensorGeometry(self.sizes, tuple(k * s for k, s in zip(self.steps, seen.strides)), offset)


@dataclass(frozen=True, slots=True)
class Permute(ViewStep):
    """Dimension d of the result is dimension `dims[d]` of the input."""

    dims: Shape

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return tuple(shape[d] for d in self.dims), dtype

    def normalize(self, shape: Shape, dtype: np.dtype) -> "ViewStep | None":
        # Dimensions of size 1 are all alike: they go in ascending order, so that equal views are equal steps.
        units = iter([d for d, n in enumerate(shape) if n == 1])
        dims = tuple(next(units) if shape[d] == 1 else d for d in self.dims)
        if dims == tuple(range(len(dims))):
            return None
        order = [d for d in dims if shape[d] != 1]
        if order == sorted(order):
            return Reshape(tuple(shape[d] for d in dims))
        return self if dims == self.dims else Permute(dims)

    def over_batch(self, n: int, shape: Shape) -> tuple[ViewStep, ...]:
        return (Permute((0, *(d + 1 for d in self.dims))),)

    def inverse(self) -> "Permute":
        return Permute(tuple(sorted(range(len(self.dims)), key=self.dims.__getitem__)))

    def replay(self, array: Any, starts: Starts) -> Any:
        return lax.transpose(array, self.dims)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return lax.transpose(grad, self.inverse().dims)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        return TensorGeometry(
            tuple(seen.sizes[d] for d in self.dims), tuple(seen.strides[d] for d in self.dims), seen.offset
        )


@dataclass(frozen=True, slots=True)
class Reshape(ViewStep):
    """The same elements in the same order, with sizes `shape`: view, flatten, squeeze, unsqueeze."""

    shape: Shape

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return self.shape, dtype

    def normalize(self, shape: Shape, dtype: np.dtype) -> "Reshape | None":
        return None if shape == self.shape else self

    def over_batch(self, n: int, shape: Shape) -> tuple[ViewStep, ...]:
        return (Reshape((n, *self.shape)),)

    def replay(self, array: Any, starts: Starts) -> Any:
        return lax.reshape(array, self.shape)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return lax.reshape(grad, shape)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry | None:
        strides = seen.view_strides(self.shape)
        return None if strides is None else TensorGeometry(self.shape, strides, seen.offset)


@dataclass(frozen=True, slots=True)
class Expand(ViewStep):
    """Dimensions of size 1, and new leading ones, repeated up to `shape`."""

    repeats: ClassVar[bool] = True
    shape: Shape

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return self.shape, dtype

    def normalize(self, shape: Shape, dtype: np.dtype) -> "ViewStep | None":
        if shape == self.shape:
            return None
        return Reshape(self.shape) if prod(shape) == prod(self.shape) else self

    def over_batch(self, n: int, shape: Shape) -> tuple[ViewStep, ...]:
        new = (1,) * (len(self.shape) - len(shape))  # the new dimensions go between the batch and the others
        return (Reshape((n, *new, *shape)), Expand((n, *self.shape)))

    def repeated(self, shape: Shape) -> list[int]:
        """Return the dimensions of the result that are not the input's."""
        new = len(self.shape) - len(shape)
        return [d for d, n in enumerate(self.shape) if d < new or shape[d - new] != n]

    def replay(self, array: Any, starts: Starts) -> Any:
        return jnp.broadcast_to(array, self.shape)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        if 0 in self.shape:
            return array
        raise OverlapError(OVERLAP)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return lax.reshape(summed(grad, tuple(self.repeated(shape))), shape)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        strides = [0] * (len(self.shape) - len(seen.sizes)) + list(seen.strides)
        for d in self.repeated(seen.sizes):
            strides[d] = 0
        return TensorGeometry(self.shape, tuple(strides), seen.offset)


@dataclass(frozen=True, slots=True)
class Diagonal(ViewStep):
    """The diagonal `offset` above the main one of `dim1` and `dim2`, as a last dimension."""

    offset: int
    dim1: int
    dim2: int

    def _size(self, shape: Shape) -> int:
        return max(min(shape[self.dim1] - max(-self.offset, 0), shape[self.dim2] - max(self.offset, 0)), 0)

    def over_batch(self, n: int, shape: Shape) -> tuple[ViewStep, ...]:
        return (Diagonal(self.offset, self.dim1 + 1, self.dim2 + 1),)

    def kept(self, ndim: int) -> list[int]:
        """Return the dimensions of the input that are also the result's, in order."""
        return [d for d in range(ndim) if d not in (self.dim1, self.dim2)]

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return tuple(shape[d] for d in self.kept(len(shape))) + (self._size(shape),), dtype

    def replay(self, array: Any, starts: Starts) -> Any:
        return jnp.diagonal(array, self.offset, self.dim1, self.dim2)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        index: list[Any] = [slice(None)] * array.ndim
        along = jnp.arange(self._size(array.shape))
        index[self.dim1] = along + max(-self.offset, 0)
        index[self.dim2] = along + max(self.offset, 0)
        # Indexing puts the diagonal where the two dimensions were if they are neighbours, else in front.
        adjacent = abs(self.dim1 - self.dim2) == 1
        new = jnp.moveaxis(new, -1, min(self.dim1, self.dim2) if adjacent else 0)
        return array.at[tuple(index)].set(new, mode="promise_in_bounds", unique_indices=True)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return self.write_back(jnp.zeros(shape, grad.dtype), grad, starts)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        kept, size = self.kept(len(seen.sizes)), self._size(seen.sizes)
        one, two = seen.strides[self.dim1], seen.strides[self.dim2]
        offset = seen.offset
        if size:  # PyTorch does not change the offset of an empty diagonal
            offset += self.offset * two if self.offset >= 0 else -self.offset * one
        return TensorGeometry(
            tuple(seen.sizes[d] for d in kept) + (size,), tuple(seen.strides[d] for d in kept) + (one + two,), offset
        )


@dataclass(frozen=True, slots=True)
class Unfold(ViewStep):
    """Windows of `size` elements, `step` apart, along `dim`; the place within the window is a last dimension."""

    repeats: ClassVar[bool] = True
    dim: int
    size: int
    step: int

    def count(self, shape: Shape) -> int:
        return (shape[self.dim] - self.size) // self.step + 1

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return shape[: self.dim] + (self.count(shape),) + shape[self.dim + 1 :] + (self.size,), dtype

    def normalize(self, shape: Shape, dtype: np.dtype) -> "Unfold":
        # The step of a single window means nothing: take the smallest for which it stays single.
        step = shape[self.dim] - self.size + 1 if self.count(shape) == 1 else self.step
        return self if step == self.step else Unfold(self.dim, self.size, step)

    def over_batch(self, n: int, shape: Shape) -> tuple[ViewStep, ...]:
        return (Unfold(self.dim + 1, self.size, self.step),)

    def _index(self, shape: Shape) -> tuple[Any, ...]:
        windows = jnp.arange(self.count(shape))[:, None] * self.step + jnp.arange(self.size)
        return (slice(None),) * self.dim + (windows,)

    def replay(self, array: Any, starts: Starts) -> Any:
        if few(self.size, self.step):
            windows = read_windows(jnp.moveaxis(array, self.dim, 0), self.count(array.shape), self.size, self.step)
            return jnp.moveaxis(windows, (0, 1), (self.dim, -1))
        windows = array.at[self._index(array.shape)].get(mode="promise_in_bounds")
        return jnp.moveaxis(windows, self.dim + 1, -1)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        if self.step < self.size and self.count(array.shape) > 1:
            raise OverlapError(OVERLAP)
        if few(self.size, self.step):
            new, array = jnp.moveaxis(new, (self.dim, -1), (0, 1)), jnp.moveaxis(array, self.dim, 0)
            return jnp.moveaxis(write_windows(array, new, self.step), 0, self.dim)
        new = jnp.moveaxis(new, -1, self.dim + 1)
        return array.at[self._index(array.shape)].set(new, mode="promise_in_bounds", unique_indices=True)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        if few(self.size, self.step):
            windows = jnp.moveaxis(grad, (self.dim, -1), (0, 1))
            length = (shape[self.dim],)
            return jnp.moveaxis(add_windows(windows, length, self.step), 0, self.dim)
        grad = jnp.moveaxis(grad, -1, self.dim + 1)
        wide = widen(grad)
        whole = jnp.zeros(shape, wide.dtype).at[self._index(shape)].add(wide, mode="promise_in_bounds")
        return whole.astype(grad.dtype)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry:
        d, strides = self.dim, seen.strides
        sizes, _ = self.result(seen.sizes, dtype)
        return TensorGeometry(
            sizes, strides[:d] + (strides[d] * self.step,) + strides[d + 1 :] + (strides[d],), seen.offset
        )


@dataclass(frozen=True, slots=True)
class AsStrided(ViewStep):
    """Sizes, strides and offset in the row-major elements of the input, which for a tensor's own chain is the root.

    Its programs are the programs of the slices and transposes of `lowered`; if there are none, a gather and a scatter.
    """

    repeats: ClassVar[bool] = True
    sizes: Shape
    strides: Shape
    offset: int

    @property
    def own_geometry(self) -> TensorGeometry:
        return TensorGeometry(self.sizes, self.strides, self.offset)

    def result(self, shape: Shape, dtype: np.dtype) -> tuple[Shape, np.dtype]:
        return self.sizes, dtype

    def normalize(self, shape: Shape, dtype: np.dtype) -> "AsStrided | None":
        whole = shape == self.sizes and not self.offset and self.own_geometry.is_contiguous()
        return None if whole else self

    def over_batch(self, n: int, shape: Shape) -> tuple[ViewStep, ...]:
        return (AsStrided((n, *self.sizes), (prod(shape), *self.strides), self.offset),)

    def lowered(self, shape: Shape) -> list[ViewStep] | None:
        """Return slices and transposes that read the same from a row-major input of `shape`; None for a gather."""
        plan = strided_plan(shape, self.own_geometry)
        if plan is None:
            return None
        return [
            Reshape(plan.shape),
            Slice(plan.starts, plan.sizes, plan.steps),
            Reshape(plan.kept),
            Permute(plan.order),
            Reshape(plan.units),
            Expand(self.sizes),
        ]

    def starts(self, shape: Shape) -> Shape:
        return (self.offset,) if self.own_geometry.numel else ()

    def program_key(self) -> ViewStep:
        return AsStrided(self.sizes, self.strides, 0)

    def replay(self, array: Any, starts: Starts) -> Any:
        return gather_strided(array, self.own_geometry, starts[0] if starts else 0)

    def write_back(self, array: Any, new: Any, starts: Starts) -> Any:
        return scatter_strided(array, self.own_geometry, starts[0] if starts else 0, new)

    def transpose(self, grad: Any, shape: Shape, dtype: np.dtype, starts: Starts) -> Any:
        return scatter_add_strided(jnp.zeros(shape, grad.dtype), self.own_geometry, starts[0] if starts else 0, grad)

    def geometry(self, seen: TensorGeometry, dtype: np.dtype) -> TensorGeometry | None:
        if seen.is_contiguous():
            return TensorGeometry(self.sizes, self.strides, self.offset + seen.offset)
        geometry: TensorGeometry | None = seen
        for step in self.lowered(seen.sizes) or [None]:
            if step is None or geometry is None:
                return None
            geometry = step.geometry(geometry, dtype)
        return geometry
