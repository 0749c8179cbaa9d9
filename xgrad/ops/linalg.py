"""xgrad.linalg: determinants, inverses, solvers, decompositions.

Importing it imports products, contractions, norms and decompositions.  Formulas are given where the saved result makes
the gradient cheaper than the derived one (`inv`, `solve`, `cholesky`); the rest is derived from `jax.numpy.linalg` and
`jax.scipy.linalg`.  A matrix that cannot be inverted or factorized raises `LinAlgError`, which waits for the result;
the forms `*_ex` don't.
(PyTorch: aten/src/ATen/native/BatchLinearAlgebra.cpp, torch/csrc/autograd/FunctionsManual.cpp.)
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg

from .. import return_types
from ..tensor import Tensor
from . import contractions as contractions
from . import ldl as ldl
from . import least_squares as least_squares
from . import lu as lu
from . import norms as norms
from .householder import qr
from .matrices import adjoint, broadcast_batches, check_info, first_zero, is_vector, no_info, require_matrices
from .products import require_same
from .registry import FUNCTIONS, METHODS, composite, operator
from .singular import pinv, svd

linalg = partial(operator, namespace="linalg", method=False)


# -- determinants -----------------------------------------------------------------------------------------------------


@linalg("linalg_det")
def det(A):
    """The determinants of square matrices."""
    require_matrices(A, "linalg.det")
    if not A.shape[-1]:
        return jnp.prod(A, axis=(-2, -1))  # of no elements: 1, with a gradient of A's empty shape
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


# What can fail is an operator with an `info`, of which the others are made; it comes from the very decomposition that
# solves, which XLA computes once.
failing = partial(linalg, function=False)


def _singular(A: Any) -> Any:
    if not A.size:
        return jnp.zeros(A.shape[:-2], jnp.int32)
    return first_zero(jnp.diagonal(jax.lax.linalg.lu(jax.lax.stop_gradient(A))[0], axis1=-2, axis2=-1))


@failing("linalg_inv_ex", signature="A, *, check_errors=False", outputs=return_types.linalg_inv_ex)
def _inv(A, *, check_errors=False):
    require_matrices(A, "linalg.inv")
    return jnp.linalg.inv(A) if A.size else A, _singular(A)


_inv.derivative(A=lambda grad, inverse: -(adjoint(inverse) @ grad @ adjoint(inverse)))


def _zero_diagonal(i: int) -> str:
    return (
        f"The diagonal element {i} is zero, the inversion could not be completed because the input matrix is singular."
    )


@composite(method=False, namespace="linalg")
def inv_ex(A: Tensor, *, check_errors: bool = False, out: Any = None) -> Any:
    """The named tuple (inverse, info); `info`: 0, or the number of the first zero pivot of a singular matrix."""
    result = _inv.function(A, out=out)
    if check_errors:
        check_info("linalg.inv_ex", result.info, _zero_diagonal)
    return result


@composite("inv", method=False, namespace="linalg")
def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverses of square matrices.  Raises `LinAlgError` for a singular one."""
    inverse, info = _inv.function(A, out=None if out is None else (out, no_info()))
    check_info("linalg.inv", info, _zero_diagonal)
    return inverse


def _solve(A, B, left=True):
    """A^-1 B for matrices whose batches broadcast; B A^-1 if not `left`."""
    if not left:
        return _solve(A.mT, B.mT).mT
    A, B = broadcast_batches(A, B)
    return jnp.linalg.solve(A, B) if A.size and B.size else jnp.zeros_like(B)


@failing("linalg_solve_ex", signature="A, B, *, left=True, check_errors=False", outputs=return_types.linalg_solve_ex)
def _solved(A, B, *, left=True, check_errors=False):
    require_matrices(A, "linalg.solve")
    require_same(A, B, "linalg.solve")
    vector = is_vector(A.shape, B.shape)
    if vector:
        B = B[..., None]
        left = True
    if B.shape[-2 if left else -1] != A.shape[-1]:
        raise RuntimeError(
            "linalg.solve: Incompatible shapes of A and B for the equation AX = B "
            f"({list(A.shape)} and {list(B.shape)})"
        )
    X = _solve(A, B, left)
    return X[..., 0] if vector else X, _singular(A)


def _solve_grad_b(grad, A, shapes, left):
    vector = is_vector(*shapes)
    found = _solve(adjoint(A), grad[..., None] if vector else grad, left or vector)
    return found[..., 0] if vector else found


def _solve_grad_a(grad, A, result, shapes, left):
    vector = is_vector(*shapes)
    found = _solve_grad_b(grad, A, shapes, left)
    if vector:
        found, result = found[..., None], result[..., None]
    return -(found @ adjoint(result)) if left or vector else -(adjoint(result) @ found)


_solved.derivative(A=_solve_grad_a, B=_solve_grad_b)


def _no_solution(i: int) -> str:
    return "The solver failed because the input matrix is singular."


@composite(method=False, namespace="linalg")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """The named tuple (result, info); `info`: 0, or the number of the first zero pivot of a singular matrix."""
    result = _solved.function(A, B, left=left, out=out)
    if check_errors:
        check_info("torch.linalg.solve_ex", result.info, _no_solution)
    return result


@composite(method=False, namespace="linalg")
def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """The X with A X = B (X A = B if not `left`), for batches that broadcast; B may be a vector.

    Raises `LinAlgError` for a singular matrix.

    >>> import xgrad
    >>> xgrad.linalg.solve(xgrad.tensor([[2.0, 0.0], [0.0, 4.0]]), xgrad.tensor([2.0, 2.0]))
    tensor([1.0000, 0.5000])
    """
    result, info = _solved.function(A, B, left=left, out=None if out is None else (out, no_info()))
    check_info("torch.linalg.solve", info, _no_solution)
    return result


@linalg("linalg_solve_triangular", signature="A, B, *, upper, left=True, unitriangular=False")
def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """The X with A X = B (X A = B if not `left`) for triangular A; the other triangle is not read."""
    require_matrices(A, "linalg.solve_triangular")
    require_same(A, B, "linalg.solve_triangular")
    A, B = broadcast_batches(A, B)
    return jax.lax.linalg.triangular_solve(A, B, left_side=left, lower=not upper, unit_diagonal=unitriangular)


@operator(signature="b, A, upper=True, transpose=False, unitriangular=False", outputs=return_types.triangular_solve)
def triangular_solve(b, A, *, upper=True, transpose=False, unitriangular=False):
    """The named tuple (solution, cloned_coefficient) of A X = b, or A^T X = b: `linalg.solve_triangular`, formerly."""
    require_matrices(A, "triangular_solve")
    require_same(b, A, "triangular_solve")
    first, B = broadcast_batches(A, b)
    options: dict[str, Any] = dict(lower=not upper, unit_diagonal=unitriangular, transpose_a=transpose)
    return jax.lax.linalg.triangular_solve(first, B, left_side=True, **options), first


@linalg("linalg_tensorinv")
def tensorinv(A, *, ind=2):
    """The inverse for `tensordot(., ., ind)`."""
    return jnp.linalg.tensorinv(A, ind)


@linalg("linalg_tensorsolve", signature="A, B, dims=None")
def tensorsolve(A, B, *, dims=None):
    """The X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = jnp.moveaxis(A, dims, range(A.ndim - len(dims), A.ndim))
    shape = A.shape[B.ndim :]
    if math.prod(shape) != B.size:
        raise RuntimeError(
            "linalg.tensorsolve: Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {math.prod(shape)} != {B.size}"
        )
    return jnp.linalg.solve(A.reshape(B.size, B.size), B.reshape(-1)).reshape(shape)


# -- Cholesky ---------------------------------------------------------------------------------------------------------


def _cholesky(A, upper):
    L = jnp.tril(jax.lax.linalg.cholesky(adjoint(A) if upper else A, symmetrize_input=False))
    return adjoint(L) if upper else L


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
    "linalg_cholesky_ex", signature="A, *, upper=False, check_errors=False", outputs=return_types.linalg_cholesky_ex
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


@operator
def cholesky_inverse(self, *, upper=False):
    """The inverse of L L^H (U^H U if `upper`), given the factor."""
    L = adjoint(jnp.triu(self)) if upper else jnp.tril(self)
    eye = jnp.broadcast_to(jnp.eye(L.shape[-1], dtype=L.dtype), L.shape)
    return jax.scipy.linalg.cho_solve((L, True), eye)


@operator(signature="B, L, upper=False")
def cholesky_solve(B, L, *, upper=False):
    """The X with A X = B, given the Cholesky factor L of A."""
    L, B = broadcast_batches(L, B)
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


@linalg("linalg_vander", signature="x, *, N=None")
def vander(x, *, N=None):
    """The Vandermonde matrices: the powers 0 to N - 1 of each element."""
    x = jnp.atleast_1d(x)
    N = x.shape[-1] if N is None else N
    powers = jnp.broadcast_to(x[..., None], (*x.shape, N)).at[..., :1].set(1)
    return jnp.cumprod(powers, axis=-1)


# -- top-level names and older forms ----------------------------------------------------------------------------------

for _name, _op in {
    "det": det.function, "slogdet": slogdet.function, "inverse": inv, "matrix_power": matrix_power.function,
    "matrix_exp": matrix_exp.function, "pinverse": pinv.function,
}.items():  # fmt: skip
    FUNCTIONS[""][_name] = METHODS[_name] = _op


@composite("cholesky")
def _old_cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """`linalg.cholesky`."""
    return cholesky(input, upper=upper, out=out)


@composite("qr")
def _old_qr(input: Tensor, some: bool = True) -> Any:
    """`linalg.qr`; with `some=False` the complete decomposition."""
    return return_types.qr(*qr.function(input, mode="reduced" if some else "complete"))


@composite("svd")
def _old_svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """The named tuple (U, S, V) of input = U diag(S) V^H; `linalg.svd` gives V^H."""
    U, S, Vh = svd.function(input, full_matrices=not some)
    return return_types.svd(U, S, Vh.mH)
