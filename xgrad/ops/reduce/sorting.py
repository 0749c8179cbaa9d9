"""Sorting and searching: sort, argsort, msort, topk, unique, unique_consecutive, searchsorted, bucketize.

NaN is greater than every number.  The gradient of sorted values returns to the elements they came from, by the saved
indices.  (PyTorch: aten/src/ATen/native/Sorting.cpp.)
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import return_types
from ...base import dtypes
from ...dispatch.declare import composite, operator, refuse_derivative
from ...dispatch.promotion import refuse_complex, wrap_dim
from ...dispatch.samples import real, rising, sample, whole
from ...tensor import Tensor
from ...views.named.arguments import own_dim
from ...views.storage import Tracer, value_needed
from ..index.index_checks import on_host
from .extrema import scatter
from .sort_kernel import ordered


def _sorted(self: Any, dim: int, descending: bool) -> tuple[Any, Any]:
    """(values, indices) sorted along `dim`; equal elements keep their order."""
    if self.dtype in dtypes.COMPLEX:
        raise RuntimeError("sort(): complex numbers have no order; sort their abs() or real part")
    dim = wrap_dim(dim, self.ndim)
    if not self.ndim:
        return self, jnp.zeros((), dtypes.default_integer())
    return ordered(self, dim, descending)


@operator(
    signature="input, dim=-1, descending=False, *, stable=False",
    outputs=return_types.sort,
    samples=(sample(real(2, 3)), sample(real(2, 3), dim=0, descending=True), sample(real()), sample(real(0, 3))),
)
def sort(self, *, dim=-1, descending=False, stable=False):
    """The named tuple (values, indices) of the elements sorted along `dim`.  The sort is always stable.

    >>> import xgrad
    >>> xgrad.tensor([3.0, 1.0, 2.0]).sort(descending=True).indices
    tensor([0, 2, 1])
    """
    return tuple(_sorted(self, dim, descending))


@operator(
    signature="input, dim=-1, descending=False, *, stable=False",
    differentiable=False,
    samples=(sample(real(2, 3)), sample(real(2, 3), dim=0, descending=True), sample(real())),
)
def argsort(self, *, dim=-1, descending=False, stable=False):
    """The indices that sort the elements along `dim`."""
    return _sorted(self, dim, descending)[1]


@composite
def msort(input: Tensor, *, out: Any = None) -> Tensor:
    """The values sorted along the first dimension."""
    values = sort.function(input, 0)[0]
    return values if out is None else out.copy_(values)


@operator(
    signature="input, k, dim=-1, largest=True, sorted=True",
    outputs=return_types.topk,
    samples=(sample(real(2, 3), k=2), sample(real(2, 3), k=1, dim=0, largest=False), sample(real(), k=1)),
)
def topk(self, *, k, dim=-1, largest=True, sorted=True):
    """The named tuple (values, indices) of the `k` largest (or smallest) elements along `dim`, in order."""
    if self.dtype == dtypes.bool:
        raise RuntimeError("topk does not support bool dtypes")
    dim = wrap_dim(dim, self.ndim)
    if not 0 <= k <= (self.shape[dim] if self.ndim else 1):
        raise RuntimeError(f"selected index k out of range: k={k} along dimension {dim} of shape {list(self.shape)}")
    if not self.ndim:
        return (self, jnp.zeros((), dtypes.default_integer())) if k else (self.reshape(1)[:0],) * 2
    return tuple(jax.lax.slice_in_dim(x, 0, k, axis=dim) for x in _sorted(self, dim, largest))


for _op in (sort, topk):
    _op.derivative(self=lambda grad, indices, shapes, dim: scatter(grad, indices, shapes[0], dim))


# -- unique: the number of results depends on the values, so it is not traced -----------------------------------------

unjitted: Any = partial(operator, jit=False, out=False, function=False, method=False)


def _require_values(self: Any, what: str) -> None:
    if isinstance(self, Tracer):
        raise value_needed(
            self,
            f"{what} makes a tensor whose shape depends on values, which a trace (jax.jit, jax.vmap, jax.grad) "
            "does not know. Call it outside, or sort() and work on all elements.",
        )


_GROUPED = (
    sample(whole(0, 3, 5), dim=None, inverse=True, counts=True), sample(real(2, 3), dim=0, inverse=False, counts=False),
)  # fmt: skip


@unjitted("_unique", missing="_unique2", samples=_GROUPED)
def _unique(self, *, dim, inverse, counts):
    _require_values(self, "unique")
    axis = None if dim is None else own_dim(dim, self.ndim)
    return _as_indices(jnp.unique(self, axis=axis, return_inverse=inverse, return_counts=counts, equal_nan=False))


_unique.derivative(all=lambda dim: refuse_derivative("_unique2" if dim is None else "unique_dim"))


@unjitted("_unique_consecutive", missing="unique_consecutive", samples=_GROUPED)
def _unique_consecutive(self, *, dim, inverse, counts):
    _require_values(self, "unique_consecutive")
    dim = None if dim is None else own_dim(dim, self.ndim)
    x = self.reshape(-1) if dim is None else jnp.moveaxis(self, dim, 0)
    n = x.shape[0]
    changed = (x[1:] != x[:-1]).any(axis=tuple(range(1, x.ndim)))
    fresh = jnp.concatenate([jnp.ones(min(n, 1), bool), changed])
    starts = jnp.flatnonzero(fresh)
    values = x[starts] if dim is None else jnp.moveaxis(x[starts], 0, dim)
    group = jnp.cumsum(fresh) - 1
    parts = [values]
    if inverse:
        parts.append(group.reshape(self.shape) if dim is None else group)
    if counts:
        parts.append(jnp.diff(starts, append=n))
    return _as_indices(tuple(parts))


def _as_indices(parts: Any) -> Any:
    """Cast all parts but the first to the default integer."""
    if not isinstance(parts, tuple):
        return parts
    return parts[0], *(p.astype(dtypes.default_integer()) for p in parts[1:])


@composite
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices along `dim`), sorted; and the inverse indices and the counts, if asked for.

    The size of the result depends on the values: it cannot be called while tracing.
    """
    return _plain(_unique.function(input, dim, return_inverse, return_counts))


@composite
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The input without repetitions of neighbours; and the inverse indices and the counts, if asked for."""
    return _plain(_unique_consecutive.function(input, dim, return_inverse, return_counts))


def _plain(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) and len(found) == 1 else found


# -- searching --------------------------------------------------------------------------------------------------------


def _check_sorter(args: tuple, statics: tuple) -> None:
    boundaries, sorter = args[0], args[2] if len(args) > 2 else None
    if sorter is None:
        return
    if tuple(sorter.shape) != tuple(boundaries.shape):
        sizes = f"boundary tensor {list(boundaries.shape)} and sorter tensor {list(sorter.shape)}"
        raise RuntimeError(f"boundary and sorter must have the same size, but got {sizes}")
    values = on_host(sorter)
    if values is not None and values.size and not 0 <= values.min() <= values.max() < boundaries.shape[-1]:
        raise RuntimeError("sorter index out of range")


@operator(
    signature="sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None",
    differentiable=False,
    method=False,
    check=_check_sorter,
    samples=(sample(rising(4), real(2, 3)), sample(rising(2, 4), real(2, 3), right=True)),
)
def searchsorted(sorted_sequence, input, sorter=None, *, out_int32=False, right=False, side=None):
    """Positions for inserting `input` into `sorted_sequence` (sorted along its last dimension) so that it stays sorted.

    `sorted_sequence` has one dimension, or the dimensions of `input` except for the last, which may differ.
    """
    input = jnp.asarray(input)
    refuse_complex(input, "searchsorted")
    if side not in (None, "left", "right"):
        raise RuntimeError(f"side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError("side and right can't be set to opposites, got side of left while right was True")
    if not sorted_sequence.ndim:
        raise RuntimeError("boundaries tensor should have positive dimension, but got 0 dimension")
    if sorter is not None:
        sorted_sequence = jnp.take_along_axis(sorted_sequence, sorter, axis=-1)
    find = partial(jnp.searchsorted, side="right" if right or side == "right" else "left")
    if sorted_sequence.ndim > 1:
        if sorted_sequence.shape[:-1] != input.shape[:-1]:
            raise RuntimeError(
                "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input "
                f"value tensor must match, but got {list(sorted_sequence.shape)} and {list(input.shape)}"
            )
        for _ in range(sorted_sequence.ndim - 1):
            find = jax.vmap(find)
    dtype = np.int32 if out_int32 else dtypes.default_integer()
    if not sorted_sequence.shape[-1]:
        return jnp.zeros(input.shape, dtype)
    return find(sorted_sequence, input).astype(dtype)


@composite
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Any = None
) -> Tensor:
    """The index of the bucket, bounded by the sorted 1-D `boundaries`, to which each element belongs."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    given = {} if out is None else {"out": out}
    return searchsorted.function(boundaries, input, out_int32=out_int32, right=right, **given)
