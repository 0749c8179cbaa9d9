"""xgrad.linalg: det, inv, solve, matrix_power, matrix_exp, cond, vander and their variants.

A formula stands where the saved result makes the gradient cheaper than the derived one (`inv`, `solve`); the rest is
derived from `jax.numpy.linalg` and `jax.scipy.linalg`.  A matrix that cannot be inverted or factorized raises
`LinAlgError`, and the check waits for the result; the forms `*_ex` return a code instead.
(PyTorch: aten/src/ATen/native/BatchLinearAlgebra.cpp, torch/csrc/autograd/FunctionsManual.cpp.)
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ... import return_types
from ...base import dtypes
from ...dispatch.declare import composite, operator
from ...dispatch.out import write_out
from ...dispatch.samples import COMPLEX, SINGLE, real, regular, sample
from ...dispatch.tables import FUNCTIONS, METHODS
from ...tensor import Tensor
from ...views.named.arguments import int_of
from ..reduce.norms import matrix_norm
from .checks import (
    adjoint,
    broadcast_batches,
    check_info,
    first_zero,
    is_vector,
    no_info,
    require_matrices,
    require_same,
)
from .cholesky import cholesky
from .determinant import determinant, log_determinant
from .householder import qr
from .singular import pinv, svd, svdvals

linalg: Any = partial(operator, namespace="linalg", method=False)


# -- determinants -----------------------------------------------------------------------------------------------------


_SQUARE = (sample(regular(3, 3)), sample(regular(2, 2, 2)), sample(real(0, 0))) + COMPLEX + SINGLE


@linalg("linalg_det", samples=_SQUARE)
def det(A):
    """The determinants of square matrices."""
    require_matrices(A, "linalg.det")
    if not A.shape[-1]:
        return jnp.prod(A, axis=(-2, -1))  # the product of no elements: 1, with a gradient of A's empty shape
    return determinant(A)


@linalg("linalg_slogdet", outputs=return_types.linalg_slogdet, samples=_SQUARE)
def slogdet(A):
    """The named tuple (sign, logabsdet) of the determinants of square matrices."""
    require_matrices(A, "linalg.slogdet")
    return (*log_determinant(A),)


@operator(samples=_SQUARE)
def logdet(self):
    """The logarithms of the determinants of square matrices; NaN where one is negative."""
    require_matrices(self, "logdet")
    sign, logabsdet = log_determinant(self)
    return jnp.log(sign) + logabsdet if jnp.iscomplexobj(self) else jnp.where(sign < 0, jnp.nan, logabsdet)


# -- inverses and solvers ---------------------------------------------------------------------------------------------


# Operators that can fail return an `info`, and the others are made of these; `info` comes from the decomposition that
# solves, which XLA computes once.
failing: Any = partial(linalg, function=False)


def _singular(A: Any) -> Any:
    if not A.size:
        return jnp.zeros(A.shape[:-2], jnp.int32)
    return first_zero(jnp.diagonal(jax.lax.linalg.lu(jax.lax.stop_gradient(A))[0], axis1=-2, axis2=-1))


@failing("linalg_inv_ex", signature="A, *, check_errors=False", outputs=return_types.linalg_inv_ex, samples=_SQUARE)
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


@failing(
    "linalg_solve_ex",
    signature="A, B, *, left=True, check_errors=False",
    outputs=return_types.linalg_solve_ex,
    samples=(
        sample(regular(3, 3), real(3, 2)), sample(regular(3, 3), real(3)), sample(regular(2, 2, 2), real(2, 1)),
        sample(regular(2, 2), real(3, 2), left=False), sample(regular(2, 2), real(2, 0)),
    ) + COMPLEX + SINGLE,
)  # fmt: skip
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


@linalg(
    "linalg_solve_triangular",
    signature="A, B, *, upper, left=True, unitriangular=False",
    samples=(
        sample(regular(3, 3), real(3, 2), upper=False), sample(regular(2, 2, 2), real(3, 2), upper=True, left=False),
        sample(regular(3, 3), real(3, 2), upper=True, unitriangular=True),
    ) + COMPLEX + SINGLE,
)  # fmt: skip
def solve_triangular(A, B, *, upper, left=True, unitriangular=False):
    """The X with A X = B (X A = B if not `left`) for triangular A; the other triangle is not read."""
    require_matrices(A, "linalg.solve_triangular")
    require_same(A, B, "linalg.solve_triangular")
    A, B = broadcast_batches(A, B)
    return jax.lax.linalg.triangular_solve(A, B, left_side=left, lower=not upper, unit_diagonal=unitriangular)


@operator(
    signature="b, A, upper=True, transpose=False, unitriangular=False",
    outputs=return_types.triangular_solve,
    samples=(
        sample(real(3, 2), regular(3, 3)), sample(real(2, 1), regular(2, 2, 2), upper=False, transpose=True),
        sample(real(3, 2), regular(3, 3), unitriangular=True),
    ) + COMPLEX + SINGLE,
)  # fmt: skip
def triangular_solve(b, A, *, upper=True, transpose=False, unitriangular=False):
    """The named tuple (solution, cloned_coefficient) of A X = b, or A^T X = b: `linalg.solve_triangular`, formerly."""
    require_matrices(A, "triangular_solve")
    require_same(b, A, "triangular_solve")
    first, B = broadcast_batches(A, b)
    options: dict[str, Any] = dict(lower=not upper, unit_diagonal=unitriangular, transpose_a=transpose)
    return jax.lax.linalg.triangular_solve(first, B, left_side=True, **options), first


@composite(method=False, namespace="linalg")
def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """The inverse for `tensordot(., ., ind)`."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    rows, columns = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    sizes = math.prod(rows), math.prod(columns)
    if sizes[0] != sizes[1]:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{sizes[1]} != {sizes[0]}"
        )
    found = inv(A.reshape(*sizes)).reshape(*columns, *rows)
    return found if out is None else write_out("linalg.tensorinv", found, out)


@composite(method=False, namespace="linalg")
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None, *, out: Tensor | None = None) -> Tensor:
    """The X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = tuple(A.shape[B.ndim :])
    if math.prod(shape) != B.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {math.prod(shape)} != {B.numel()}"
        )
    found = solve(A.reshape(B.numel(), B.numel()), B.reshape(-1)).reshape(*shape)
    return found if out is None else write_out("linalg.tensorsolve", found, out)


@composite(method=False, namespace="linalg")
def cond(A: Tensor, p: Any = None, *, out: Tensor | None = None) -> Tensor:
    """The condition numbers: norm(A) * norm(inv(A)) for the norm `p`, by default the ratio of singular values.

    A singular matrix has the condition number infinity.
    """
    if A.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if p not in (None, "fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if p not in (None, 2, -2):
        require_matrices(A, f"linalg.cond(ord={p})")
    if 0 in A.shape[-2:]:
        found = A.real.sum((-2, -1))
    elif p in (None, 2, -2):
        values = svdvals(A)
        found = values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    else:
        inverse, info = inv_ex(A)
        found = matrix_norm(A, p) * matrix_norm(inverse, p)
        found = found if p == "nuc" else found.masked_fill(info > 0, math.inf)
    return found if out is None else write_out("linalg.cond", found, out)


# -- powers and exponentials ------------------------------------------------------------------------------------------


@linalg(
    "linalg_matrix_power",
    function=False,
    samples=(sample(real(2, 2), n=3), sample(real(2, 2, 2), n=2), sample(real(2, 2), n=0)) + COMPLEX + SINGLE,
)
def _matrix_power(A, *, n):
    require_matrices(A, "linalg.matrix_power")
    return jnp.linalg.matrix_power(A, n)


@composite(method=False, namespace="linalg")
def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The product of `n` times a square matrix; a negative `n` inverts it, 0 gives the identity.

    Raises `LinAlgError` for a singular matrix and a negative `n`.
    """
    n = int_of(n)
    if n < 0 or (A.dtype in dtypes.INEXACT and A.dtype.itemsize > 2):
        return _matrix_power.function(A if n >= 0 else inv(A), abs(n), out=out)
    require_matrices(A, "linalg.matrix_power", floating=False)
    found = A if n else FUNCTIONS[""]["eye"](A.shape[-1], dtype=A.dtype, device=A.device).expand(A.shape)
    for bit in bin(n)[3:]:  # `matmul` has the products of integers, and rounds each one in half precision
        found = found @ found
        found = found @ A if bit == "1" else found
    return (found if n > 1 else found.clone()) if out is None else write_out("linalg.matrix_power", found, out)


@linalg("linalg_matrix_exp", samples=(sample(real(2, 2)), sample(real(2, 2, 2)), sample(real(0, 0))) + COMPLEX + SINGLE)
def matrix_exp(A):
    """The exponentials of square matrices."""
    require_matrices(A, "linalg.matrix_exp")
    if not A.size:
        return A
    # jax squares 16 times, and gives NaN, with gradients of 0, where that is too little: what is more is squared here.
    most = jnp.finfo(A.dtype).maxexp
    norm = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(A), -2), -1))
    more = jnp.clip(jnp.frexp(jnp.where(jnp.isfinite(norm), norm, 1))[1] - 17, 0, most)
    found = jax.scipy.linalg.expm(A * jnp.ldexp(jnp.ones_like(norm), -more)[..., None, None])

    def square(X: Any, i: Any) -> tuple[Any, None]:
        return jnp.where((i < more)[..., None, None], jnp.matmul(X, X, precision=jax.lax.Precision.HIGHEST), X), None

    def square_all(X: Any) -> Any:
        return jax.lax.scan(square, X, jnp.arange(most))[0]

    return jax.lax.cond(jnp.any(more > 0), square_all, lambda X: X, found)


@linalg("linalg_vander", signature="x, *, N=None", samples=(sample(real(3)), sample(real(2, 2), N=4)) + COMPLEX)
def vander(x, *, N=None):
    """The Vandermonde matrices: the powers 0 to N - 1 of each element."""
    x = jnp.atleast_1d(x)
    N = x.shape[-1] if N is None else N
    if N <= 1:
        raise RuntimeError(f"linalg.vander: N must be greater than 1, but is {N}")
    powers = jnp.broadcast_to(x[..., None], (*x.shape, N)).at[..., :1].set(1)
    return jnp.cumprod(powers, axis=-1)


@composite("vander", method=False)
def _old_vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers N - 1 to 0 (0 to N - 1 if `increasing`) of each element of a vector; N is the vector's length by
    default.

    Powers of integers have the default dtype of integers.
    """
    if x.ndim != 1:
        raise RuntimeError(f"x must be a one-dimensional tensor., but got {x.ndim} dimensions")
    columns: int = x.shape[0] if N is None else N
    if columns < 0:
        raise RuntimeError(f"N must be non-negative., but got {columns}")
    if x.dtype not in dtypes.INEXACT:
        x = x.to(dtypes.default_integer())
    if not columns:
        return x.new_empty((x.shape[0], 0))
    powers = vander.function(x, N=columns)
    return powers if increasing else powers.flip(-1)


# -- top-level names and older forms ----------------------------------------------------------------------------------

for _name, _op in {
    "det": det.function, "slogdet": slogdet.function, "inverse": inv, "matrix_power": matrix_power,
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
