"""xgrad.linalg: determinants, inverses, solvers, decompositions.

Importing it imports products, contractions, norms and decompositions.  Formulas are given where the saved result makes
the gradient cheaper than the derived one (`inv`, `solve`, `cholesky`); the rest is derived from `jax.numpy.linalg` and
`jax.scipy.linalg`.
(PyTorch: aten/src/ATen/native/BatchLinearAlgebra.cpp, torch/csrc/autograd/FunctionsManual.cpp.)
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg

from .. import dtypes, return_types
from ..tensor import Tensor, from_array
from . import contractions as contractions
from . import norms as norms
from .decompositions import pinv, qr, require_matrices, svd
from .products import require_same
from .promotion import conj
from .registry import FUNCTIONS, METHODS, composite, operator

linalg = partial(operator, namespace="linalg", method=False)


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return conj(x.mT)


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
        raise RuntimeError(
            "linalg.solve: Incompatible shapes of A and B for the equation AX = B "
            f"({list(A.shape)} and {list(B.shape)})"
        )
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


# -- top-level names and older forms ----------------------------------------------------------------------------------

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


# -- forms that also tell what went wrong: info is always 0, for values are not looked at -----------------------------


def _with_info(name: str, op: Any, fields: Any) -> None:
    def public(A: Tensor, *others: Tensor, check_errors: bool = False, **options: Any) -> Any:
        info = jnp.zeros(A.shape[:-2], dtypes.int32)
        return fields(op.function(A, *others, **options), from_array(info))

    public.__name__ = public.__qualname__ = name
    public.__doc__ = f"The named tuple of `linalg.{name.removesuffix('_ex')}` and an `info` of zeros."
    FUNCTIONS["linalg"][name] = public


_with_info("inv_ex", inv, return_types.linalg_inv_ex)
_with_info("cholesky_ex", cholesky, return_types.linalg_cholesky_ex)
_with_info("solve_ex", solve, return_types.linalg_solve_ex)
