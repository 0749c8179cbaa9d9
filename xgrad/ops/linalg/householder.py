"""QR decompositions (linalg.qr, geqrf), and products of Householder reflections (linalg.householder_product, ormqr).

The product of k reflections I - tau v v^H is I - V T V^H with T^-1 = diag(1 / tau) + striu(V^H V) (compact WY
form), so that products with it are a triangular solve and three matrix products, differentiable to any order.
(PyTorch: householder_product_backward and ormqr_backward, FunctionsManual.cpp, undo the reflections one by one.)
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ... import return_types
from ...dispatch.declare import operator
from ...dispatch.samples import COMPLEX, SINGLE, fixed, real, regular, sample
from ...dispatch.tables import FUNCTIONS, METHODS
from .checks import adjoint, not_implemented, require_matrices

linalg: Any = partial(operator, namespace="linalg", method=False)


# -- QR ---------------------------------------------------------------------------------------------------------------


@linalg(
    "linalg_qr",
    signature="A, mode='reduced'",
    outputs=return_types.linalg_qr,
    samples=(
        sample(real(3, 2)), sample(real(2, 3)), sample(regular(2, 2, 2), mode="complete"),
        sample(fixed(real(3, 2)), mode="complete"), sample(fixed(real(3, 2)), mode="r"), sample(real(0, 3)),
    ) + COMPLEX + SINGLE,
)  # fmt: skip
def qr(A, *, mode="reduced"):
    """The named tuple (Q, R) of A = Q R; `mode`: "reduced", "complete" or "r" (Q is then empty)."""
    require_matrices(A, "linalg.qr", square=False)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    m, n = A.shape[-2:]
    if mode == "r":
        return jnp.zeros((0,), A.dtype), jnp.linalg.qr(A, mode="r")
    if m < n:  # the first columns determine Q, and so the other columns; JAX has no derivative for this case
        Q, R = jnp.linalg.qr(A[..., :m], mode="reduced")
        return Q, jnp.concatenate([R, adjoint(Q) @ A[..., m:]], axis=-1)
    if mode == "complete" and m > n:
        return _complete(A)
    Q, R = jnp.linalg.qr(A, mode="reduced")
    return Q, R


@jax.custom_jvp
def _complete(A: Any) -> Any:
    Q, R = jnp.linalg.qr(A, mode="complete")
    return Q, R


@_complete.defjvp
def _no_tangent(primals: tuple, tangents: tuple) -> Any:
    raise RuntimeError(_INCOMPLETE)


_INCOMPLETE = "The QR decomposition is not differentiable when mode='complete' and nrows > ncols"


def _qr_gradient(grads, results, mode):
    """(gQ + Q herm(triu(gR R^H - Q^H gQ))) R^-H for the first columns; the others are Q times their part of R."""
    (gQ, gR), (Q, R) = grads, results
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
            "linalg.qr(A, mode='reduced') if you are going to require gradients"
        )
    m, n = Q.shape[-2], R.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError(_INCOMPLETE)
    k = min(m, n)
    rest = Q @ gR[..., k:]
    gQ = gQ + Q @ (R[..., k:] @ adjoint(gR[..., k:])) if n > k else gQ
    R, gR = R[..., :k], gR[..., :k]
    upper = jnp.triu(gR @ adjoint(R) - adjoint(Q) @ gQ)
    diagonal = jnp.real(jnp.diagonal(upper, axis1=-2, axis2=-1))
    inner = jnp.triu(upper, 1)
    inner = inner + adjoint(inner) + jnp.eye(k, dtype=upper.dtype) * diagonal[..., None]
    first = gQ + Q @ inner
    if first.size:
        first = jax.lax.linalg.triangular_solve(R, first, left_side=False, transpose_a=True, conjugate_a=True)
    return jnp.concatenate([first, rest], axis=-1) if n > k else first


qr.derivative(A=_qr_gradient)


@operator(
    outputs=return_types.geqrf,
    missing="geqrf",
    samples=(sample(real(3, 2)), sample(real(0, 3))) + COMPLEX + SINGLE,
)
def geqrf(self):
    """The named tuple (a, tau): R on and above the diagonal of `a`, Householder vectors below, and their factors.

    Not differentiable: use `linalg.qr`.
    """
    require_matrices(self, "geqrf", square=False)
    if not self.size:
        return self, jnp.zeros((*self.shape[:-2], min(self.shape[-2:])), self.dtype)
    a, tau = jnp.linalg.qr(self, mode="raw")
    return a.mT, tau


geqrf.derivative(all=not_implemented("geqrf", "use linalg.qr"))


# -- reflections ------------------------------------------------------------------------------------------------------


def _reflections(A: Any, tau: Any) -> tuple[Any, Any]:
    """(V, T) of the product I - V T V^H."""
    k = tau.shape[-1]
    V = jnp.tril(A[..., :k], -1) + jnp.eye(A.shape[-2], k, dtype=A.dtype)
    factors = jnp.eye(k, dtype=A.dtype) * tau[..., None, :]
    inner = jnp.triu(tau[..., :, None] * (adjoint(V) @ V), 1)
    return V, jax.lax.linalg.triangular_solve(inner, factors, left_side=True, lower=False, unit_diagonal=True)


def _check(name: str, A: Any, tau: Any) -> None:
    require_matrices(A, name, square=False)
    if A.shape[-2] < A.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    _check_factors(name, A, tau)


def _check_factors(name: str, A: Any, tau: Any) -> None:
    if A.shape[-1] < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1], but got {list(A.shape)} and "
            f"{list(tau.shape)}"
        )
    if A.ndim - tau.ndim != 1 or A.shape[:-2] != tau.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input and the same batch dimensions, but got "
            f"tau.ndim equal to {tau.ndim} and input.ndim is equal to {A.ndim} ({list(tau.shape)} and {list(A.shape)})"
        )
    if A.dtype != tau.dtype:
        raise RuntimeError(f"{name}: tau dtype {tau.dtype.name} does not match input dtype {A.dtype.name}")


@linalg(
    "linalg_householder_product",
    signature="A, tau",
    samples=(sample(real(3, 2), real(2)), sample(real(2, 2, 2), real(2, 1)), sample(real(3, 2), real(0)))
    + COMPLEX
    + SINGLE,
)
def householder_product(A, tau):
    """The first n columns of a product of Householder reflections, from the results of `geqrf`.

    A: (*, m, n), with the vectors below its diagonal; tau: (*, k), k <= n <= m.

    >>> import xgrad
    >>> a, tau = xgrad.geqrf(xgrad.tensor([[3.0], [4.0]]))
    >>> xgrad.linalg.householder_product(a, tau)
    tensor([[-0.6000],
            [-0.8000]])
    """
    _check("linalg.householder_product", A, tau)
    eye = jnp.broadcast_to(jnp.eye(*A.shape[-2:], dtype=A.dtype), A.shape)
    if not tau.size:
        return eye
    V, T = _reflections(A, tau)
    return eye - V @ (T @ adjoint(V[..., : A.shape[-1], :]))


FUNCTIONS[""]["orgqr"] = METHODS["orgqr"] = householder_product.function


@operator(
    signature="input, tau, other, left=True, transpose=False",
    samples=(
        sample(real(3, 2), real(2), real(3, 2)), sample(real(3, 2), real(2), real(2, 3), left=False),
        sample(real(3, 2), real(2), real(3, 1), transpose=True),
    ) + COMPLEX + SINGLE,
)  # fmt: skip
def ormqr(self, tau, other, *, left=True, transpose=False):
    """The product Q C (C Q if not `left`; with Q^H for Q if `transpose`) of reflections and the matrix C = `other`."""
    require_matrices(self, "ormqr", square=False)
    require_matrices(other, "ormqr", square=False)
    if other.ndim != self.ndim:
        raise RuntimeError(
            "ormqr: Expected other to have the same number of dimensions as input, but got other.ndim equal to "
            f"{other.ndim} and input.ndim is equal to {self.ndim}"
        )
    _check_factors("ormqr", self, tau)
    side = -2 if left else -1
    if tau.ndim and tau.shape[-1] != min(other.shape[side], self.shape[-1]):
        raise RuntimeError(
            f"ormqr: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1]), but got "
            f"{list(tau.shape)} for {list(other.shape)} and {list(self.shape)}"
        )
    if other.shape[side] != self.shape[-2]:
        raise RuntimeError(
            f"ormqr: other.shape[{side}] must be equal to input.shape[-2], but got {list(other.shape)} and "
            f"{list(self.shape)}"
        )
    if other.dtype != self.dtype or other.shape[:-2] != self.shape[:-2]:
        raise RuntimeError(
            f"ormqr: batch dimensions and dtype of other should be equal to batch dimensions and dtype of input, but "
            f"got {list(other.shape)} {other.dtype.name} and {list(self.shape)} {self.dtype.name}"
        )
    if not (tau.size and other.size):
        return other
    V, T = _reflections(self, tau)
    T = adjoint(T) if transpose else T
    return other - (V @ (T @ (adjoint(V) @ other)) if left else ((other @ V) @ T) @ adjoint(V))
