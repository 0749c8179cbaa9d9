"""segment_reduce: divides a dimension into segments, and reduces each to one element.

It is a scatter into the segments; elements outside of all segments go to one more, which is dropped.
(PyTorch: aten/src/ATen/native/SegmentReduce.cpp.)
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, internal
from ...dispatch.promotion import refuse_complex, wrap_dim
from ...dispatch.samples import real, sample
from ...tensor import Tensor
from ..index.index_checks import on_host
from ..index.scatter import scatter_reduce

# PyTorch's name → (the scatter's name, the result for no elements, the function that combines it with `initial`)
_REDUCTIONS: dict[str, tuple] = {
    "sum": ("sum", 0.0, jnp.add),
    "mean": ("sum", 0.0, jnp.add),
    "prod": ("prod", 1.0, jnp.multiply),
    "max": ("amax", -math.inf, lambda x, initial: jnp.where(initial > x, initial, x)),
    "min": ("amin", math.inf, lambda x, initial: jnp.where(initial < x, initial, x)),
}


@internal(
    "segment_reduce",
    samples=(
        *[sample(real(5, 2), [2, 1, 2], None, reduce=r, axis=0, by_length=True) for r in ("sum", "mean", "prod")],
        *[sample(real(5), [0, 3, 5], 0.5, reduce=r, axis=0, by_length=False) for r in ("max", "min")],
    ),
)
def _reduced(data, given, initial, *, reduce, axis, by_length):
    """Reduce segments given by lengths, or by offsets: `given` (..., segments), for offsets (..., segments + 1).

    The leading dimensions of `given` are the dimensions of `data` before `axis`.
    """
    refuse_complex(data, "segment_reduce")
    if by_length:
        start = jnp.zeros((*given.shape[:-1], 1), given.dtype)
        offsets = jnp.concatenate([start, jnp.cumsum(given, axis=-1, dtype=given.dtype)], axis=-1)
    else:
        offsets = given
    n, count = data.shape[axis], offsets.shape[-1] - 1
    search = lambda edges: jnp.searchsorted(edges, jnp.arange(n), side="right") - 1  # noqa: E731
    owner = jax.vmap(search)(offsets.reshape(-1, count + 1)).reshape(*offsets.shape[:-1], n)
    owner = jnp.where(owner < 0, count, owner)  # -1: before the first; after the last it is `count` already
    owner = owner.reshape(owner.shape + (1,) * (data.ndim - owner.ndim))
    name, nothing, join = _REDUCTIONS[reduce]
    base = jnp.full(data.shape[:axis] + (count + 1,) + data.shape[axis + 1 :], nothing, data.dtype)
    found = scatter_reduce(base, jnp.broadcast_to(owner, data.shape), data, dim=axis, reduce=name)
    found = jax.lax.slice_in_dim(found, 0, count, axis=axis)
    if initial is not None:
        found = join(found, initial.astype(data.dtype))
    if reduce == "mean":
        length = jnp.diff(offsets, axis=-1)
        length = length.reshape(length.shape + (1,) * (data.ndim - length.ndim)).astype(data.dtype)
        empty = jnp.nan if initial is None else found
        found = jnp.where(length == 0, empty, found / jnp.where(length == 0, 1, length))
    return found


def _check(values: np.ndarray | None, what: str, size: int) -> None:
    """Check lengths as PyTorch does, if their values can be read."""
    if values is None:
        return
    lengths = values if what == "lengths" else np.diff(values, axis=-1)
    if (lengths < 0).any():
        raise RuntimeError(f"segment_reduce(): {what} contains negative value!")
    if (lengths.sum(-1) != size).any() and what == "lengths":
        raise RuntimeError(
            f"segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) ({size}) "
            "when !unsafe."
        )


@composite(method=False, aliases=("_segment_reduce",))
def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Segments of the dimension `axis`, each reduced to one element: "sum", "mean", "prod", "max" or "min".

    `lengths`: the segments' sizes, one after another, with the dimensions of `data` up to `axis`; or `offsets`: where
    each begins, and the last one ends.  `initial` takes part in each reduction (and in no mean's count).
    `unsafe` leaves out checking that the lengths sum to the size of the dimension.

    >>> import xgrad
    >>> xgrad.segment_reduce(xgrad.tensor([1.0, 2.0, 3.0]), "sum", lengths=xgrad.tensor([2, 0, 1]))
    tensor([3., 0., 3.])
    """
    axis = wrap_dim(axis, data.ndim)
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, max or min, got {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    given = lengths if offsets is None else offsets
    if given is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if given.dtype.kind not in "iu":
        raise RuntimeError(
            f"segment_reduce(): expected lengths and offsets of an integer dtype, got {given.dtype.name}"
        )
    if given.ndim > data.ndim or given.ndim != axis + 1 or tuple(given.shape[:-1]) != tuple(data.shape[:axis]):
        raise RuntimeError(
            f"segment_reduce(): Expected axis to be the last dimension of lengths, whose other ones are data's: "
            f"got axis {axis}, data {list(data.shape)} and {list(given.shape)}"
        )
    if data.dtype not in dtypes.FLOATS:
        raise NotImplementedError(f"\"_segment_reduce_cpu\" not implemented for '{dtypes.torch_name(data._dtype)}'")
    if not unsafe:
        _check(on_host(given), "lengths" if offsets is None else "offsets", data.shape[axis])
    return call(_reduced.operator, (data, given, initial), (reduce, axis, offsets is None))
