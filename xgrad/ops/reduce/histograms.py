"""histc, histogram, histogramdd, bincount: count elements into bins.

Only bincount has a derivative, in its weights; backward through a histogram is an error.  An element on an inner edge
belongs to the bin on its right, one on the last edge to the last bin; elements outside, and NaN, are not counted.
(PyTorch: aten/src/ATen/native/Histogram.cpp and SummaryOps.cpp.)
"""

import builtins
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import return_types
from ...base import dtypes
from ...base.limits import checked
from ...dispatch.argument_kinds import require_int, require_no_grad, require_number
from ...dispatch.call import call
from ...dispatch.declare import composite, internal, operator
from ...dispatch.out import write_out
from ...dispatch.promotion import promote_float, refuse_complex, require_real
from ...dispatch.samples import positive, real, rising, sample, whole
from ...tensor import Tensor
from ...views.storage import Tracer, value_needed
from ..create.factories import spaced
from ..index.index_checks import on_host
from ..pointwise.ends import quotient

hidden: dict[str, Any] = dict(function=False, method=False, out=False, differentiable=False)
without_derivative: Any = hidden | {
    "differentiable": True, "node": "torch::autograd::NotImplemented", "missing": "aten::histogram",
}  # fmt: skip


def _counted(places: Any, inside: Any, weights: Any, n: int, dtype: Any) -> Any:
    """Sum the weights in each of `n` places; elements that are not `inside` go to the place n, which is dropped."""
    places = jnp.where(inside, places, n)
    return jnp.zeros(n, dtype).at[places].add(jnp.asarray(weights, dtype), mode="drop")


# -- one dimension, bins of one width ---------------------------------------------------------------------------------


@operator("histc", **hidden, samples=(sample(real(2, 3), -1.5, 1.5, bins=4), sample(real(0, 3), -1.5, 1.5, bins=4)))
def _histc(self, low, high, *, bins):
    require_real(self, "histogram_cpu")
    (x,) = promote_float(self.reshape(-1))  # integers are counted as well, as PyTorch does on CUDA
    low, high = low.astype(x.dtype), high.astype(x.dtype)
    if self.size:
        unset = low == high
        low, high = jnp.where(unset, x.min(), low), jnp.where(unset, x.max(), high)
    one = jnp.ones((), x.dtype)
    low, high = jnp.where(low == high, low - one, low), jnp.where(low == high, high + one, high)
    inside = (x >= low) & (x <= high)
    place = quotient((x - low) * bins, high - low).astype(jnp.int32)
    return _counted(jnp.clip(place, 0, bins - 1), inside, 1, bins, self.dtype)


@composite
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """The numbers of elements in `bins` bins of one width between `min` and `max`, in the dtype of `input`.

    If `min` equals `max`, the bins reach from the smallest to the largest element.
    Raises `RuntimeError` for bounds that are not finite or in the wrong order.

    >>> import xgrad
    >>> xgrad.tensor([1.0, 2.0, 1.0]).histc(4, 0, 3)
    tensor([0., 2., 1., 0.])
    """
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    require_number("histc", min=min, max=max)
    require_no_grad("histc", min=min, max=max)
    low, high = (float(v) for v in (min, max))
    if low == high and (values := on_host(input)) is not None and values.size and values.dtype.kind in "fV":
        low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    result = call(_histc.operator, (input, min, max), (bins,))
    return result if out is None else write_out("histc", result, out)


# -- several dimensions, any edges ------------------------------------------------------------------------------------


@operator(
    "histogramdd",
    **without_derivative,
    samples=(
        sample(real(5, 2), positive(5), rising(4), rising(3), density=False),
        sample(real(5, 1), None, rising(4), density=True),
    ),
)
def _histogramdd(self, weight, *edges, density):
    """The histogram of points (..., n) over n sequences of edges."""
    refuse_complex(self, "histogramdd")
    points = self.reshape(-1, len(edges))
    shape = tuple(e.shape[0] - 1 for e in edges)
    place, inside = jnp.zeros(points.shape[0], jnp.int32), jnp.ones(points.shape[0], bool)
    for x, e, n in zip(points.T, edges, shape):
        here = jnp.minimum(jnp.searchsorted(e, x, side="right") - 1, n - 1)
        inside &= (x >= e[0]) & (x <= e[-1])
        place = place * n + here.astype(jnp.int32)
    weights = jnp.ones((), self.dtype) if weight is None else weight.reshape(-1)
    found = _counted(place, inside, weights, math.prod(shape), self.dtype).reshape(shape)
    if density:
        found = found / found.sum()
        for d, e in enumerate(edges):
            found = found / jnp.diff(e).reshape([-1 if i == d else 1 for i in range(len(edges))])
    return found.astype(self.dtype)


@operator(
    "_histogramdd_bin_edges", **without_derivative, samples=(sample(real(5, 2), -2.0, 2.0, -1.0, 1.0, bins=(3, 2)),)
)
def _edges(self, *bounds, bins):
    """Edges of bins of one width between `bounds` (low, high, low, high, ...), or else the points' extrema."""
    refuse_complex(self, "histogramdd")
    points = self.reshape(-1, len(bins))
    found = []
    for i, n in enumerate(bins):
        if bounds:
            low, high = (b.astype(self.dtype) for b in bounds[2 * i : 2 * i + 2])
        elif self.size:
            low, high = points[:, i].min(), points[:, i].max()
        else:
            low, high = jnp.zeros((), self.dtype), jnp.ones((), self.dtype)
        half = jnp.where(low == high, 0.5, 0).astype(self.dtype)
        found.append(spaced(low - half, high + half, n + 1, self.dtype).astype(self.dtype))
    return tuple(found)


def _check_outer(input: Tensor, bins: int, range: Any) -> None:
    """Raise for outer edges that are not finite or in the wrong order; the edges of the data are checked if
    readable."""
    if range is not None:
        if len(range) != 2 * bins:
            raise RuntimeError(
                f"torch.histogramdd: for a {bins}-dimensional histogram range should have {2 * bins} elements, but got "
                f"{len(range)}"
            )
        outer = [(float(range[2 * d]), float(range[2 * d + 1])) for d in builtins.range(bins)]
    elif (values := on_host(input)) is not None and values.size:
        outer = [(float(c.min()), float(c.max())) for c in values.reshape(-1, bins).T]
    else:
        return
    for dim, (low, high) in enumerate(outer):
        if not (math.isfinite(low) and math.isfinite(high)):
            raise RuntimeError(f"torch.histogramdd: dimension {dim}'s range [{low:g}, {high:g}] is not finite")
        if low > high:
            raise RuntimeError(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {dim}"
            )


def _check_points(input: Tensor, bins: Sequence, weight: Tensor | None) -> None:
    if input.ndim < 2:
        raise RuntimeError(f"torch.histogramdd: input tensor should have at least 2 dimensions, but got {input.ndim}")
    if input.dtype not in dtypes.FLOATS:
        raise NotImplementedError(f"\"histogram_cpu\" not implemented for '{dtypes.torch_name(input._dtype)}'")
    n = input.shape[-1]
    if len(bins) != n and not isinstance(bins[0] if bins else 1, Tensor):
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    if len(bins) != n:
        raise RuntimeError(
            f"torch.histogramdd: expected {n} sequences of bin edges for a {n}-dimensional histogram but got "
            f"{len(bins)}"
        )
    for dim, b in enumerate(bins):
        if not isinstance(b, Tensor):
            if b <= 0:
                raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {b} for dimension {dim}")
            continue
        if b.dtype != input.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
                f"{input.dtype.name} and bins for dimension {dim} with dtype {b.dtype.name}"
            )
        if b.ndim != 1:
            raise RuntimeError(
                f"torch.histogramdd: bins tensor should have one dimension, but got {b.ndim} dimensions in the bins "
                f"tensor for dimension {dim}"
            )
        if b.shape[0] < 2:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {b.shape[0] - 1} for dimension {dim}")
    if weight is None:
        return
    if weight.dtype != input.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
            f"dtype, but got input({input.dtype.name}), and weight({weight.dtype.name})"
        )
    if tuple(weight.shape or (1,)) != tuple(input.shape[:-1]):
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
            f"excluding its innermost dimension, but got input with shape {list(input.shape)} and weight with shape "
            f"{list(weight.shape)}"
        )


def _histogram_of(input: Tensor, bins: Sequence, range: Any, weight: Tensor | None, density: bool) -> tuple:
    _check_points(input, bins, weight)
    if bins and isinstance(bins[0], Tensor):
        if range is not None:
            raise TypeError("histogram: `range` goes with numbers of bins, not with edges")
        edges: Any = tuple(b.clone() for b in bins)
    else:
        _check_outer(input, len(bins), range)
        edges = call(_edges.operator, (input, *(range or ())), (tuple(bins),))
    return call(_histogramdd.operator, (input, weight, *edges), (bool(density),)), edges


@composite(method=False)
def histogramdd(
    input: Tensor, bins: Any, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    """The named tuple (hist, bin_edges) of points (..., n): how many lie in each cell of an n-dimensional grid.

    `bins`: the number of cells in each dimension (or one number for all), of one width between the bounds in `range`
    (low, high, low, high, ...; by default the bounds of the points); or a vector of edges for each dimension.
    `weight`: what each point counts; `density`: divided by the total and by the cells' volumes.
    """
    if not isinstance(bins, Sequence):
        require_int("histogramdd", bins=bins)
        bins = [int(bins)] * input.shape[-1]
    return return_types.histogramdd(*_histogram_of(input, tuple(bins), range, weight, density))


@composite
def histogram(
    input: Tensor, bins: Any, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False, out: Any = None,
) -> Any:  # fmt: skip
    """The named tuple (hist, bin_edges): how many elements lie in each bin; see `histogramdd`.

    `bins`: their number, of one width between the two bounds in `range` (by default of the data), or the vector of
    edges.

    >>> import xgrad
    >>> xgrad.histogram(xgrad.tensor([1.0, 2.0, 1.0]), 4, range=(0.0, 3.0)).hist
    tensor([0., 2., 1., 0.])
    """
    if weight is not None:
        if weight.shape != input.shape:
            raise RuntimeError(
                "torch.histogram: if weight tensor is provided it should have the same shape as the input tensor, but "
                f"got input with shape {list(input.shape)} and weight with shape {list(weight.shape)}"
            )
        weight = weight.reshape(-1)
    if not isinstance(bins, Tensor):
        require_int("histogram", bins=bins)
    hist, (edges,) = _histogram_of(input.reshape(-1, 1), (bins,), range, weight, density)
    if out is None:
        return return_types.histogram(hist, edges)
    return return_types.histogram(*(write_out("histogram", r, o) for r, o in zip((hist, edges), out, strict=True)))


# -- the integers -----------------------------------------------------------------------------------------------------


@internal(
    "bincount",
    samples=(sample(whole(0, 4, 5), None, size=4, dtype=None), sample(whole(0, 4, 5), positive(5), size=4, dtype=None)),
)
def _bincount(self, weights, *, size, dtype):
    return _counted(self, self >= 0, 1 if weights is None else weights, size, dtype)


_bincount.derivative(weights=lambda grad, self: grad[self])


@jax.jit
@checked
def _extremes(x: Any) -> Any:
    return jnp.stack([x.min(), x.max()])


@composite
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count each of the integers 0, 1, ... in a vector; with `weights`, sum the weights at its places.

    The size depends on values (it is the largest, and at least `minlength`), so not under a trace: add ones to
    `xgrad.zeros(size)` by `scatter_add` there.  Raises `RuntimeError` for negative numbers.

    >>> import xgrad
    >>> xgrad.tensor([0, 2, 2]).bincount()
    tensor([1, 0, 2])
    """
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if input.dtype not in dtypes.INTEGERS:
        raise NotImplementedError(f"\"bincount_cpu\" not implemented for '{dtypes.torch_name(input._dtype)}'")
    if input.ndim != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and input.shape[0] and (weights.ndim != 1 or weights.shape != input.shape):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if input._level is not None:
        raise RuntimeError(
            "vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
            "bincount, whose result's shape depends on values. Use scatter_add into xgrad.zeros(size)."
        )
    if isinstance(array := input._read(), Tracer):
        raise value_needed(
            array,
            "bincount makes a tensor whose shape depends on values, which a trace (jax.jit, jax.vmap, jax.grad) "
            "does not know. Use xgrad.zeros(size).scatter_add(0, input, ones) with a fixed size.",
        )
    size = minlength
    if input.numel():
        low, high = np.asarray(_extremes(array)).tolist()
        if low < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        size = max(size, high + 1)
    if not input.numel():
        return call(_bincount.operator, (input, None), (size, dtypes.default_integer()))
    dtype = dtypes.default_integer() if weights is None else weights.dtype
    if dtype != dtypes.float32 and weights is not None:
        dtype = dtypes.as_dtype(float)  # as PyTorch: float64
    return call(_bincount.operator, (input, weights), (size, dtype))
