"""Scans along one dimension: cumsum, cumprod, logcumsumexp, cummax, cummin, diff.

(PyTorch: aten/src/ATen/native/ReduceOps.cpp.)
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ... import return_types
from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, internal, linear, operator
from ...dispatch.narrow_sums import cumsum_overflows
from ...dispatch.out import write_out
from ...dispatch.promotion import accumulate_dtype, require_floating, wrap_dim
from ...dispatch.samples import ALONG, COMPLEX, real, sample
from ...tensor import Tensor
from ..shape.joining import cat
from .extrema import gather


def _prepared(self, dim, dtype):
    dim = wrap_dim(dim, self.ndim)
    return self.astype(accumulate_dtype(self, dtype)), dim


@operator(inplace=True, signature="input, dim, *, dtype=None", samples=ALONG + COMPLEX)
def cumsum(self, *, dim, dtype=None):
    """The running sum along `dim`.

    >>> import xgrad
    >>> xgrad.tensor([1.0, 2.0, 3.0]).cumsum(0)
    tensor([1., 3., 6.])
    """
    self, dim = _prepared(self, dim, dtype)
    return jax.lax.cumsum(self, axis=dim) if self.ndim else self


cumsum.operator.overflows = cumsum_overflows
cumsum.derivative(
    self=lambda grad, dim: jax.lax.cumsum(grad, axis=wrap_dim(dim, grad.ndim), reverse=True) if grad.ndim else grad
)


@operator(inplace=True, signature="input, dim, *, dtype=None", samples=ALONG + COMPLEX)
def cumprod(self, *, dim, dtype=None):
    """The running product along `dim`; derivatives of any order are right where elements are zero."""
    self, dim = _prepared(self, dim, dtype)
    return jax.lax.cumprod(self, axis=dim) if self.ndim else self


@operator(samples=ALONG + COMPLEX)
def logcumsumexp(self, *, dim):
    """The logarithm of the running sum of exponentials along `dim`, without overflow."""
    dim = wrap_dim(dim, self.ndim)
    require_floating(self, "logcumsumexp_out_cpu")
    if not self.ndim:
        return self
    if jnp.iscomplexobj(self):
        return jax.lax.associative_scan(jnp.logaddexp, self, axis=dim)
    return _log_sums(dim, self)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_sums(dim, x):
    return jax.lax.cumlogsumexp(x, axis=dim)


@_log_sums.defjvp
def _log_sums_tangent(dim, primals, tangents):
    """dy[j] = exp(y[j - 1] - y[j]) dy[j - 1] + exp(x[j] - y[j]) dx[j], by a scan.

    jax's tangent of logaddexp takes infinities for 0: behind inf its gradients were wrong, and behind two -inf the
    second derivatives NaN.  As in PyTorch the gradient of an inf is NaN, and the numbers behind it have 0.
    """
    (x,), (dx,) = primals, tangents
    y = _log_sums(dim, x)

    def share(part, whole):
        same = jnp.isinf(whole) & (part == whole)
        return jnp.exp(jnp.where(same, 0, part) - jnp.where(same, 0, whole))

    def step(one, other):
        return other[0], share(one[0], other[0]) * one[1] + other[1]

    moved = jnp.where(jnp.isposinf(x), jnp.nan, share(x, y)) * dx
    tangent = jax.lax.associative_scan(step, (y, moved), axis=dim)[1]
    undefined = jnp.isneginf(y) & (jax.lax.broadcasted_iota(np.int32, y.shape, dim) > 0)
    return y, tangent * jnp.where(undefined, jnp.nan, 1).astype(y.dtype)


def _extremum(self, dim, better):
    """The running extremum and its index: the last index among ties, and NaN from the first NaN on."""
    dim = wrap_dim(dim, self.ndim)
    if self.dtype in dtypes.COMPLEX:
        raise NotImplementedError("cummax and cummin are not implemented for complex numbers, which have no order")
    if not self.ndim:
        return self, jnp.zeros((), dtypes.default_integer())

    def later(a, b):
        (x, i), (y, j) = a, b
        take = (better(y, x) & (x == x)) | (y != y)  # x == x is false only for NaN
        return jnp.where(take, y, x), jnp.where(take, j, i)

    place = jax.lax.broadcasted_iota(dtypes.default_integer(), self.shape, dim)
    indices = jax.lax.associative_scan(later, (jax.lax.stop_gradient(self), place), axis=dim)[1]
    return gather(self, indices, dim, True)


@operator(outputs=return_types.cummax, samples=ALONG)
def cummax(self, *, dim):
    """The named tuple (values, indices) of the running maximum along `dim`; of ties the last one counts."""
    return _extremum(self, dim, jnp.greater_equal)


@operator(outputs=return_types.cummin, samples=ALONG)
def cummin(self, *, dim):
    """The named tuple (values, indices) of the running minimum along `dim`; of ties the last one counts."""
    return _extremum(self, dim, jnp.less_equal)


def _scatter_add(grad, indices, dim):
    """Add up gradients at `indices`: an element that stays the extremum for several steps gets the sum of theirs."""
    if not grad.ndim:
        return grad
    dim = dim % grad.ndim
    places = list(jnp.indices(grad.shape, indices.dtype, sparse=True))
    places[dim] = indices
    return jnp.zeros_like(grad).at[tuple(places)].add(grad)


for _op in (cummax, cummin):
    _op.derivative(self=lambda grad, indices, dim: _scatter_add(grad, indices, dim))


@internal(
    "diff",
    samples=(sample(real(2, 3), n=1, dim=1), sample(real(2, 3), n=2, dim=1), sample(real(0, 3), n=1, dim=1)) + COMPLEX,
)
def _diff(self, *, n, dim):
    return jnp.diff(self, n=min(n, self.shape[dim]), axis=dim)


_diff.derivative(self=linear)


@composite
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None, *,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The n-th difference of neighbours along `dim`; `prepend` and `append` are joined to the input first."""
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    dim = wrap_dim(dim, input.ndim)
    parts = [p for p in (prepend, input, append) if p is not None]
    for part in parts:
        if part.ndim != input.ndim:
            raise RuntimeError(
                f"diff expects prepend or append to be the same dimension as input: {part.ndim} and {input.ndim}"
            )
    joined = cat.function(parts, dim) if n and len(parts) > 1 else input
    result = call(_diff.operator, (joined,), (n, dim)) if n else input.clone()
    return result if out is None else write_out("diff", result, out)
