"""Reads and writes the windows of `Tensor.unfold` along the first dimension by slices, not by gather and scatter.

    4 windows of 3 elements, step 2        blocks of 2      0 1 | 2 3 | 4 5 | 6 7 | 8 -
    0 1 2   2 3 4   4 5 6   6 7 8    =     the first 4 beside the last 4, cut to 3 elements

Invariant: a window is ceil(size / step) blocks, so there are that many slices, whatever the number of windows.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

from ..execution.programs.half import widen
from .geometry import Shape
from .platforms import forms

_NARROW = 8  # blocks smaller than this are not good tiles: the elements of the windows are sliced one by one


def few(size: int, step: int) -> bool:
    """Return True if slices replace a gather of windows of `size` elements, `step` apart, on this platform."""
    return 0 < (size if step < _NARROW else -(-size // step)) <= forms().blocks


def _fit(array: Any, n: int, axis: int = 0) -> Any:
    """Return the array cut or padded with zeros to `n` in a dimension."""
    if array.shape[axis] >= n:
        return lax.slice_in_dim(array, 0, n, axis=axis)
    more = n - array.shape[axis]
    return lax.pad(array, jnp.zeros((), array.dtype), [(0, more if d == axis else 0, 0) for d in range(array.ndim)])


def read_windows(array: Any, count: int, size: int, step: int) -> Any:
    """Return `count` windows of the first dimension, as (count, size, ...)."""
    if step < _NARROW:
        extent = (count - 1) * step + 1
        return jnp.stack([lax.slice_in_dim(array, j, j + extent, step) for j in range(size)], axis=1)
    slices = -(-size // step)
    blocks = _fit(array, (count + slices - 1) * step).reshape(count + slices - 1, step, *array.shape[1:])
    return lax.concatenate([blocks[j : j + count] for j in range(slices)], 1)[:, :size]


def add_windows(windows: Any, shape: Shape, step: int) -> Any:
    """Return zeros of `shape` to which the windows, (count, size, ...), are added where they were read."""
    count, size, *rest = windows.shape
    wide = widen(windows)
    slices = -(-size // step)
    wide = _fit(wide, slices * step, 1)
    total: Any = None
    for j in range(slices):
        edges = [(j, slices - 1 - j, 0)] + [(0, 0, 0)] * (wide.ndim - 1)
        part = lax.pad(wide[:, j * step : (j + 1) * step], jnp.zeros((), wide.dtype), edges)
        total = part if total is None else total + part
    total = total.reshape((count + slices - 1) * step, *rest)
    return _fit(total, shape[0]).astype(windows.dtype)


def write_windows(array: Any, windows: Any, step: int) -> Any:
    """Return the array with its windows, which do not overlap, replaced."""
    count, size, *rest = windows.shape
    extent, most = array.shape[0], count * step
    new = _fit(_fit(windows, step, 1).reshape(most, *rest), extent)
    place = lax.broadcasted_iota(jnp.int32, array.shape, 0)
    return jnp.where((place % step < size) & (place < most), new, array)
