"""xgrad.linalg: QR, eigenvalue, singular value and LU decompositions, and what is made of them.

The derivatives are those of `jax.numpy.linalg`, derived.  They exist where the decomposition is unique up to phases:
reduced forms, distinct eigenvalues or singular values.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from .. import dtypes, return_types
from .promotion import conj
from .registry import operator

linalg = partial(operator, namespace="linalg", method=False)


def require_matrices(A: Any, name: str, square: bool = True) -> None:
    """Refuse what is no (batch of) floating-point (square) matrices."""
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions, but it has {A.ndim}.")
    if square and A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {A.shape[-2]} by {A.shape[-1]} matrices"
        )
    if A.dtype not in dtypes.INEXACT or A.dtype.itemsize < 4:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor of 32 bits or more as input. Got {A.dtype.name}"
        )


# -- decompositions ---------------------------------------------------------------------------------------------------


@linalg("linalg_qr", outputs=return_types.linalg_qr)
def qr(A, *, mode="reduced"):
    """The named tuple (Q, R) of A = Q R; `mode`: "reduced", "complete" or "r" (Q is then empty)."""
    require_matrices(A, "linalg.qr", square=False)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
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
    """The named tuple (U, S, Vh) of A = U diag(S) Vh.

    With `full_matrices` U and Vh are square; the columns beyond the reduced form are any basis, without a gradient.
    """
    require_matrices(A, "linalg.svd", square=False)
    U, S, Vh = jnp.linalg.svd(A, full_matrices=False)
    return (_completed(U), S, _completed(Vh.mT).mT) if full_matrices else (U, S, Vh)


def _completed(Q: Any) -> Any:
    """Orthonormal columns, and a basis of what is orthogonal to them."""
    m, k = Q.shape[-2:]
    if m == k:
        return Q
    if not k:
        return jnp.broadcast_to(jnp.eye(m, dtype=Q.dtype), (*Q.shape[:-2], m, m))
    rest = jnp.linalg.qr(jax.lax.stop_gradient(Q), mode="complete")[0][..., k:]
    return jnp.concatenate([Q, rest], axis=-1)


@linalg("linalg_svdvals", signature="A, *, driver=None")
def svdvals(A, *, driver=None):
    """The singular values in descending order."""
    require_matrices(A, "linalg.svdvals", square=False)
    return jnp.linalg.svd(A, compute_uv=False)


# -- from singular values ---------------------------------------------------------------------------------------------


def _hermitian(A: Any) -> Any:
    """The Hermitian matrix of which A's lower triangle is read; differentiated as if that were A."""
    lower = jnp.tril(A)
    full = lower + conj(jnp.tril(A, -1).mT)
    return A + jax.lax.stop_gradient(full - A)


def _relative(A: Any, values: Any, atol: Any, rtol: Any) -> Any:
    """max(atol / the largest singular value, rtol), one for each matrix; by default n eps, or 0 if atol is given."""
    if rtol is None:
        rtol = max(A.shape[-2:]) * jnp.finfo(A.dtype).eps
        rtol = rtol if atol is None else jnp.where(jnp.asarray(atol) > 0, 0, rtol)
    if atol is None:
        return jnp.asarray(rtol)
    return jnp.maximum(atol / jnp.max(values, axis=-1), rtol)


@linalg("linalg_pinv", signature="A, rcond=None, hermitian=False, *, atol=None, rtol=None")
def pinv(A, rcond=None, atol=None, rtol=None, *, hermitian=False):
    """The pseudo-inverse: singular values up to max(atol, rtol * the largest one) count as zero."""
    require_matrices(A, "linalg.pinv", square=hermitian)
    if not A.size:
        return jnp.zeros(A.mT.shape, A.dtype)
    A = _hermitian(A) if hermitian else A
    values = None if atol is None else jnp.linalg.svd(jax.lax.stop_gradient(A), compute_uv=False)
    rtol = _relative(A, values, atol, rtol if rcond is None else rcond)
    return jnp.linalg.pinv(A, rtol=rtol.astype(dtypes.real_of(A.dtype)), hermitian=hermitian)


@linalg("linalg_matrix_rank", signature="A, tol=None, hermitian=False, *, atol=None, rtol=None", differentiable=False)
def matrix_rank(A, tol=None, atol=None, rtol=None, *, hermitian=False):
    """The number of singular values above max(atol, rtol * the largest one); `tol` is an absolute bound."""
    require_matrices(A, "linalg.matrix_rank", square=hermitian)
    if not A.size:
        return jnp.zeros(A.shape[:-2], dtypes.default_integer())
    values = jnp.linalg.svd(_hermitian(A) if hermitian else A, compute_uv=False)
    bound = tol if tol is not None else _relative(A, values, atol, rtol) * jnp.max(values, axis=-1)
    return jnp.sum(values > jnp.expand_dims(bound, -1), axis=-1).astype(dtypes.default_integer())


@linalg("linalg_cond", signature="A, p=None")
def cond(A, *, p=None):
    """The condition numbers: norm(A) * norm(inv(A)) for the norm `p`, by default the ratio of singular values."""
    require_matrices(A, "linalg.cond", square=p not in (None, 2, -2))
    if p in (None, 2, -2):
        values = jnp.linalg.svd(A, compute_uv=False)
        largest, smallest = values[..., 0], values[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    norm = partial(jnp.linalg.norm, ord=p, axis=(-2, -1))
    return norm(A) * norm(jnp.linalg.inv(A))


# -- LU and eigenvalues of general matrices ---------------------------------------------------------------------------


@linalg("linalg_lu", signature="A, *, pivot=True", outputs=return_types.linalg_lu)
def lu(A, *, pivot=True):
    """The named tuple (P, L, U) of A = P L U: permutation, unit lower and upper triangular."""
    require_matrices(A, "linalg.lu", square=False)
    if not pivot:
        raise NotImplementedError("linalg.lu: LU without pivoting is not implemented")
    packed, _, order = jax.lax.linalg.lu(A)
    m, n = A.shape[-2:]
    k = min(m, n)
    L = jnp.tril(packed[..., :k], -1) + jnp.eye(m, k, dtype=A.dtype)
    P = (order[..., None, :] == jnp.arange(m)[:, None]).astype(A.dtype)
    return P, L, jnp.triu(packed[..., :k, :])


@linalg("linalg_eig", outputs=return_types.linalg_eig)
def eig(A):
    """The named tuple (eigenvalues, eigenvectors) of square matrices, complex.  Not on every device and jax release."""
    require_matrices(A, "linalg.eig")
    values, vectors = jnp.linalg.eig(A)
    return values, vectors


@linalg("linalg_eigvals")
def eigvals(A):
    """The complex eigenvalues of square matrices, in no order.  Not on every device and jax release."""
    require_matrices(A, "linalg.eigvals")
    return jnp.linalg.eigvals(A)


@linalg("linalg_vander", signature="x, *, N=None")
def vander(x, *, N=None):
    """The Vandermonde matrices: the powers 0 to N - 1 of each element."""
    x = jnp.atleast_1d(x)
    N = x.shape[-1] if N is None else N
    powers = jnp.broadcast_to(x[..., None], (*x.shape, N)).at[..., :1].set(1)
    return jnp.cumprod(powers, axis=-1)
