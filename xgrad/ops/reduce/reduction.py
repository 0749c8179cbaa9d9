"""Reductions by sums and products: sum, mean, prod, var, std, logsumexp, all, any, count_nonzero, trace.

`dim` is a dimension, several of them, or None for all.  A gradient formula spreads the result's gradient back over the
reduced dimensions with `restore_dims`; the spread is a broadcast, so a sum saves nothing and costs nothing.
(PyTorch: aten/src/ATen/native/ReduceOps.cpp.)
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...dispatch.declare import composite, operator
from ...dispatch.narrow_sums import sum_overflows
from ...dispatch.promotion import (
    accumulate_dtype,
    as_float,
    conj,
    require_float,
    restore_dims,
    scalar,
    wrap_dim,
    wrap_dims,
)
from ...dispatch.samples import ALONG, COMPLEX, REDUCTION, real, sample, whole
from ...tensor import Tensor
from ..pointwise.bits import frexp, ldexp
from ..pointwise.ends import over_real

SIGNATURE = "input, dim=None, keepdim=False, *, dtype=None"


def spread(grad: Any, shape: tuple[Any, ...], dim: Any, keepdim: bool) -> Any:
    """Spread the gradient of a sum over `dim`: broadcast it to `shape`."""
    return restore_dims(grad, shape, wrap_dims(dim, len(shape)), keepdim)


def count(shape: tuple[Any, ...], dim: Any) -> int:
    """The number of elements that a reduction over `dim` combines."""
    return math.prod(shape[d] for d in wrap_dims(dim, len(shape)))


# -- sums -------------------------------------------------------------------------------------------------------------


@operator("sum", signature=SIGNATURE, samples=REDUCTION + COMPLEX)
def sum_(self, *, dim=None, keepdim=False, dtype=None):
    """Sum over `dim` (all dimensions by default); integers and bools are summed as the default integer.

    >>> import xgrad
    >>> xgrad.tensor([[1.0, 2.0], [3.0, 4.0]]).sum(dim=0)
    tensor([4., 6.])
    """
    dims = wrap_dims(dim, self.ndim)
    return jnp.sum(self, axis=dims, keepdims=keepdim, dtype=accumulate_dtype(self, dtype))


sum_.operator.overflows = sum_overflows
sum_.derivative(self=lambda grad, shapes, dim, keepdim: spread(grad, shapes[0], dim, keepdim))


@operator(signature=SIGNATURE, samples=REDUCTION)
def nansum(self, *, dim=None, keepdim=False, dtype=None):
    """Sum over `dim`, NaN counting as zero."""
    if self.dtype in dtypes.COMPLEX:
        raise RuntimeError("nansum does not support complex inputs")
    return jnp.nansum(self, axis=wrap_dims(dim, self.ndim), keepdims=keepdim, dtype=accumulate_dtype(self, dtype))


nansum.operator.overflows = sum_overflows
nansum.derivative(
    self=lambda grad, self, dim, keepdim: jnp.where(jnp.isnan(self), 0, spread(grad, self.shape, dim, keepdim))
)


@operator(signature=SIGNATURE, samples=REDUCTION[:3] + COMPLEX)
def mean(self, *, dim=None, keepdim=False, dtype=None):
    """Mean over `dim` (all dimensions by default).  Raises `RuntimeError` for integers, unless `dtype` is given.

    >>> import xgrad
    >>> xgrad.tensor([[1.0, 2.0], [3.0, 4.0]]).mean()
    tensor(2.5000)
    """
    self = self if dtype is None else self.astype(dtype)
    require_float(self, "mean()")
    return jnp.mean(self, axis=wrap_dims(dim, self.ndim), keepdims=keepdim)


mean.derivative(
    self=lambda grad, shapes, dim, keepdim: (
        spread(grad / count(shapes[0], dim), shapes[0], dim, keepdim)
        if math.prod(shapes[0])
        else jnp.zeros(shapes[0], grad.dtype)
    )
)


@operator(signature=SIGNATURE, samples=REDUCTION[:3])
def nanmean(self, *, dim=None, keepdim=False, dtype=None):
    """Mean over `dim` of the elements that are not NaN."""
    self = self if dtype is None else self.astype(dtype)
    if self.dtype not in dtypes.FLOATS:
        raise RuntimeError(
            "nanmean(): expected input to have floating point or complex dtype but got " + self.dtype.name
        )
    return jnp.nanmean(self, axis=wrap_dims(dim, self.ndim), keepdims=keepdim)


@operator(
    signature=SIGNATURE,
    samples=(sample(real(2, 3)), sample(real(2, 3), dim=1, keepdim=True), sample(real(0, 3), dim=0)) + COMPLEX,
)
def prod(self, *, dim=None, keepdim=False, dtype=None):
    """Product over one dimension, or of all elements; derivatives of any order are right where elements are zero."""
    axis = tuple(range(self.ndim)) if dim is None else wrap_dims(wrap_dim(dim, self.ndim), self.ndim)
    return jnp.prod(self, axis=axis, keepdims=keepdim, dtype=accumulate_dtype(self, dtype))


@operator(samples=(sample(real(2, 3)), sample(real(3, 3))) + COMPLEX)
def trace(self):
    """The sum of a matrix's diagonal."""
    if self.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.ndim}")
    return jnp.trace(self, dtype=accumulate_dtype(self, None))


trace.derivative(self=lambda grad, shapes: grad * jnp.eye(*shapes[0], dtype=grad.dtype))


@operator(samples=ALONG[:3] + (sample(real(2, 3), dim=(0, 1), keepdim=True),) + COMPLEX)
def logsumexp(self, *, dim, keepdim=False):
    """log(sum(exp(input))) over `dim`, without overflow.  Integers are computed in the default dtype."""
    self = as_float(self)
    dims = wrap_dims(dim, self.ndim)
    if not self.size:
        return jnp.log(jnp.sum(jnp.exp(self), axis=dims, keepdims=keepdim))
    return jax.scipy.special.logsumexp(self, axis=dims, keepdims=keepdim)


logsumexp.derivative(
    self=lambda grad, self, result, dim, keepdim: (
        spread(grad, self.shape, dim, keepdim)
        * conj(jnp.exp(as_float(self) - spread(result, self.shape, dim, keepdim)))
    )
)


# -- variance ---------------------------------------------------------------------------------------------------------


def variance(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    require_float(self, "std and var")
    dims = wrap_dims(dim, self.ndim)
    n = math.prod(self.shape[d] for d in dims)
    centred = self - jnp.mean(self, axis=dims, keepdims=True)
    squares = jnp.real(centred * jnp.conj(centred)) if jnp.iscomplexobj(self) else centred * centred
    # PyTorch: no degrees of freedom left gives 0/0 or x/0, never a negative variance.
    return jnp.sum(squares, axis=dims, keepdims=keepdim) / _freedom(n, correction, squares)


def _freedom(n: int, correction: Any, like: Any) -> Any:
    """The degrees of freedom left to n numbers."""
    correction = scalar(like, correction, "correction").astype(jnp.promote_types(like.dtype, jnp.float32))
    return jnp.maximum(0, n - correction).astype(like.dtype)


def deviation(self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    require_float(self, "std and var")

    def size(x: Any, **whole: Any) -> Any:
        return jnp.max(jnp.abs(x - jnp.mean(x, **whole)), **whole, initial=0)

    def compute(x: Any) -> Any:
        return safe_sqrt(variance(x, dim, correction, keepdim))

    def slope(x: Any, result: Any) -> Any:
        return _deviation_slope(x, result, dim, correction)

    return scaled(compute, self, size, slope, dict(axis=wrap_dims(dim, self.ndim), keepdims=keepdim))


def scaled(
    compute: Callable[..., Any], x: Any, size: Callable[..., Any], slope: Callable[..., Any], reduce: Any, p: float = 2
) -> Any:
    """compute(x), where compute(s * x) is s times as much, without powers that leave the range.

    compute: the root of a sum of the powers `p`; `size`: the number in it that counts most.  If a result is so far from
    1 that a power may have left the range, a power of two brings that number near 1.  slope: of x and the result.
    reduce: the dimensions, as a reduction takes them.
    """
    if not x.size:
        return compute(x)
    limit = -jnp.finfo(x.dtype).minexp
    far = 2.0 ** (limit / 2 / abs(p))

    def again(x: Any) -> Any:
        most = size(x, **{**reduce, "keepdims": True})
        exponent = jnp.where((most > 0) & jnp.isfinite(most), frexp(most)[1] - 1, 0)
        scale = ldexp(jnp.ones_like(most), jnp.clip(exponent, -limit, limit))  # 1 / scale is in the range too
        found = compute(x / scale)
        return found * scale.reshape(found.shape)

    @jax.custom_jvp
    def result(x: Any) -> Any:
        found = compute(x)
        return jax.lax.cond(((found > 1 / far) & (found < far)).all(), lambda: found, lambda: again(x))

    @result.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        out = result(*primals)
        return out, jnp.sum(jnp.real(jnp.conj(slope(*primals, out)) * tangents[0]), **reduce)

    return result(x)


def beside(result: Any, dims: tuple[int, ...] | None, ndim: int) -> Any:
    """The result of a reduction over `dims` with all its dimensions."""
    return result if result.ndim == ndim else jnp.expand_dims(result, range(ndim) if dims is None else dims)


def _deviation_slope(self: Any, result: Any, dim: Any, correction: Any) -> Any:
    dims = wrap_dims(dim, self.ndim)
    none = result == 0  # the derivative is 0 there, of any order
    length = beside(jnp.where(none, 1, result), dims, self.ndim)
    turned = over_real(self - jnp.mean(self, axis=dims, keepdims=True), length)
    turned = jnp.where(beside(none, dims, self.ndim), 0, turned)
    return turned / _freedom(count(self.shape, dim), correction, result)


def safe_sqrt(x: Any) -> Any:
    """The square root, with derivatives of 0 where it is 0 (`jnp.sqrt` has infinite ones)."""
    zero = x == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, x)))


def variance_grad(grad: Any, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    dims = wrap_dims(dim, self.ndim)
    n = math.prod(self.shape[d] for d in dims)
    grad = restore_dims(grad, self.shape, dims, keepdim)
    return grad * (self - jnp.mean(self, axis=dims, keepdims=True)) * (2 / _freedom(n, correction, grad))


def deviation_grad(grad: Any, self: Any, result: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
    return spread(grad, self.shape, dim, keepdim) * _deviation_slope(self, result, dim, correction)


private: dict[str, Any] = dict(function=False, method=False, signature="input, dim=None, correction=1, keepdim=False")


_VARIANCES = (sample(real(2, 3)), sample(real(2, 3), 0, dim=1, keepdim=True), sample(real(2, 3), dim=(0, 1)))


@operator("var", **private, samples=_VARIANCES + COMPLEX)
def _var(self, correction=1, *, dim=None, keepdim=False):
    return variance(self, dim, correction, keepdim)


@operator("std", **private, samples=_VARIANCES + COMPLEX)
def _std(self, correction=1, *, dim=None, keepdim=False):
    return deviation(self, dim, correction, keepdim)


@operator("var_mean", out=False, **private, samples=_VARIANCES + COMPLEX)
def _var_mean(self, correction=1, *, dim=None, keepdim=False):
    return variance(self, dim, correction, keepdim), jnp.mean(self, axis=wrap_dims(dim, self.ndim), keepdims=keepdim)


@operator("std_mean", out=False, **private, samples=_VARIANCES + COMPLEX)
def _std_mean(self, correction=1, *, dim=None, keepdim=False):
    return deviation(self, dim, correction, keepdim), jnp.mean(self, axis=wrap_dims(dim, self.ndim), keepdims=keepdim)


_var.derivative(self=variance_grad)
_std.derivative(self=deviation_grad)


def _overloads(name: str, op: Any, what: str) -> None:
    """The public function with PyTorch's three overloads: (dim, unbiased, keepdim), (unbiased) and (*, correction)."""

    def public(
        input: Tensor, dim: Any = None, unbiased: bool | None = None, keepdim: bool = False, *,
        correction: float | None = None, out: Tensor | None = None,
    ) -> Any:  # fmt: skip
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if unbiased is not None:
            if correction is not None:
                raise TypeError(f"{name}(): give unbiased= or correction=, not both")
            correction = int(unbiased)
        given = {} if out is None else {"out": out}
        return op.function(input, dim, 1 if correction is None else correction, keepdim, **given)

    public.__name__ = public.__qualname__ = name
    public.__doc__ = (
        f"{what} over `dim` (all dimensions by default), divided by n - `correction` (1: unbiased).\n\n"
        "`unbiased=False` is `correction=0`.  A complex input has a real variance."
    )
    composite(name)(public)


_overloads("var", _var, "Variance")
_overloads("std", _std, "Standard deviation")
_overloads("var_mean", _var_mean, "(Variance, mean)")
_overloads("std_mean", _std_mean, "(Standard deviation, mean)")


# -- truth and counting -----------------------------------------------------------------------------------------------


def _truth(self, combine, dim, keepdim):
    result = combine(self != 0, axis=_truth_dims(dim, self.ndim), keepdims=keepdim)  # of a complex number both parts
    return result.astype(np.uint8) if self.dtype == np.uint8 else result  # as PyTorch, for old masks


def _truth_dims(dim, ndim):
    """Return the dimensions to look along; an empty tuple means none of them here, and all in sums, as in PyTorch."""
    return () if isinstance(dim, (tuple, list)) and not dim else wrap_dims(dim, ndim)


@operator("all", signature="input, dim=None, keepdim=False", differentiable=False, samples=REDUCTION + COMPLEX)
def all_(self, *, dim=None, keepdim=False):
    """Return whether all elements along `dim` are true (not zero): of all dimensions by default, of none for ()."""
    return _truth(self, jnp.all, dim, keepdim)


@operator("any", signature="input, dim=None, keepdim=False", differentiable=False, samples=REDUCTION + COMPLEX)
def any_(self, *, dim=None, keepdim=False):
    """Return whether any element along `dim` is true (not zero): of all dimensions by default, of none for ()."""
    return _truth(self, jnp.any, dim, keepdim)


@operator(
    differentiable=False,
    out=False,
    samples=(sample(real(2, 3)), sample(whole(-1, 2, 2, 3), dim=1), sample(real(0, 3), dim=0)) + COMPLEX,
)
def count_nonzero(self, *, dim=None):
    """The number of elements along `dim` (all dimensions by default) that are not zero."""
    return jnp.count_nonzero(self, axis=wrap_dims(dim, self.ndim)).astype(dtypes.default_integer())


@operator(
    signature="input, dim=(), *, keepdim=False, mode=0",
    differentiable=False,
    samples=(sample(real(2, 3)), sample(whole(0, 9, 2, 3), dim=1)),
)
def hash_tensor(self, *, dim=(), keepdim=False, mode=0):
    """The bits of all elements, or of those along `dim`, combined by exclusive or: a uint64, which needs x64.

    Elements are converted to float64 or int64 first.  `mode` is 0.
    """
    if mode:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}, not 0 (xor_sum)")
    if self.dtype in dtypes.COMPLEX:
        raise NotImplementedError(f"\"hash_tensor\" not implemented for '{dtypes.torch_name(self.dtype)}'")
    wide = dtypes.exact_dtype(dtypes.uint64)
    if self.dtype in dtypes.FLOATS:
        bits = jax.lax.bitcast_convert_type(self.astype(dtypes.float64), wide)
    else:
        bits = self.astype(wide)
    dims = wrap_dims(dim, self.ndim)
    if not self.size:
        empty = next((d for d in dims if not self.shape[d]), None)
        if dim == () or dim is None:
            raise RuntimeError("hash_tensor: Expected reduction dim to be specified for input.numel() == 0.")
        if empty is not None:
            raise IndexError(f"hash_tensor: Expected reduction dim {empty} to have non-zero size.")
    found = jax.lax.reduce(bits, np.zeros((), wide), jax.lax.bitwise_xor, dims)
    return jnp.expand_dims(found, dims) if keepdim else found
