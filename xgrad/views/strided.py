"""Reads and writes a view, given by sizes, strides and offset, in a JAX array: by slices, else by gather and scatter.

    sizes (2, 4), strides (3, 6), offset 1 of a root (4, 6) = root[:, 1:5:3].T: lowered to a slice and a transpose

Invariant: `read_strided` and `write_strided` raise, before anything is computed, for a geometry that leaves the root;
the gathers and scatters leave this check to their caller.
PyTorch's counterparts: at::as_strided, as_strided_backward (torch/csrc/autograd/FunctionsManual.cpp).
"""

import functools
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..base.dtypes import x64_enabled
from ..base.jax_compat import Tracer
from ..errors import OverlapError
from ..execution.programs.half import summed, widen
from .geometry import OVERLAP, Shape, TensorGeometry, check_bounds, contiguous_strides
from .platforms import ROW, forms
from .windows import add_windows, few, read_windows

# ---------------------------------------------------------------- slices with starts as operands


def _extents(sizes: Shape, steps: Shape) -> Shape:
    return tuple((n - 1) * k + 1 if n else 0 for n, k in zip(sizes, steps))


def slice_read(array: Any, starts: Sequence[Any], sizes: Shape, steps: Shape) -> Any:
    """Return `array[start : ... : step]` in each dimension; `starts` may be traced, and must be in bounds."""
    extents = _extents(sizes, steps)
    if extents != array.shape:
        if not any(isinstance(start, jax.Array) for start in starts):
            return lax.slice(array, starts, [start + n for start, n in zip(starts, extents)], steps)
        given = [start for start in starts if isinstance(start, Tracer)]
        array = lax.dynamic_slice(array, starts, extents, allow_negative_indices=False)
        if given and forms().guarded:
            array = jnp.where(given[0] >= 0, array, jnp.zeros((), array.dtype))
    if any(k > 1 for k in steps):
        array = lax.slice(array, (0,) * array.ndim, extents, steps)
    return array


def _repeat(new: Any, times: int, dim: int) -> Any:
    """Return each element of a dimension several times; a long row goes by columns, which compiles in 1 s."""
    n = new.shape[dim]
    if new.ndim > 1 or n <= ROW:
        shape = (*new.shape[: dim + 1], times, *new.shape[dim + 1 :])
        return jnp.broadcast_to(jnp.expand_dims(new, dim + 1), shape).reshape(
            *shape[:dim], n * times, *shape[dim + 2 :]
        )
    rows = -(-n // ROW)
    columns = jnp.pad(new, (0, rows * ROW - n)).reshape(rows, ROW).T
    many = jnp.broadcast_to(columns[:, None], (ROW, times, rows)).reshape(ROW * times, rows)
    return many.T.reshape(-1)[: n * times]


def _spread(new: Any, starts: Sequence[Any], steps: Shape) -> Any:
    """Return the elements `steps` apart, with zeros between them."""
    # XLA's partitioner makes programs with wrong shapes of interior padding that goes to a constant place of an array
    # on several devices, where the verifier refuses them: so there elements are repeated, and masked.
    repeats = [
        k > 1 and (not isinstance(start, Tracer) or (d == new.ndim - 1 and forms().repeats))
        for d, (k, start) in enumerate(zip(steps, starts))
    ]
    zero = jnp.zeros((), new.dtype)
    new = lax.pad(new, zero, [(0, 0, 0 if repeated else k - 1) for k, repeated in zip(steps, repeats)])
    for d, (k, repeated) in enumerate(zip(steps, repeats)):
        if repeated:
            new = lax.slice_in_dim(_repeat(new, k, d), 0, (new.shape[d] - 1) * k + 1, axis=d)
            new = jnp.where(lax.broadcasted_iota(np.int32, new.shape, d) % k == 0, new, zero)
    return new


def slice_write(array: Any, new: Any, starts: Sequence[Any], sizes: Shape, steps: Shape) -> Any:
    """Return `array` with the slice replaced by `new`."""
    if 0 in sizes:
        return array
    extents = _extents(sizes, steps)
    if any(k > 1 for k in steps):
        # Blend within the window, so that the write stays one dynamic_update_slice.
        window = slice_read(array, starts, extents, (1,) * array.ndim)
        hit = True
        for d, k in enumerate(steps):
            if k > 1:
                hit &= lax.broadcasted_iota(np.int32, extents, d) % k == 0
        new = jnp.where(hit, _spread(new, starts, steps), window)
    if extents == array.shape:
        return new
    return lax.dynamic_update_slice(array, new, starts, allow_negative_indices=False)


def slice_transpose(grad: Any, shape: Shape, starts: Sequence[Any], sizes: Shape, steps: Shape) -> Any:
    """Return zeros of `shape` with the slice replaced by `grad`."""
    if 0 in sizes:
        return jnp.zeros(shape, grad.dtype)
    if any(k > 1 for k in steps):
        grad = _spread(grad, starts, steps)
    if grad.shape == shape:
        return grad
    return lax.dynamic_update_slice(jnp.zeros(shape, grad.dtype), grad, starts, allow_negative_indices=False)


# ---------------------------------------------------------------- strides lowered to slices, else to indices


class StridedPlan(NamedTuple):
    """Reshape to `shape`, slice, reshape to `kept` (drops sizes of 1), transpose by `order`, reshape to `units`.

    `units` is the view's sizes with 1 for dimensions of stride 0, to be broadcast.
    """

    shape: Shape
    starts: Shape
    sizes: Shape
    steps: Shape
    kept: Shape
    order: Shape
    units: Shape


@functools.lru_cache(maxsize=4096)
def strided_plan(shape: Shape, geometry: TensorGeometry) -> StridedPlan | None:
    """Return how slice and transpose read `geometry` from a row-major array of `shape`; None if a gather is needed.

    The dimensions to slice in are either the array's own, or those in which the view's strides count: with strides 12
    and 3, a flat array of 24 elements is a (2, 4, 3) one.
    """
    numel = prod(shape)
    if geometry.numel == 0 or numel == 0:
        return None
    strides = sorted({s for n, s in zip(geometry.sizes, geometry.strides) if n > 1 and s > 0}, reverse=True)
    plan = _match(shape, geometry)
    if plan is None:
        bounds = [numel, *strides]
        if bounds[-1] != 1:
            bounds.append(1)
        if all(outer % inner == 0 for outer, inner in pairwise(bounds)):
            plan = _match(tuple(outer // inner for outer, inner in pairwise(bounds)), geometry)
    return plan


def _match(shape: Shape, geometry: TensorGeometry) -> StridedPlan | None:
    own = contiguous_strides(shape)
    starts = [geometry.offset // s % n for n, s in zip(shape, own)]
    sizes, steps = [1] * len(shape), [1] * len(shape)
    chosen: list[int] = []
    for size, stride in zip(geometry.sizes, geometry.strides):
        if size == 1 or stride == 0:
            continue
        d = next((d for d, (n, s) in enumerate(zip(shape, own)) if s <= stride < s * n), None)
        if d is None or stride % own[d] or d in chosen or starts[d] + (size - 1) * (stride // own[d]) >= shape[d]:
            return None
        chosen.append(d)
        sizes[d], steps[d] = size, stride // own[d]
    kept = sorted(chosen)
    return StridedPlan(
        shape,
        tuple(starts),
        tuple(sizes),
        tuple(steps),
        tuple(sizes[d] for d in kept),
        tuple(kept.index(d) for d in chosen),
        tuple(1 if s == 0 else n for n, s in zip(geometry.sizes, geometry.strides)),
    )


def strided_indices(geometry: TensorGeometry, offset: Any, numel: int) -> Any:
    """Return the flat index of each element, made of iotas; `offset` may be traced."""
    dtype = np.int32 if numel <= np.iinfo(np.int32).max else np.int64
    if dtype == np.int64 and not x64_enabled():
        raise RuntimeError(
            f"as_strided on {numel} elements with strides {list(geometry.strides)} needs 64-bit indices: set "
            "JAX_ENABLE_X64=1, or use slices and transposes, which do not"
        )
    index = jnp.full(geometry.sizes, offset, dtype)
    for d, (size, stride) in enumerate(zip(geometry.sizes, geometry.strides)):
        if size > 1 and stride:
            index += lax.broadcasted_iota(dtype, geometry.sizes, d) * np.asarray(stride, dtype)
    return index


class _Windows(NamedTuple):
    """A view as windows of windows of a run of the flat root: (count, size, step) of each, the widest steps first."""

    levels: tuple[Shape, ...]
    extent: int  # elements from the first to the last
    order: Shape  # the view's dimensions, of those that count
    units: Shape  # its sizes, with 1 for strides of 0


@functools.lru_cache(maxsize=4096)
def _windows_of(geometry: TensorGeometry) -> _Windows:
    dims = [d for d, (n, s) in enumerate(zip(geometry.sizes, geometry.strides)) if n > 1 and s > 0]
    found = sorted(dims, key=lambda d: -geometry.strides[d])
    spans = [1]  # from the first to the last element of a window of the inner dimensions
    for d in reversed(found):
        spans.append(spans[-1] + (geometry.sizes[d] - 1) * geometry.strides[d])
    spans.reverse()
    levels = tuple((geometry.sizes[d], span, geometry.strides[d]) for d, span in zip(found, spans[1:]))
    units = tuple(1 if s == 0 else n for n, s in zip(geometry.sizes, geometry.strides))
    return _Windows(levels, spans[0], tuple(found.index(d) for d in dims), units)


def _by_windows(geometry: TensorGeometry) -> _Windows | None:
    """Return the windows whose slices replace a gather on this platform; None if they are too many."""
    if not forms().blocks:
        return None
    found = _windows_of(geometry)
    whole = prod(n for n, _, _ in found.levels) * 4 + found.extent
    held, outer = True, 1
    for count, size, step in found.levels:
        outer *= count
        held = held and few(size, step) and outer * size <= 4 * whole
    return found if held else None


def _read_levels(run: Any, levels: tuple[Shape, ...]) -> Any:
    """Return the elements of the windows of a run, a dimension for each level."""
    for depth, (count, size, step) in enumerate(levels):
        run = jnp.moveaxis(run, -1, 0)  # the run of each window so far is the last dimension
        run = jnp.moveaxis(read_windows(run, count, size, step), (0, 1), (depth, -1))
    return run.reshape(run.shape[:-1])


def gather_strided(array: Any, geometry: TensorGeometry, offset: Any) -> Any:
    """Read by a gather, with `offset` in place of the geometry's own."""
    if geometry.numel == 0:
        return jnp.zeros(geometry.sizes, array.dtype)
    if (found := _by_windows(geometry)) is not None:
        run = slice_read(array.reshape(-1), (offset,), (found.extent,), (1,))
        part = lax.transpose(_read_levels(run, found.levels), found.order).reshape(found.units)
        return jnp.broadcast_to(part, geometry.sizes)
    return array.reshape(-1).at[strided_indices(geometry, offset, array.size)].get(mode="promise_in_bounds")


def scatter_strided(array: Any, geometry: TensorGeometry, offset: Any, new: Any) -> Any:
    """Write by a scatter.  Raises `OverlapError` for a geometry that overlaps itself."""
    if geometry.overlaps():
        raise OverlapError(OVERLAP)
    if geometry.numel == 0:
        return array
    index = strided_indices(geometry, offset, array.size)
    flat = array.reshape(-1).at[index].set(new, mode="promise_in_bounds", unique_indices=True)
    return flat.reshape(array.shape)


def scatter_add_strided(array: Any, geometry: TensorGeometry, offset: Any, new: Any) -> Any:
    if geometry.numel == 0:
        return array
    index = strided_indices(geometry, offset, array.size)
    if (found := _by_windows(geometry)) is not None:
        repeated = tuple(d for d, (unit, n) in enumerate(zip(found.units, geometry.sizes)) if unit != n)
        part = widen(summed(new, repeated, keepdims=True) if repeated else new)
        part = part.reshape(tuple(found.levels[i][0] for i in found.order))
        part = lax.transpose(part, np.argsort(found.order).tolist())[..., None]
        for depth, (_, size, step) in reversed(list(enumerate(found.levels))):
            # Each dimension and the run within it become the run of the dimension around it.
            part = jnp.moveaxis(part, (depth, -1), (0, 1))
            part = jnp.moveaxis(add_windows(part, ((part.shape[0] - 1) * step + size,), step), 0, -1)
        run = slice_read(array.reshape(-1), (offset,), (found.extent,), (1,))
        total = (widen(run) + part).astype(array.dtype)
        return slice_write(array.reshape(-1), total, (offset,), (found.extent,), (1,)).reshape(array.shape)
    unique = not geometry.overlaps()
    flat, new = (array, new) if unique else (widen(array), widen(new))
    flat = flat.reshape(-1).at[index].add(new, mode="promise_in_bounds", unique_indices=unique)
    return flat.reshape(array.shape).astype(array.dtype)


def read_strided(array: Any, geometry: TensorGeometry) -> Any:
    """Return the view of a root array that `geometry` describes.

    Raises `RuntimeError` if it has elements outside of the root.

    >>> import jax.numpy as jnp
    >>> read_strided(jnp.arange(6), TensorGeometry((3, 2), (1, 3))).tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    check_bounds(geometry, array.size, array.dtype.itemsize)
    plan = strided_plan(array.shape, geometry)
    if plan is None:
        return gather_strided(array, geometry, geometry.offset)
    part = slice_read(array.reshape(plan.shape), plan.starts, plan.sizes, plan.steps)
    part = part.reshape(plan.kept).transpose(plan.order).reshape(plan.units)
    return jnp.broadcast_to(part, geometry.sizes)


def write_strided(array: Any, geometry: TensorGeometry, new: Any) -> Any:
    """Return the root array with the elements of the view replaced by `new`, of the view's shape.

    Raises `OverlapError` if two indices are the same element, `RuntimeError` if one is outside of the root.
    """
    check_bounds(geometry, array.size, array.dtype.itemsize)
    if geometry.overlaps():
        raise OverlapError(OVERLAP)
    plan = strided_plan(array.shape, geometry)
    if plan is None:
        return scatter_strided(array, geometry, geometry.offset, new)
    part = _unplan(plan, new)
    root = slice_write(array.reshape(plan.shape), part, plan.starts, plan.sizes, plan.steps)
    return root.reshape(array.shape)


def _unplan(plan: StridedPlan, new: Any) -> Any:
    transposed = new.reshape(tuple(plan.kept[i] for i in plan.order))
    return transposed.transpose(np.argsort(plan.order).tolist()).reshape(plan.sizes)


def as_strided_scatter(base: Any, base_geometry: TensorGeometry, view_geometry: TensorGeometry, new: Any) -> Any:
    """Return `base`, whose geometry is `base_geometry`, with the elements of `view_geometry` replaced by `new`.

    Elements of the view that are not in the base are dropped.  Raises `OverlapError` if either overlaps itself.
    """
    if base_geometry.overlaps() or view_geometry.overlaps():
        raise OverlapError(OVERLAP)
    spans = [g.span() for g in (base_geometry, view_geometry)]
    low = min(first for first, _ in spans)
    numel = max(1, max(last for _, last in spans) + 1 - low)
    inner, outer = (TensorGeometry(g.sizes, g.strides, g.offset - low) for g in (base_geometry, view_geometry))
    storage = write_strided(jnp.zeros(numel, base.dtype), inner, base)
    return read_strided(write_strided(storage, outer, new), inner)
