"""norm, dist, cdist, renorm, linalg.norm, linalg.vector_norm, ...: compute norms of vectors, matrices, differences.

Derivatives are PyTorch's subgradients: 0 where a norm is 0, and the largest elements share the infinity norm's evenly.
They are built into the function with `jnp.where`, so that they hold in forward mode and in second order as well.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.argument_kinds import checking, require_number
from ...dispatch.declare import composite, internal, operator
from ...dispatch.promotion import broadcast_shapes, common_dtype, promote, require_float, wrap_dims
from ...dispatch.samples import COMPLEX, real, sample
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..pointwise.ends import over_real, quotient, unit
from .reduction import beside, safe_sqrt, scaled

private: dict[str, Any] = dict(function=False, method=False)
INF = float("inf")


def magnitude(x: Any) -> Any:
    """The absolute value, whose derivative is 0 at 0 (the derivative of `jnp.abs` is 1)."""
    zero = x == 0
    return jnp.where(zero, 0, jnp.abs(jnp.where(zero, 1, x)))


def p_norm(x: Any, p: float, dims: tuple[int, ...] | None, keepdim: bool) -> Any:
    """(sum |x|^p)^(1/p) over `dims`, and its limits at 0 and ±inf."""
    if not x.size and (p < 0 or p == INF) and any(x.shape[d] == 0 for d in dims or range(x.ndim)):
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {p} norm on an empty tensor because the operation does not have "
            "an identity"
        )
    reduce: dict[str, Any] = dict(axis=dims, keepdims=keepdim)
    if p == 0:
        return jnp.sum((x != 0).astype(dtypes.real_of(x.dtype)), **reduce)
    if all(x.shape[d] == 1 for d in (range(x.ndim) if dims is None else dims)):
        p = 1  # of one number, whose square may leave the range
    if p in (1, INF, -INF):
        return {1: jnp.sum, INF: jnp.max, -INF: jnp.min}[p](magnitude(x), **reduce)

    def norm(x: Any) -> Any:
        if p == 2:
            return safe_sqrt(jnp.sum(jnp.real(x * jnp.conj(x)) if jnp.iscomplexobj(x) else x * x, **reduce))
        # |x|^p has no derivative at 0 for p <= 1, and the root none at 0: both count as constant there.
        size, zero = magnitude(x), x == 0
        total = jnp.sum(jnp.where(zero, 0 if p > 0 else INF, jnp.where(zero, 1, size) ** p), **reduce)
        none = (total == 0) | jnp.isinf(total)
        return jnp.where(none, jax.lax.stop_gradient(total) ** (1 / p), jnp.where(none, 1, total) ** (1 / p))

    def size(x: Any, **each: Any) -> Any:
        return jnp.max(jnp.abs(x), **each, initial=0) if p > 0 else jnp.min(jnp.abs(x), **each)

    def slope(x: Any, result: Any) -> Any:
        length = beside(result, dims, x.ndim)
        none = length == 0
        length = jnp.where(none, 1, length)
        if p == 2:
            return over_real(x, length)
        ratio = quotient(magnitude(x), length)
        none |= ratio == 0
        return jnp.where(none, 0, unit(x) * jnp.where(none, 1, ratio) ** (p - 1))

    return norm(x) if -1 < p < 1 else scaled(norm, x, size, slope, reduce, p)


def _converted(self, dtype, name):
    if self.dtype not in dtypes.INEXACT:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {dtypes.torch_name(self.dtype)}"
        )
    if dtype is None:
        return self
    if (dtype in dtypes.COMPLEX) != (self.dtype in dtypes.COMPLEX) or dtype not in dtypes.INEXACT:
        raise RuntimeError(
            f"{name}: dtype should be {'complex' if jnp.iscomplexobj(self) else 'real'}, but got {dtype.name}"
        )
    return self.astype(dtype)


@operator(
    "linalg_vector_norm",
    namespace="linalg",
    method=False,
    signature="x, ord=2, dim=None, keepdim=False, *, dtype=None",
    samples=tuple([sample(real(2, 3), ord=p) for p in (2, 1, 0, 3.5, -1, INF, -INF)])
    + (sample(real(2, 3), dim=1, keepdim=True), sample(real(0, 3)))
    + COMPLEX,
)
def vector_norm(x, *, ord=2, dim=None, keepdim=False, dtype=None):
    """The `ord`-norm of vectors along `dim`, or of all elements.

    `ord`: any number; 0 counts what is not zero, ±inf takes the largest or smallest magnitude.

    >>> import xgrad
    >>> xgrad.linalg.vector_norm(xgrad.tensor([3.0, 4.0]))
    tensor(5.)
    """
    x = _converted(x, dtype, "linalg.vector_norm")
    return p_norm(x, float(ord), wrap_dims(dim, x.ndim), keepdim)


@operator(
    "linalg_matrix_norm",
    signature="A, ord, dim, keepdim",
    **private,
    samples=tuple([sample(real(2, 3), ord=p, dim=(0, 1), keepdim=p == 1) for p in (1, "nuc", 2, -2, -1, INF)])
    + COMPLEX,
)
def _matrix_norm(A, *, ord, dim, keepdim):
    rows, columns = dim
    A = jnp.moveaxis(_converted(A, None, "linalg.matrix_norm"), dim, (-2, -1))
    if ord in ("nuc", 2, -2):
        found = jnp.linalg.svd(A, compute_uv=False)
    else:
        found = jnp.sum(magnitude(A), axis=-2 if abs(ord) == 1 else -1)
    if not found.shape[-1] and ord != "nuc" and ord < 0:
        raise IndexError(f"linalg.matrix_norm: matrices without elements have no norm of order {ord}")
    # The largest of no numbers is 0, as in PyTorch.
    found = (jnp.sum if ord == "nuc" or not found.shape[-1] else jnp.max if ord > 0 else jnp.min)(found, axis=-1)
    return jnp.expand_dims(found, tuple(sorted((rows, columns)))) if keepdim else found


def matrix_norm(
    A: Tensor,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    """The norm of matrices in two dimensions: "fro", "nuc", ±1, ±2, ±inf.

    >>> import xgrad
    >>> xgrad.linalg.matrix_norm(xgrad.eye(4))
    tensor(2.)
    """
    if A.ndim < 2:
        raise RuntimeError(f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, but has {A.ndim}")
    dims = wrap_dims(tuple(dim), A.ndim)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {tuple(dim)}")
    if dtype is not None:
        A = A.to(dtype)
    if ord == "fro":
        result = vector_norm.function(A, 2, dims, keepdim)
    elif ord in ("nuc", 1, -1, 2, -2, INF, -INF):
        if ord in ("nuc", 2, -2) and A.dtype in (dtypes.bfloat16, dtypes.float16):  # singular values
            raise RuntimeError(
                f"linalg.matrix_norm: Low precision dtypes not supported. Got {dtypes.torch_name(A._dtype)}; give "
                "dtype=xgrad.float32"
            )
        result = _matrix_norm.function(A, ord, dims, keepdim)
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    return result if out is None else out.copy_(result)


def linalg_norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Tensor | None = None
) -> Tensor:
    """A matrix norm for two dimensions and a given `ord`, else a vector norm (2 by default)."""
    if isinstance(dim, int):
        dim = (dim,)
    if isinstance(ord, str) or (ord is not None and (len(dim) == 2 if dim is not None else A.ndim == 2)):
        if dim is None and A.ndim != 2:
            raise RuntimeError("linalg.norm: If ord is specified but dim is not, the input must be 1D or 2D")
        return matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype, out=out)
    if ord is not None and dim is None and A.ndim != 1:
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
        )
    given = {} if out is None else {"out": out}
    return vector_norm.function(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype, **given)


FUNCTIONS["linalg"].update(matrix_norm=checking("matrix_norm", matrix_norm), norm=checking("linalg_norm", linalg_norm))


@composite
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Tensor | None = None, dtype: Any = None
) -> Tensor:
    """The `p`-norm of all elements or along `dim`; "fro" is 2, "nuc" the sum of a matrix's singular values."""
    if p == "nuc":
        return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype, out=out)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"norm(): only valid values for string argument p are 'fro' and 'nuc', but got '{p}'")
    given = {} if out is None else {"out": out}
    return vector_norm.function(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype, **given)


@operator(
    out=False,
    # Of the last no two differences are equal, in bfloat16 either.
    samples=tuple([sample(real(2, 3), real(3), p=p) for p in (2, 1, 0, 3.5)])
    + (sample(real(2, 2), real(2), p=INF), *COMPLEX),
)
def dist(self, other, *, p=2):
    """The `p`-norm of `input - other`, which broadcast."""
    self, other = promote(self, other)
    broadcast_shapes(self.shape, other.shape)
    difference = self - other
    require_float(difference, "dist()")
    if not difference.size:
        return jnp.zeros((), dtypes.real_of(difference.dtype))
    return p_norm(difference, float(p), None, False)


@operator(
    inplace=True,
    signature="input, p, dim, maxnorm",
    samples=(sample(real(2, 3), 1.5, p=2, dim=0), sample(real(2, 3), 1.5, p=1.5, dim=1)) + COMPLEX,
)
def renorm(self, maxnorm, *, p, dim):
    """The sub-tensors along `dim`, those whose `p`-norm is larger scaled down to `maxnorm`."""
    if not isinstance(p, (int, float)):
        raise TypeError(f"renorm(): argument 'p' must be Number, not {type(p).__name__}")
    if not p > 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported: p is {p}, and has to be above 0")
    if self.dtype not in dtypes.INEXACT:
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. "
            f"Got {dtypes.torch_name(self.dtype)} (renorm)"
        )
    if not isinstance(dim, int):
        raise TypeError(f"renorm(): argument 'dim' (position 3) must be int, not {type(dim).__name__}")
    dims = wrap_dims(dim, self.ndim)
    others = tuple(d for d in range(self.ndim) if d not in dims)
    size = p_norm(self, float(p), others, True)
    above = size > maxnorm
    factor = jnp.where(above, quotient(maxnorm, jnp.where(above, size, 1) + 1e-7), 1)
    return self * factor.astype(self.dtype)


_MODES = None, "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"


@operator(
    method=False,
    out=False,
    signature="x1, x2, p=2.0, compute_mode=None",
    samples=tuple([sample(real(2, 3), real(4, 3), p=p) for p in (2.0, 1.0, 0.0, 3.5)])
    + (sample(real(3, 2), real(2, 2), p=INF),),
)
def cdist(x1, x2, *, p=2.0, compute_mode=None):
    """The `p`-norms of the differences of all pairs of rows: (..., m, d) and (..., n, d) give (..., m, n).

    Distances are computed from the differences in every `compute_mode`.
    """
    require_number("cdist", p=p)
    if not p >= 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            "cdist only supports at least 2D tensors, and X1 and X2 must have the same number of columns, but got "
            f"{list(x1.shape)} and {list(x2.shape)}"
        )
    for n, x in ((1, x1), (2, x2)):
        if x.dtype not in dtypes.FLOATS:
            raise RuntimeError(f"cdist only supports floating-point dtypes, X{n} got: {dtypes.torch_name(x.dtype)}")
    x1, x2 = promote(x1, x2)
    difference = x1[..., :, None, :] - x2[..., None, :, :]
    if not difference.size:
        return jnp.sum(difference, axis=-1)
    if p == 2:  # unscaled: to look at differences twice puts all of them into memory
        return safe_sqrt(jnp.sum(difference * difference, axis=-1))
    return p_norm(difference, float(p), (difference.ndim - 1,), False)


@internal(
    samples=(sample(real(2, 3), real(2), p=2.0), sample(real(2, 3), real(2), p=INF), sample(real(3), p=1.0), *COMPLEX)
)
def total_norm(*tensors, p):
    """The `p`-norm of the `p`-norms of tensors, which is the norm of all their elements."""
    norms = [p_norm(x, p, None, False) for x in tensors]
    dtype = common_dtype(*norms)
    return p_norm(jnp.stack([x.astype(dtype) for x in norms]), p, (0,), False)


# -- older forms ------------------------------------------------------------------------------------------------------


@composite(method=False)
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The Frobenius norm over one or two dimensions, or over all for an empty `dim`."""
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) > 2:
        raise RuntimeError(f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead.")
    return vector_norm.function(input, 2, dims or None, keepdim, **({} if out is None else {"out": out}))


@composite(method=False)
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The sum of the singular values of matrices in two dimensions, the last ones unless `dim` names them."""
    if isinstance(dim, bool):  # nuclear_norm(input, keepdim)
        dim, keepdim = None, dim
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, out=out)


@composite(method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm of order `pow` over all dimensions but `dim`, which keep their places with size 1; over all for -1."""
    if dim == -1:
        return vector_norm.function(v, pow)
    kept = wrap_dims(dim, v.ndim)[0]
    others = tuple(d for d in range(v.ndim) if d != kept)
    return vector_norm.function(v, pow, others, True) if others else v.abs()
