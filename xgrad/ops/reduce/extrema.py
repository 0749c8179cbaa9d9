"""Reductions that select: max, min, amax, amin, aminmax, argmax, argmin, median, kthvalue, mode.

As in PyTorch there are two kinds of gradient.  An operator that returns an index sends the gradient to that element
alone (`max(dim)`, `median`, ...); one that returns only a value shares it evenly among ties (`amax`, `max()`).  Values
along a dimension are *gathered* at their indices, so that the tangent in forward mode is gathered there as well.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import return_types
from ...base import dtypes
from ...dispatch.declare import composite, operator
from ...dispatch.out import write_out
from ...dispatch.promotion import require_real, restore_dims, wrap_dim, wrap_dims
from ...dispatch.samples import ALONG, REAL, real, sample
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .sort_kernel import ordered

private: dict[str, Any] = dict(function=False, method=False)

_OF_SEVERAL = (sample(real(2, 3)), sample(real(2, 3), dim=(1,), keepdim=True), sample(real()))
_OF_ONE = (sample(real(2, 3)), sample(real(2, 3), dim=1, keepdim=True))


def require_elements(self: Any, dims: tuple[int, ...], name: str) -> None:
    """Raise for an empty dimension, and for dtypes without an order."""
    if self.dtype in dtypes.COMPLEX:
        raise NotImplementedError(f'"{name}" not implemented for complex numbers, which have no order')
    if any(self.shape[d] == 0 for d in dims):
        empty = next(d for d in dims if self.shape[d] == 0)
        raise IndexError(
            f"{name}(): Expected reduction dim {empty} to have non-zero size, but the shape is {list(self.shape)}"
        )


def gather(self: Any, indices: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
    """(values, indices) of a selection, given its indices with the dimension kept."""
    values = jnp.take_along_axis(self, indices, axis=dim, mode="clip")
    if not keepdim:
        values, indices = jnp.squeeze(values, dim), jnp.squeeze(indices, dim)
    return values, indices.astype(dtypes.default_integer())


def scatter(grad: Any, indices: Any, shape: tuple[Any, ...], dim: int, keepdim: bool = True) -> Any:
    """Scatter the gradient of values that were gathered at `indices` along `dim`."""
    if not shape:
        return grad
    dim = dim % len(shape)
    if not keepdim:
        grad, indices = jnp.expand_dims(grad, dim), jnp.expand_dims(indices, dim)
    if indices.shape[dim] == 1:  # a comparison fuses with later operations; a scatter does not
        return jnp.where(jax.lax.broadcasted_iota(indices.dtype, shape, dim) == indices, grad, 0)
    return jnp.put_along_axis(jnp.zeros(shape, grad.dtype), indices, grad, axis=dim, inplace=False)


def share(grad: Any, self: Any, result: Any, dim: Any, keepdim: bool, *, hit: Any = None) -> Any:
    """The gradient of an extremum without index: shared evenly among the elements that attain it; NaN of a NaN."""
    dims = wrap_dims(dim, self.ndim)
    hit = self == restore_dims(result, self.shape, dims, keepdim) if hit is None else hit
    ties = jnp.sum(hit, axis=dims, keepdims=True)
    part = jnp.where(ties == 0, jnp.nan, hit / ties)  # XLA computes 0 for False / 0
    return restore_dims(grad, self.shape, dims, keepdim) * part.astype(grad.dtype)


def share_all(grad: Any, self: Any, result: Any, dim: Any, keepdim: bool) -> Any:
    """As `share`, but NaNs share the gradient of a NaN."""
    attained = restore_dims(result, self.shape, wrap_dims(dim, self.ndim), keepdim)
    hit = (self == attained) | (jnp.isnan(self) & jnp.isnan(attained))
    return share(grad, self, result, dim, keepdim, hit=hit)


def _selected(name: str, choose: Any) -> Any:
    """Declare the operator `name`.dim: (values, indices) along one dimension, by the indices that `choose` returns."""

    def along(self, *, dim=-1, keepdim=False):
        dim = wrap_dim(dim, self.ndim)
        require_elements(self, (dim,) if self.ndim else (), name)
        if not self.ndim:
            return self, jnp.zeros((), dtypes.default_integer())
        return gather(self, choose(self, dim), dim, keepdim)

    node = f"{name.capitalize()}Backward{1 if name in ('median', 'nanmedian') else 0}"
    op = operator(
        f"{name}.dim",
        outputs=getattr(return_types, name),
        node=node,
        **private,
        samples=(*ALONG[:3], sample(real(2, 3), dim=0, keepdim=True)),
    )(along)
    op.derivative(self=lambda grad, indices, shapes, dim, keepdim: scatter(grad, indices, shapes[0], dim, keepdim))
    return op


# -- max and min ------------------------------------------------------------------------------------------------------

_max_along = _selected("max", lambda x, dim: jnp.argmax(x, axis=dim, keepdims=True))
_min_along = _selected("min", lambda x, dim: jnp.argmin(x, axis=dim, keepdims=True))


def _extremum(self, dim, keepdim, reduce, name):
    if dim == () and not self.size:
        raise RuntimeError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
            "the 'dim' argument."
        )
    dims = wrap_dims(dim, self.ndim)
    require_elements(self, dims, name)
    return reduce(self, axis=dims, keepdims=keepdim)


@operator(signature="input, dim=(), keepdim=False", samples=_OF_SEVERAL)
def amax(self, *, dim=(), keepdim=False):
    """The largest elements along `dim` (all dimensions by default); ties share the gradient evenly."""
    return _extremum(self, dim, keepdim, jnp.max, "amax")


@operator(signature="input, dim=(), keepdim=False", samples=_OF_SEVERAL)
def amin(self, *, dim=(), keepdim=False):
    """The smallest elements along `dim` (all dimensions by default); ties share the gradient evenly."""
    return _extremum(self, dim, keepdim, jnp.min, "amin")


@operator("max.all", node="MaxBackward1", **private, samples=_OF_SEVERAL)
def _max_all(self, *, dim=(), keepdim=False):
    return _extremum(self, dim, keepdim, jnp.max, "max")


@operator("min.all", node="MinBackward1", **private, samples=_OF_SEVERAL)
def _min_all(self, *, dim=(), keepdim=False):
    return _extremum(self, dim, keepdim, jnp.min, "min")


for _op in (amax, amin):
    _op.derivative(self=share)
for _op in (_max_all, _min_all):
    _op.derivative(self=share_all)


@operator(signature="input, *, dim=None, keepdim=False", outputs=return_types.aminmax, samples=_OF_ONE)
def aminmax(self, *, dim=None, keepdim=False):
    """The named tuple (min, max) along one dimension, or of all elements; ties share the gradients evenly."""
    dim = () if dim is None else wrap_dim(dim, self.ndim)
    return _extremum(self, dim, keepdim, jnp.min, "aminmax"), _extremum(self, dim, keepdim, jnp.max, "aminmax")


aminmax.derivative(
    self=lambda grads, self, results, dim, keepdim: sum(
        share(grad, self, result, dim, keepdim) for grad, result in zip(grads, results)
    )
)


def _write_pair(name: str, result: Any, out: Any) -> Any:
    """Write the results of an operator with values and indices to `out`, if there is one."""
    if out is None:
        return result
    for source, target in zip(result, out, strict=True):
        write_out(name, source, target)
    return type(result)(*out)


def _dispatch(name: str, whole: Any, along: Any, binary: str, what: str) -> None:
    """Declare the public max or min: of all elements, along a dimension, or of two tensors, by its arguments."""

    def public(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None, out: Any = None) -> Any:
        if isinstance(dim, Tensor):
            other = dim
        if other is not None:
            return FUNCTIONS[""][binary](input, other, out=out)
        if dim is not None:
            return _write_pair(name, along.function(input, dim, keepdim), out)
        result = whole.function(input)
        return result if out is None else write_out(name, result, out)

    public.__name__ = public.__qualname__ = name
    public.__doc__ = f"""{name}(input): the {what} element.
    {name}(input, dim, keepdim=False): the named tuple (values, indices) of the {what} elements along `dim`.
    {name}(input, other): `{binary}(input, other)`.

    Without `dim` ties share the gradient evenly; with it the element at the index gets all of it.

    >>> import xgrad
    >>> xgrad.{name}(xgrad.tensor([1.0, 3.0, 2.0]), 0).indices
    tensor({1 if name == "max" else 0})
    """
    composite(name)(public)


_dispatch("max", _max_all, _max_along, "maximum", "largest")
_dispatch("min", _min_all, _min_along, "minimum", "smallest")


def _index(self, dim, keepdim, choose, name):
    if self.dtype == np.bool_:
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")
    if dim is None and not self.size:
        raise IndexError(
            f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
            "the 'dim' argument."
        )
    dims = wrap_dims(dim if dim is None else wrap_dim(dim, self.ndim), self.ndim)
    require_elements(self, dims, name)
    if not self.ndim:
        return jnp.zeros((), dtypes.default_integer())
    return choose(self, axis=None if dim is None else dims[0], keepdims=keepdim).astype(dtypes.default_integer())


@operator(signature="input, dim=None, keepdim=False", differentiable=False, samples=_OF_ONE)
def argmax(self, *, dim=None, keepdim=False):
    """The index of the first largest element along `dim`; by default in the flattened input."""
    return _index(self, dim, keepdim, jnp.argmax, "argmax")


@operator(signature="input, dim=None, keepdim=False", differentiable=False, samples=_OF_ONE)
def argmin(self, *, dim=None, keepdim=False):
    """The index of the first smallest element along `dim`; by default in the flattened input."""
    return _index(self, dim, keepdim, jnp.argmin, "argmin")


# -- by rank ----------------------------------------------------------------------------------------------------------


def ranked(self: Any, dim: int, rank: Any) -> Any:
    """The indices along `dim`, which stays with size 1, of the elements of a rank (0: the smallest; NaNs come last)."""
    order = ordered(self, dim)[1]
    rank = jnp.broadcast_to(jnp.asarray(rank, order.dtype), self.shape[:dim] + (1,) + self.shape[dim + 1 :])
    return jnp.take_along_axis(order, rank, axis=dim)


def _median_index(self, dim):
    """The index of the lower median; of the first NaN if there is one."""
    require_real(self, "median")
    n = self.shape[dim]
    middle = ranked(self, dim, (n - 1) // 2)
    if self.dtype not in dtypes.FLOATS:
        return middle
    nan = jnp.isnan(self)
    return jnp.where(jnp.any(nan, axis=dim, keepdims=True), jnp.argmax(nan, axis=dim, keepdims=True), middle)


def _nanmedian_index(self, dim):
    """The index of the lower median of the elements that are not NaN."""
    require_real(self, "nanmedian")
    valid = jnp.sum(~jnp.isnan(self), axis=dim, keepdims=True)
    return ranked(self, dim, jnp.maximum(valid - 1, 0) // 2)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _middle(flat: Any, choose: Any) -> Any:
    return gather(flat, choose(flat, 0), 0, False)[0]


@_middle.defjvp
def _middle_tangent(choose: Any, primals: tuple, tangents: tuple) -> tuple:
    """The mean of the tangents of all elements that equal the median."""
    (flat,), (tangent,) = primals, tangents
    middle = _middle(flat, choose)
    among = jnp.where(jnp.isnan(middle), jnp.isnan(flat), flat == middle)
    return middle, jnp.sum(jnp.where(among, tangent, 0)) / jnp.sum(among).astype(tangent.dtype)


def _median_all(choose, name):
    def whole(self):
        require_real(self, name)
        flat = self.reshape(-1)
        if not flat.size:
            return jnp.full((), jnp.nan if self.dtype in dtypes.FLOATS else jnp.iinfo(self.dtype).min, self.dtype)
        return _middle(flat, choose)

    op = operator(f"{name}.all", node=f"{name.capitalize()}Backward0", **private, samples=REAL[:2])(whole)
    op.derivative(self=lambda grad, self, result: share_all(grad, self, result, (), False))
    return op


def _median(name: str, choose: Any, what: str) -> None:
    whole, along = _median_all(choose, name), _selected(name, choose)

    def public(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
        if dim is None:
            result = whole.function(input)
            return result if out is None else write_out(name, result, out)
        return _write_pair(name, along.function(input, dim, keepdim), out)

    public.__name__ = public.__qualname__ = name
    public.__doc__ = f"The {what} of all elements, or the named tuple (values, indices) of those along `dim`."
    composite(name)(public)


_median("median", _median_index, "median (of an even number of elements the lower one; NaN if there is one)")
_median("nanmedian", _nanmedian_index, "median of the elements that are not NaN")


@operator(
    signature="input, k, dim=-1, keepdim=False",
    outputs=return_types.kthvalue,
    samples=(sample(real(2, 3), k=2), sample(real(2, 3), k=1, dim=0, keepdim=True), sample(real(), k=1)),
)
def kthvalue(self, *, k, dim=-1, keepdim=False):
    """The named tuple (values, indices) of the k-th smallest elements along `dim`; k counts from 1."""
    require_real(self, "kthvalue")
    dim = wrap_dim(dim, self.ndim)
    require_elements(self, (dim,) if self.ndim else (), "kthvalue")
    if not 1 <= k <= (self.shape[dim] if self.ndim else 1):
        raise RuntimeError(
            f"kthvalue(): selected number k out of range for dimension {dim}: k={k}, shape {list(self.shape)}"
        )
    if not self.ndim:
        return self, jnp.zeros((), dtypes.default_integer())
    return gather(self, ranked(self, dim, k - 1), dim, keepdim)


def _mode_index(self, dim):
    """The last index of the most frequent element; of several such elements the smallest counts."""
    x = jnp.moveaxis(self, dim, -1)
    ranks, order = ordered(x, x.ndim - 1)
    place = jnp.arange(x.shape[-1])
    fresh = jnp.concatenate([jnp.ones_like(ranks[..., :1], bool), ranks[..., 1:] != ranks[..., :-1]], axis=-1)
    run = place - jax.lax.cummax(jnp.where(fresh, place, 0), axis=x.ndim - 1)  # how often the element came before
    best = jnp.argmax(run, axis=-1, keepdims=True)
    return jnp.moveaxis(jnp.take_along_axis(order, best, axis=-1), -1, dim)


_mode = _selected("mode", _mode_index)


@composite
def mode(input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Any = None) -> Any:
    """The named tuple (values, indices) of the most frequent elements along `dim`, the smallest of several."""
    return _write_pair("mode", _mode.function(input, dim, keepdim), out)


kthvalue.derivative(self=lambda grad, indices, shapes, dim, keepdim: scatter(grad, indices, shapes[0], dim, keepdim))
