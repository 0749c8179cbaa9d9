"""determinant: `jnp.linalg.det` with a gradient that holds for singular matrices too, for `xgrad.linalg.det`.

The derivative with respect to an element is its cofactor, a polynomial, so a singular matrix has one too.  JAX's
derivative supposes that only the last pivot vanishes: where another one does, as in diag(0, 2), it is 0 without a word
(of all sizes since jax 0.12, before it of sizes over 3).  Second derivatives are NaN here where a matrix of more than 3
rows has a pivot of exactly 0.  (PyTorch: linalg_det_backward, FunctionsManual.cpp.)
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..pointwise import bits
from ..pointwise.ends import quotient, unit


@jax.custom_jvp
def determinant(A: Any) -> Any:
    """The determinants of square matrices that are not empty."""
    if A.shape[-1] == 2:
        first, second, sign = _pivots_of_two(A)
        return first * second * sign
    found = jnp.linalg.det(A)
    return _scaled(A, found) if A.shape[-1] == 3 else found


def _pivots_of_two(A: Any) -> tuple[Any, Any, Any]:
    """The pivots of matrices of two rows, as LAPACK finds them, and the sign: equal rows leave exactly 0.

    A difference of two products leaves the rounding of one of them, where XLA fuses the other.
    """
    (a, b), (c, d) = ([A[..., i, j] for j in (0, 1)] for i in (0, 1))
    swapped = jnp.abs(c) > jnp.abs(a)
    a, b, c, d = (jnp.where(swapped, x, y) for x, y in ((c, a), (d, b), (a, c), (b, d)))
    return a, d - quotient(c, jnp.where(a == 0, 1, a)) * b, jnp.where(swapped, -1, 1).astype(A.dtype)


def _scaled(A: Any, found: Any) -> Any:
    """`found`, and where it is not finite, the determinant of rows near 1: jax's sum of products is inf - inf there.

    What those rows leave is 0 if it may be rounding alone: a fused product and sum leaves some of equal rows.
    """
    exponents = _exponents(A)
    small = jnp.linalg.det(bits.scaled_by_power_of_2(A, -exponents))
    large = bits.scaled_by_power_of_2(small, exponents.sum((-2, -1)))
    rounding = jnp.abs(small) <= 8 * jnp.finfo(small.dtype).eps
    return jnp.where(jnp.isfinite(found), found, jnp.where(rounding, 0, large))


def _exponents(A: Any) -> Any:
    """The exponents of the powers of 2 by which rows are divided so that they are near 1, in the shape (..., n, 1)."""
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(A)), axis=-1, keepdims=True)
    return jnp.where(jnp.isfinite(largest), bits.frexp(largest)[1], 1) - 1


def log_determinant(A: Any) -> tuple[Any, Any]:
    """The sign and the logarithm of the absolute value, in range where the product of two rows is not."""
    if A.shape[-1] != 2:
        return jnp.linalg.slogdet(A)
    first, second, sign = _pivots_of_two(A)
    return unit(first) * unit(second) * sign, jnp.log(jnp.abs(first)) + jnp.log(jnp.abs(second))


@determinant.defjvp
def _tangent(primals: Any, tangents: Any) -> Any:
    A, dA = *primals, *tangents
    if A.shape[-1] <= 3:
        return determinant(A), jnp.sum(_cofactors(A) * dA, axis=(-2, -1))
    found = determinant(A)
    usual = jnp.isfinite(found) & (jnp.abs(found) > jnp.finfo(A.dtype).tiny)
    exponents = jnp.where(usual[..., None, None], 0, _exponents(A))  # rows near 1 keep cofactors in range
    others = exponents.sum((-2, -1), keepdims=True) - exponents
    A, dA = bits.scaled_by_power_of_2(A, -exponents), bits.scaled_by_power_of_2(dA, others)
    pivots = jnp.diagonal(jax.lax.linalg.lu(jax.lax.stop_gradient(A))[0], axis1=-2, axis2=-1)
    singular = jnp.any(pivots == 0, axis=-1)

    def turned(A: Any) -> Any:
        found = jnp.linalg.det(jnp.where(singular[..., None, None], _reflected(A), A))
        return jnp.where(singular, -found, found)

    return found, jax.jvp(turned, (A,), (dA,))[1]


def _cofactors(A: Any) -> Any:
    """The cofactors of matrices of at most 3 rows, as polynomials: their derivatives of all orders are right."""
    if A.shape[-1] == 1:
        return jnp.ones_like(A)
    if A.shape[-1] == 2:
        return jnp.flip(A, (-2, -1)) * jnp.asarray([[1, -1], [-1, 1]], A.dtype)
    x, y, z = A[..., 0, :], A[..., 1, :], A[..., 2, :]
    return jnp.stack([jnp.cross(y, z), jnp.cross(z, x), jnp.cross(x, y)], axis=-2)


def _reflected(A: Any) -> Any:
    """A times a reflection, whose determinant is -1: it turns a null vector so that it ends in a nonzero number.

    Then all columns but the last are independent (if the rank is one less than full), and so only the last pivot
    vanishes.  The mirror is fixed, and at an angle to the vectors that come up: their elements are not cosines.
    """
    v = np.cos(np.arange(1, A.shape[-1] + 1))
    v = jnp.asarray(v / np.linalg.norm(v), A.dtype)
    return A - 2 * jnp.matmul(A, v, precision=jax.lax.Precision.HIGHEST)[..., None] * v
