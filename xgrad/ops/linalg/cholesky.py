"""cholesky, cholesky_ex, cholesky_inverse, cholesky_solve: decompose a positive-definite matrix, solve with the factor.

The gradient saves the factor (PyTorch: cholesky_backward, FunctionsManual.cpp).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ... import return_types
from ...dispatch.call import call
from ...dispatch.declare import composite, internal, operator
from ...dispatch.samples import COMPLEX, SINGLE, definite, real, regular, sample
from ...tensor import Tensor
from .checks import adjoint, broadcast_batches, check_info, first_zero, no_info, require_matrices, require_same

failing: Any = partial(operator, namespace="linalg", method=False, function=False)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _cholesky(A, upper):
    L = jnp.tril(jax.lax.linalg.cholesky(adjoint(A) if upper else A, symmetrize_input=False))
    return adjoint(L) if upper else L


@_cholesky.defjvp
def _cholesky_tangent(upper: bool, primals: Any, tangents: Any) -> Any:
    """L π(L^-1 dA L^-H) with π the lower triangle and half the diagonal, as in PyTorch's cholesky_jvp.

    dA counts as Hermitian, and all of it is read.  JAX's own rule reads the lower triangle since jax 0.12.
    """
    factor = _cholesky(primals[0], upper)
    L = adjoint(factor) if upper else factor
    solve_l = partial(jax.lax.linalg.triangular_solve, L, lower=True)
    pi = solve_l(solve_l(tangents[0], left_side=True), left_side=False, transpose_a=True, conjugate_a=True)
    pi = jnp.tril(pi) * (1 - 0.5 * jnp.eye(L.shape[-1], dtype=L.real.dtype))
    tangent = jnp.matmul(L, pi, precision=jax.lax.Precision.HIGHEST)
    return factor, adjoint(tangent) if upper else tangent


def _first_minor(A: Any) -> Any:
    """The order of the first leading minor that is not positive, by elimination; 0 for none."""

    def step(k: Any, found: Any) -> Any:
        rest, info = found
        row = jax.lax.dynamic_index_in_dim(rest, k, axis=-2)
        pivot = jnp.real(jax.lax.dynamic_index_in_dim(row, k, axis=-1))
        bad = ~(pivot > 0)
        rest = rest - adjoint(row) @ (row / jnp.where(bad, 1, pivot))
        return rest, jnp.where(bad[..., 0, 0] & (info == 0), k + 1, info).astype(jnp.int32)

    full = jnp.tril(A) + adjoint(jnp.tril(A, -1))
    return jax.lax.fori_loop(0, A.shape[-1], step, (full, jnp.zeros(A.shape[:-2], jnp.int32)))[1]


@failing(
    "linalg_cholesky_ex",
    signature="A, *, upper=False, check_errors=False",
    outputs=return_types.linalg_cholesky_ex,
    samples=(sample(definite(3, 3)), sample(definite(2, 2, 2), upper=True), sample(real(0, 0))) + COMPLEX + SINGLE,
)
def _cholesky_ex(A, *, upper=False, check_errors=False):
    require_matrices(A, "linalg.cholesky")
    none = jnp.zeros(A.shape[:-2], jnp.int32)
    if not A.size:
        return A, none
    L = _cholesky(A, upper)
    lower = jax.lax.stop_gradient(adjoint(A) if upper else A)
    failed = jnp.any(jnp.isnan(jnp.diagonal(L, axis1=-2, axis2=-1)))
    return L, jax.lax.cond(failed, _first_minor, lambda A: none, lower)


def _cholesky_grad(grad, L, upper):
    """L^-H Φ(L^H grad) L^-1 with Φ the Hermitian part of the lower triangle, as in PyTorch's cholesky_backward."""
    if not L.size:
        return grad
    L, grad = (adjoint(L), adjoint(grad)) if upper else (L, grad)
    phi = jnp.tril(adjoint(L) @ grad)
    phi = (phi + adjoint(jnp.tril(phi, -1))) / 2
    solve_l = partial(jax.lax.linalg.triangular_solve, L, lower=True)
    phi = solve_l(phi, left_side=True, transpose_a=True, conjugate_a=True)
    return solve_l(phi, left_side=False)


_cholesky_ex.derivative(A=_cholesky_grad)


def _not_positive(i: int) -> str:
    return (
        "The factorization could not be completed because the input is not positive-definite (the leading minor of "
        f"order {i} is not positive-definite)."
    )


@composite(method=False, namespace="linalg")
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """The named tuple (L, info); `info`: 0, or the order of the first leading minor that is not positive definite.

    L is NaN where `info` is not 0.
    """
    result = _cholesky_ex.function(A, upper=upper, out=out)
    if check_errors:
        check_info("linalg.cholesky_ex", result.info, _not_positive)
    return result


@composite(method=False, namespace="linalg")
def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """The triangular factor L of A = L L^H; with `upper` U of A = U^H U.  Only that triangle of A is read.

    Raises `LinAlgError` for a matrix that is not positive definite.
    """
    L, info = _cholesky_ex.function(A, upper=upper, out=None if out is None else (out, no_info()))
    check_info("linalg.cholesky", info, _not_positive)
    return L


_zero_at = internal("_first_zero", differentiable=False, samples=(sample(real(3)), *COMPLEX))(first_zero)


def _invertible(args: tuple, statics: tuple) -> None:
    if isinstance(args[0], Tensor) and args[0].ndim > 1:
        info = call(_zero_at.operator, (args[0].detach().diagonal(0, -2, -1),), ())
        check_info("cholesky_inverse", info, lambda i: f"The diagonal element {i} is zero: the matrix is singular.")


@operator(check=_invertible, samples=(sample(regular(3, 3)), sample(regular(2, 2, 2), upper=True)) + COMPLEX + SINGLE)
def cholesky_inverse(self, *, upper=False):
    """The inverse of L L^H (U^H U if `upper`), given the factor.

    Raises `LinAlgError` for a factor with a zero on its diagonal.
    """
    require_matrices(self, "cholesky_inverse")
    L = adjoint(jnp.triu(self)) if upper else jnp.tril(self)
    eye = jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape)
    return jax.scipy.linalg.cho_solve((L, True), eye)


@operator(
    signature="B, L, upper=False",
    samples=(sample(real(3, 2), regular(3, 3)), sample(real(2, 3), regular(2, 2, 2), upper=True)) + COMPLEX + SINGLE,
)
def cholesky_solve(B, L, *, upper=False):
    """The X with A X = B, given the Cholesky factor L of A."""
    for name, x in {"b": B, "u": L}.items():
        if x.ndim < 2:
            raise RuntimeError(f"{name} should have at least 2 dimensions, but has {x.ndim} dimensions instead")
    require_matrices(L, "cholesky_solve")
    require_same(B, L, "cholesky_solve")
    if B.shape[-2] != L.shape[-1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {L.shape[-1]} by {L.shape[-1]} but each b "
            f"matrix is {B.shape[-2]} by {B.shape[-1]}"
        )
    L, B = broadcast_batches(L, B)
    return jax.scipy.linalg.cho_solve((jnp.triu(L) if upper else jnp.tril(L), not upper), B)
