"""xgrad.linalg: determinants, inverses, solvers, decompositions.

Importing it imports the products and the norms.  Formulas are given where the saved result makes the gradient cheaper
than the derived one (`inv`, `solve`, `cholesky`); the rest is derived from `jax.numpy.linalg` and `jax.scipy.linalg`.
(PyTorch: aten/src/ATen/native/BatchLinearAlgebra.cpp, torch/csrc/autograd/FunctionsManual.cpp.)
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg

from .. import dtypes, return_types
from ..tensor import Tensor
from . import norms as norms
from . import products as products
from .promotion import conj
from .products import require_same
from .registry import FUNCTIONS, METHODS, composite, operator

linalg = partial(operator, namespace="linalg", method=False)


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return conj(x.mT)


def require_matrices(A: Any, name: str, square: bool = True) -> None:
    """Refuse what is no (batch of) floating-point (square) matrices."""
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions, but it has {A.ndim}.")
    if square and A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {A.shape[-2]} by {A.shape[-1]} matrices")
    if A.dtype not in dtypes.INEXACT or A.dtype.itemsize < 4:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor of 32 bits or more as input. Got {A.dtype.name}")


# -- determinants -----------------------------------------------------------------------------------------------------


@linalg("linalg_det")
def det(A):
    """The determinants of square matrices."""
    require_matrices(A, "linalg.det")
    return jnp.linalg.det(A)


@linalg("linalg_slogdet", outputs=return_types.linalg_slogdet)
def slogdet(A):
    """The named tuple (sign, logabsdet) of the determinants of square matrices."""
    require_matrices(A, "linalg.slogdet")
    sign, logabsdet = jnp.linalg.slogdet(A)
    return sign, logabsdet


@operator
def logdet(self):
    """The logarithms of the determinants of square matrices; NaN where one is negative."""
    require_matrices(self, "logdet")
    sign, logabsdet = jnp.linalg.slogdet(self)
    return jnp.log(sign) + logabsdet


# -- inverses and solvers ---------------------------------------------------------------------------------------------


@linalg("linalg_inv")
def inv(A):
    """The inverses of square matrices.  A singular matrix gives infinities or NaNs: values are not looked at."""
    require_matrices(A, "linalg.inv")
    return jnp.linalg.inv(A) if A.size else A


inv.derivative(A=lambda grad, result: -(adjoint(result) @ grad @ adjoint(result)))


def _is_vector(A: tuple, B: tuple) -> bool:
    return len(B) == 1 or (len(A) - 1 == len(B) and A[:-1] == B)


def _solve(A, B, left=True):
    """A^-1 B for matrices whose batches broadcast; B A^-1 if not `left`."""
    if not left:
        return _solve(A.mT, B.mT).mT
    batch = jnp.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    A, B = (jnp.broadcast_to(x, batch + x.shape[-2:]) for x in (A, B))
    return jnp.linalg.solve(A, B) if A.size and B.size else jnp.zeros_like(B)


@linalg("linalg_solve", signature="A, B, *, left=True")
def solve(A, B, *, left=True):
    """The X with A X = B (X A = B if not `left`), for batches that broadcast; B may be a vector.

    >>> import xgrad
    >>> xgrad.linalg.solve(xgrad.tensor([[2.0, 0.0], [0.0, 4.0]]), xgrad.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000])
    """
    require_matrices(A, "linalg.solve")
    require_same(A, B, "linalg.solve")
    vector = _is_vector(A.shape, B.shape)
    if vector:
        B = B[..., None]
        left = True
    if B.shape[-2 if left else -1] != A.shape[-1]:
        raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation AX = B ({list(A.shape)} and {list(B.shape)})")
    X = _solve(A, B, left)
    return X[..., 0] if vector else X


def _solve_grad_b(grad, A, shapes, left):
    vector = _is_vector(*shapes)
    found = _solve(adjoint(A), grad[..., None] if vector else grad, left or vector)
    return found[..., 0] if vector else found


def _solve_grad_a(grad, A, result, shapes, left):
    vector = _is_vector(*shapes)
    found = _solve_grad_b(grad, A, shapes, left)
    if vector:
        found, result = found[..., None], result[..., None]
    return -(found @ adjoint(result)) if left or vector else -(adjoint(result) @ found)


solve.derivative(A=_solve_grad_a, B=_solve_grad_b)


@linalg("linalg_solve_triangular", signature="A, B, *, upper, left=True, unitriangular=False")
def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """The X with A X = B (X A = B if not `left`) for triangular A; the other triangle is not read."""
    require_matrices(A, "linalg.solve_triangular")
    require_same(A, B, "linalg.solve_triangular")
    batch = jnp.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    A, B = (jnp.broadcast_to(x, batch + x.shape[-2:]) for x in (A, B))
    return jax.lax.linalg.triangular_solve(A, B, left_side=left, lower=not upper, unit_diagonal=unitriangular)


@operator(signature="input, A, upper=True, transpose=False, unitriangular=False", outputs=None, function=False, method=False)
def triangular_solve(self, A, *, upper=True, transpose=False, unitriangular=False):
    batch = jnp.broadcast_shapes(A.shape[:-2], self.shape[:-2])
    A, B = (jnp.broadcast_to(x, batch + x.shape[-2:]) for x in (A, self))
    return jax.lax.linalg.triangular_solve(
        A, B, left_side=True, lower=not upper, transpose_a=transpose, unit_diagonal=unitriangular
    )


# -- Cholesky ---------------------------------------------------------------------------------------------------------


def _cholesky(A, upper):
    L = jnp.tril(jax.lax.linalg.cholesky(adjoint(A) if upper else A, symmetrize_input=False))
    return adjoint(L) if upper else L


@linalg("linalg_cholesky", signature="A, *, upper=False")
def cholesky(A, *, upper=False):
    """The triangular factor L of A = L L^H; with `upper` U of A = U^H U.  Only that triangle of A is read.

    A matrix that is not positive definite gives NaNs: values are not looked at.
    """
    require_matrices(A, "linalg.cholesky")
    return _cholesky(A, upper) if A.size else A


def _cholesky_grad(grad, result, upper):
    """L^-H Φ(L^H grad) L^-1 with Φ the Hermitian part of the lower triangle, as in PyTorch's cholesky_backward."""
    if not result.size:
        return grad
    L, grad = (adjoint(result), adjoint(grad)) if upper else (result, grad)
    phi = jnp.tril(adjoint(L) @ grad)
    phi = (phi + adjoint(jnp.tril(phi, -1))) / 2
    solve_l = partial(jax.lax.linalg.triangular_solve, L, lower=True)
    phi = solve_l(phi, left_side=True, transpose_a=True, conjugate_a=True)
    return solve_l(phi, left_side=False)


cholesky.derivative(A=_cholesky_grad)


@operator
def cholesky_inverse(self, *, upper=False):
    """The inverse of L L^H (U^H U if `upper`), given the factor."""
    L = adjoint(jnp.triu(self)) if upper else jnp.tril(self)
    eye = jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape)
    return jax.scipy.linalg.cho_solve((L, True), eye)


@operator(signature="B, L, upper=False")
def cholesky_solve(B, L, *, upper=False):
    """The X with A X = B, given the Cholesky factor L of A."""
    batch = jnp.broadcast_shapes(L.shape[:-2], B.shape[:-2])
    L, B = (jnp.broadcast_to(x, batch + x.shape[-2:]) for x in (L, B))
    return jax.scipy.linalg.cho_solve((jnp.triu(L) if upper else jnp.tril(L), not upper), B)


# -- powers and exponentials ------------------------------------------------------------------------------------------


@linalg("linalg_matrix_power")
def matrix_power(A, *, n):
    """The product of `n` times a square matrix; a negative `n` inverts it, 0 gives the identity."""
    require_matrices(A, "linalg.matrix_power")
    return jnp.linalg.matrix_power(A, n)


@linalg("linalg_matrix_exp")
def matrix_exp(A):
    """The exponentials of square matrices."""
    require_matrices(A, "linalg.matrix_exp")
    return jax.scipy.linalg.expm(A) if A.size else A


# -- decompositions ---------------------------------------------------------------------------------------------------


@linalg("linalg_qr", outputs=return_types.linalg_qr)
def qr(A, *, mode="reduced"):
    """The named tuple (Q, R) of A = Q R; `mode`: "reduced", "complete" or "r" (Q is then empty)."""
    require_matrices(A, "linalg.qr", square=False)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    if mode == "r":
        return jnp.zeros((0,), A.dtype), jnp.linalg.qr(A, mode="r")
    Q, R = jnp.linalg.qr(A, mode=mode)
    return Q, R


@linalg("linalg_eigh", signature='A, UPLO="L"', outputs=return_types.linalg_eigh)
def eigh(A, *, UPLO="L"):
    """The named tuple (eigenvalues, eigenvectors) of Hermitian matrices, of which one triangle is read."""
    require_matrices(A, "linalg.eigh")
    values, vectors = jnp.linalg.eigh(A, UPLO=UPLO.upper(), symmetrize_input=False)
    return values, vectors


@linalg("linalg_eigvalsh", signature='A, UPLO="L"')
def eigvalsh(A, *, UPLO="L"):
    """The eigenvalues of Hermitian matrices in ascending order."""
    return eigh(A, UPLO=UPLO)[0]


@linalg("linalg_svd", signature="A, full_matrices=True, *, driver=None", outputs=return_types.linalg_svd)
def svd(A, *, full_matrices=True, driver=None):
    """The named tuple (U, S, Vh) of A = U diag(S) Vh.  Differentiable with `full_matrices=False`."""
    require_matrices(A, "linalg.svd", square=False)
    U, S, Vh = jnp.linalg.svd(A, full_matrices=full_matrices)
    return U, S, Vh


@linalg("linalg_svdvals", signature="A, *, driver=None")
def svdvals(A, *, driver=None):
    """The singular values in descending order."""
    require_matrices(A, "linalg.svdvals", square=False)
    return jnp.linalg.svd(A, compute_uv=False)


@linalg("linalg_pinv", signature="A, *, atol=None, rtol=None, hermitian=False")
def pinv(A, *, atol=None, rtol=None, hermitian=False):
    """The pseudo-inverse: singular values up to max(atol, rtol * the largest one) count as zero."""
    require_matrices(A, "linalg.pinv", square=hermitian)
    if not A.size:
        return jnp.zeros(A.mT.shape, A.dtype)
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * float(jnp.finfo(A.dtype).eps)
    if atol:
        largest = jnp.max(jax.lax.stop_gradient(jnp.linalg.svd(A, compute_uv=False)), axis=-1)
        rtol = jnp.maximum(atol / largest, rtol)
    return jnp.linalg.pinv(A, rtol=rtol, hermitian=hermitian)


@linalg("linalg_matrix_rank", signature="A, *, atol=None, rtol=None, hermitian=False", differentiable=False)
def matrix_rank(A, *, atol=None, rtol=None, hermitian=False):
    """The number of singular values above max(atol, rtol * the largest one)."""
    require_matrices(A, "linalg.matrix_rank", square=hermitian)
    if not A.size:
        return jnp.zeros(A.shape[:-2], dtypes.default_integer())
    values = jnp.linalg.svd(A, compute_uv=False)
    if rtol is None:
        rtol = 0.0 if atol else max(A.shape[-2:]) * float(jnp.finfo(A.dtype).eps)
    bound = jnp.maximum(atol or 0.0, rtol * jnp.max(values, axis=-1, keepdims=True))
    return jnp.sum(values > bound, axis=-1).astype(dtypes.default_integer())


# -- top-level names and older forms --------------------------------------------------------------------------------------

for _name, _op in {
    "det": det, "slogdet": slogdet, "inverse": inv, "matrix_power": matrix_power, "matrix_exp": matrix_exp,
    "pinverse": pinv,
}.items():  # fmt: skip
    FUNCTIONS[""][_name] = METHODS[_name] = _op.function


@composite("cholesky")
def _old_cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`linalg.cholesky`."""
    return cholesky.function(input, upper=upper) if out is None else cholesky.function(input, upper=upper, out=out)


@composite("qr")
def _old_qr(input: Tensor, some: bool = True) -> Any:
    """`linalg.qr`; with `some=False` the complete decomposition."""
    return return_types.qr(*qr.function(input, mode="reduced" if some else "complete"))


@composite("svd")
def _old_svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """The named tuple (U, S, V) of input = U diag(S) V^H; `linalg.svd` gives V^H."""
    U, S, Vh = svd.function(input, full_matrices=not some)
    return return_types.svd(U, S, Vh.mH)
