"""JAX's gather and scatter by NumPy, for by_numpy.py: one slice after another, as XLA's documentation defines them."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


def _starts(indices: Any, numbers: Any, places: tuple, shape: tuple, sizes: tuple, mode: Any) -> Iterator:
    """(batch index, slices of the operand, or None for a slice that is not within it), for each row of `indices`."""
    clip = "CLIP" in str(mode) or "PROMISE" in str(mode)
    batching = dict(zip(numbers.operand_batching_dims, getattr(numbers, _BATCHING[type(numbers).__name__])))
    for at in np.ndindex(indices.shape[:-1]):
        start = [0] * len(shape)
        for i, dim in enumerate(places):
            start[dim] = int(indices[at][i])
        for dim, of_indices in batching.items():
            start[dim] = at[of_indices]
        if clip:
            start = [min(max(s, 0), n - m) for s, n, m in zip(start, shape, sizes, strict=True)]
        inside = all(0 <= s <= n - m for s, n, m in zip(start, shape, sizes, strict=True))
        yield at, tuple(slice(s, s + m) for s, m in zip(start, sizes, strict=True)) if inside else None


_BATCHING = {
    "GatherDimensionNumbers": "start_indices_batching_dims",
    "ScatterDimensionNumbers": "scatter_indices_batching_dims",
}


def _place(at: tuple, window: tuple, ndim: int) -> tuple:
    """The index of a slice in an array of which the dimensions `window` are whole."""
    rest = iter(at)
    return tuple(slice(None) if d in window else next(rest) for d in range(ndim))


def _gather(
    x: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: tuple, mode: Any, fill_value: Any, **_: Any
) -> Any:
    d = dimension_numbers
    dropped = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    window = [n for i, n in enumerate(slice_sizes) if i not in dropped]
    ndim = indices.ndim - 1 + len(window)
    batch, inner = iter(indices.shape[:-1]), iter(window)
    shape = [next(inner) if i in d.offset_dims else next(batch) for i in range(ndim)]
    if fill_value is None:
        kind = x.dtype.kind
        fill_value = np.nan if kind in "fcV" else True if kind == "b" else 0
        if kind in "iu":
            fill_value = np.iinfo(x.dtype).min if kind == "i" else np.iinfo(x.dtype).max
    out = np.full(shape, fill_value, x.dtype)
    for at, slices in _starts(indices, d, d.start_index_map, x.shape, slice_sizes, mode):
        if slices is not None:
            out[_place(at, d.offset_dims, ndim)] = x[slices].reshape(window)
    return out


def _scatter(combine: Callable) -> Callable:
    def run(x: Any, indices: Any, updates: Any, *, dimension_numbers: Any, mode: Any, **_: Any) -> Any:
        d = dimension_numbers
        dropped = {*d.inserted_window_dims, *d.operand_batching_dims}
        window = iter([updates.shape[i] for i in d.update_window_dims])
        sizes = tuple(1 if i in dropped else next(window) for i in range(x.ndim))
        out = np.array(x)
        for at, slices in _starts(indices, d, d.scatter_dims_to_operand_dims, x.shape, sizes, mode):
            if slices is not None:
                new = updates[_place(at, d.update_window_dims, updates.ndim)].reshape(sizes)
                out[slices] = combine(out[slices], new)
        return out

    return run


INDEXING: dict[str, Callable] = {
    "gather": _gather, "scatter": _scatter(lambda old, new: new), "scatter-add": _scatter(np.add),
    "scatter-mul": _scatter(np.multiply), "scatter-min": _scatter(np.minimum), "scatter-max": _scatter(np.maximum),
}  # fmt: skip
