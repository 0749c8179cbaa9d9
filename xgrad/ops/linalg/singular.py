"""xgrad.linalg: svd and svdvals, and pinv and matrix_rank, which use the singular values.

Singular vectors are fixed up to a common phase, and have a derivative where singular values are distinct and not 0.
The gradient saves the result, as PyTorch's does (svd_backward, FunctionsManual.cpp).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ... import return_types
from ...base import dtypes
from ...dispatch.declare import composite, operator
from ...dispatch.promotion import conj
from ...dispatch.samples import COMPLEX, SINGLE, definite, real, regular, sample
from ...tensor import Tensor
from .checks import adjoint, require_invariant, require_matrices
from .eigen import watched

linalg: Any = partial(operator, namespace="linalg", method=False)


_WIDE_AND_TALL = (sample(regular(3, 2)), sample(regular(2, 3)), sample(regular(2, 2, 2))) + COMPLEX + SINGLE


@linalg(
    "linalg_svd",
    signature="A, full_matrices=True, *, driver=None",
    outputs=return_types.linalg_svd,
    samples=(*_WIDE_AND_TALL, sample(regular(3, 2), full_matrices=False)),
)
def svd(A, *, full_matrices=True, driver=None):
    """The named tuple (U, S, Vh) of A = U diag(S) Vh.

    With `full_matrices` U and Vh are square; the columns beyond the reduced form are any basis, without a gradient.
    The vectors have no gradient (NaN) where singular values are equal; a loss that depends on the phase of complex
    vectors raises `RuntimeError` in backward.
    """
    require_matrices(A, "linalg.svd", square=False)
    U, S, Vh = jnp.linalg.svd(A, full_matrices=False)
    return (_completed(U), S, _completed(Vh.mT).mT) if full_matrices else (U, S, Vh)


def _completed(Q: Any) -> Any:
    """Orthonormal columns, and a basis of their orthogonal complement."""
    m, k = Q.shape[-2:]
    if m == k:
        return Q
    if not k:
        return jnp.broadcast_to(jnp.eye(m, dtype=Q.dtype), (*Q.shape[:-2], m, m))
    rest = jnp.linalg.qr(jax.lax.stop_gradient(Q), mode="complete")[0][..., k:]
    return jnp.concatenate([Q, rest], axis=-1)


def _reduced(U: Any, Vh: Any) -> tuple[Any, Any]:
    k = min(U.shape[-2], Vh.shape[-1])
    return U[..., :k], Vh[..., :k, :]


def _svd_gradient(grads, results, defined):
    """U (gS + (skew(U^H gU) S + S skew(V^H gV)) / E) V^H with E_ij = S_j² - S_i², and parts outside of both."""
    (gU, gS, gVh), (U, S, Vh) = grads, results
    U, Vh = _reduced(U, Vh)
    if not (defined[0] or defined[2]):
        return (U * gS[..., None, :]) @ Vh
    gU, gVh = _reduced(gU, gVh)
    columns, rows = S[..., None, :], S[..., :, None]
    eye = jnp.eye(S.shape[-1], dtype=S.dtype)
    turned_u, turned_v = adjoint(U) @ gU, Vh @ adjoint(gVh)
    turned_u, turned_v = turned_u - adjoint(turned_u), turned_v - adjoint(turned_v)
    squares = columns * columns - rows * rows
    inner = (turned_u * columns + rows * turned_v) * (1 - eye) / (squares + eye)
    inner = inner + eye * gS[..., None, :]
    if jnp.iscomplexobj(U) and defined[0] and defined[2]:
        inner = inner + eye * (jnp.diagonal(turned_u, axis1=-2, axis2=-1) / (2 * S))[..., None]
    found = U @ inner @ Vh
    if U.shape[-2] > Vh.shape[-1] and defined[0]:
        out = gU / columns
        found = found + (out - U @ (adjoint(U) @ out)) @ Vh
    if U.shape[-2] < Vh.shape[-1] and defined[2]:
        out = gVh / rows
        found = found + U @ (out - (out @ adjoint(Vh)) @ Vh)
    return found


svd.derivative(A=_svd_gradient)


def _check_phases(grads: list, saved: list) -> None:
    (gU, _, gVh), (U, _, Vh) = grads, saved
    turns = [(U, gU, -2, 1)] if gU is not None else []
    if gVh is not None:
        turns.append((Vh, gVh, -1, -1))  # V turns as U does, V^H in the opposite direction
    require_invariant("svd_backward", "singular vectors", turns)


svd.operator.check_gradients = _check_phases


@linalg(
    "linalg_svdvals",
    signature="A, *, driver=None",
    function=False,
    node="LinalgSvdBackward0",
    samples=_WIDE_AND_TALL,
)
def _svdvals(A, *, driver=None):
    require_matrices(A, "linalg.svdvals", square=False)
    return jnp.linalg.svd(A, compute_uv=False)


@composite(method=False, namespace="linalg")
def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """The singular values in descending order; their gradient is right for equal and zero ones, too."""
    if out is None and watched(A):
        return svd.function(A, False)[1]
    return _svdvals.function(A, out=out)


# -- from singular values ---------------------------------------------------------------------------------------------


def _hermitian(A: Any) -> Any:
    """The Hermitian matrix with A's lower triangle; its derivative is A's."""
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


_WITH_BOUNDS = (
    sample(real(3, 2)), sample(real(2, 3), None, 0.01), sample(definite(2, 2), None, None, 0.01, hermitian=True),
    sample(real(0, 2)),
) + COMPLEX + SINGLE  # fmt: skip


@linalg("linalg_pinv", signature="A, rcond=None, hermitian=False, *, atol=None, rtol=None", samples=_WITH_BOUNDS)
def pinv(A, rcond=None, atol=None, rtol=None, *, hermitian=False):
    """The pseudo-inverse: singular values up to max(atol, rtol * the largest one) count as zero."""
    require_matrices(A, "linalg.pinv", square=hermitian)
    if not A.size:
        return jnp.zeros(A.mT.shape, A.dtype)
    A = _hermitian(A) if hermitian else A
    values = None if atol is None else jnp.linalg.svd(jax.lax.stop_gradient(A), compute_uv=False)
    rtol = _relative(A, values, atol, rtol if rcond is None else rcond)
    return pseudo_inverse(A, rtol.astype(dtypes.real_of(A.dtype)), hermitian)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def pseudo_inverse(A: Any, rtol: Any, hermitian: bool = False) -> Any:
    """`jnp.linalg.pinv`, with a derivative that allows a traced `rtol`."""
    return jnp.linalg.pinv(A, rtol=rtol, hermitian=hermitian)


@pseudo_inverse.defjvp
def _pseudo_inverse_tangent(hermitian: bool, primals: tuple, tangents: tuple) -> tuple:
    """Golub and Pereyra, "The differentiation of pseudo-inverses", SIAM J. Numer. Anal. 10 (1973), (4.12)."""
    (A, rtol), (dA, _) = primals, tangents
    P = pseudo_inverse(A, rtol, hermitian)
    Ph, dAh = adjoint(P), adjoint(dA)
    left, right = dAh - (dAh @ A) @ P, dAh - P @ (A @ dAh)
    return P, (P @ Ph) @ left + right @ (Ph @ P) - P @ (dA @ P)


@linalg(
    "linalg_matrix_rank",
    signature="A, tol=None, hermitian=False, *, atol=None, rtol=None",
    differentiable=False,
    samples=(*_WITH_BOUNDS, sample(real(3, 2), 0.5)),
)
def matrix_rank(A, tol=None, atol=None, rtol=None, *, hermitian=False):
    """The number of singular values above max(atol, rtol * the largest one); `tol` is an absolute bound."""
    require_matrices(A, "linalg.matrix_rank", square=hermitian)
    if not A.size:
        return jnp.zeros(A.shape[:-2], dtypes.default_integer())
    values = jnp.linalg.svd(_hermitian(A) if hermitian else A, compute_uv=False)
    bound = tol if tol is not None else _relative(A, values, atol, rtol) * jnp.max(values, axis=-1)
    return jnp.sum(values > jnp.expand_dims(bound, -1), axis=-1).astype(dtypes.default_integer())
