"""xgrad.linalg: LU decompositions with partial pivoting (lu, lu_factor, lu_unpack), and solving with them (lu_solve).

Pivots are LAPACK's and PyTorch's: 1-based int32, the row with which each row was exchanged.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ... import return_types
from ...dispatch.declare import composite, linear, operator
from ...dispatch.samples import COMPLEX, SINGLE, exchanges, real, regular, sample
from ...tensor import Tensor
from ..index.index_checks import on_host
from .checks import adjoint as adjoint_of
from .checks import broadcast_batches, check_info, first_zero, no_info, require_matrices, require_same

linalg: Any = partial(operator, namespace="linalg", method=False)


def _factor(A: Any, pivot: bool, name: str) -> tuple[Any, Any, Any]:
    """(L and U in one matrix, pivots from 0, the permutation that they make)."""
    require_matrices(A, name, square=False)
    if not pivot:
        raise RuntimeError(f"{name}: LU without pivoting is not implemented on XLA's devices")
    if not A.size:
        k = min(A.shape[-2:])
        order = jnp.broadcast_to(jnp.arange(A.shape[-2], dtype=jnp.int32), A.shape[:-1])
        return A, jnp.zeros((*A.shape[:-2], k), jnp.int32), order
    return jax.lax.linalg.lu(A)


def _diagonal(LU: Any) -> Any:
    return jnp.diagonal(LU, axis1=-2, axis2=-1)


def _parts(LU: Any) -> tuple[Any, Any]:
    """The unit lower and the upper triangular factor."""
    m, n = LU.shape[-2:]
    k = min(m, n)
    return jnp.tril(LU[..., :k], -1) + jnp.eye(m, k, dtype=LU.dtype), jnp.triu(LU[..., :k, :])


def _matrix_of(order: Any, dtype: Any) -> Any:
    """The permutation matrix P of A = P L U."""
    return (order[..., None, :] == jnp.arange(order.shape[-1])[:, None]).astype(dtype)


def _order(pivots: Any, m: int) -> Any:
    """The permutation that 1-based pivots make."""
    if not pivots.size:
        return jnp.broadcast_to(jnp.arange(m, dtype=jnp.int32), (*pivots.shape[:-1], m))
    return jax.lax.linalg.lu_pivots_to_permutation(jnp.clip(pivots - 1, 0, m - 1), m)


_FACTORED = (
    sample(regular(3, 3)), sample(real(3, 2)), sample(real(2, 3)), sample(regular(2, 2, 2)), sample(real(0, 2)),
) + COMPLEX + SINGLE  # fmt: skip

# -- decompositions ---------------------------------------------------------------------------------------------------


@linalg(
    "linalg_lu",
    signature="A, *, pivot=True",
    outputs=return_types.linalg_lu,
    output_differentiability=(False, True, True),
    samples=_FACTORED,
)
def lu(A, *, pivot=True):
    """The named tuple (P, L, U) of A = P L U: permutation, unit lower and upper triangular."""
    LU, _, order = _factor(A, pivot, "linalg.lu")
    return _matrix_of(order, A.dtype), *_parts(LU)


@linalg(
    "linalg_lu_factor_ex",
    signature="A, *, pivot=True, check_errors=False",
    outputs=return_types.linalg_lu_factor_ex,
    function=False,
    samples=_FACTORED,
)
def _lu_factor(A, *, pivot=True, check_errors=False):
    LU, pivots, _ = _factor(A, pivot, "linalg.lu_factor")
    return LU, pivots + 1, first_zero(_diagonal(LU))


def _zero_pivot(i: int) -> str:
    return (
        f"U[{i},{i}] is zero and using it on lu_solve would result in a division by zero. If you still want to "
        "perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
    )


@composite(method=False, namespace="linalg")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: Any = None) -> Any:
    """The named tuple (LU, pivots, info) of square or rectangular matrices; `info`: the first zero pivot, from 1."""
    result = _lu_factor.function(A, pivot=pivot, out=out)
    if check_errors:
        check_info("linalg.lu_factor_ex", result.info, _zero_pivot)
    return result


@composite(method=False, namespace="linalg")
def lu_factor(A: Tensor, *, pivot: bool = True, out: Any = None) -> Any:
    """The named tuple (LU, pivots): L and U in one matrix, and the rows that were exchanged, from 1.

    Raises `LinAlgError` for a pivot of zero.

    >>> import xgrad
    >>> xgrad.linalg.lu_factor(xgrad.tensor([[0.0, 1.0], [2.0, 4.0]])).pivots
    tensor([2, 2], dtype=xgrad.int32)
    """
    result = _lu_factor.function(A, pivot=pivot, out=None if out is None else (*out, no_info()))
    check_info("linalg.lu_factor", result.info, _zero_pivot)
    return return_types.linalg_lu_factor(*result[:2])


@composite
def lu_(input: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """(LU, pivots), and with `get_infos` also `info`: `linalg.lu_factor_ex` under its former name."""
    result = _lu_factor.function(input, pivot=pivot)
    return result if get_infos else tuple(result[:2])


# -- unpacking and solving --------------------------------------------------------------------------------------------


def _check_pivots(name: str, LU: Any, pivots: Any) -> None:
    if getattr(pivots, "dtype", None) != jnp.int32:
        raise RuntimeError(
            f"{name}: LU_pivots is expected to be a tensor of dtype torch.int32. Note: this function is intended to "
            "be used with the output of linalg.lu_factor"
        )
    values = on_host(pivots)
    if values is not None and values.size and (values.min() < 1 or values.max() > LU.shape[-2]):
        raise RuntimeError(
            f"{name}: pivots passed to {name} must be between 1 and LU.size(-2) inclusive. Did you properly pass the "
            "result of lu_factor?"
        )


def _check_unpack(arrays: tuple, statics: tuple) -> None:
    if statics[1]:
        _check_pivots("lu_unpack", *arrays)


@operator(
    method=False,
    signature="LU_data, LU_pivots, unpack_data=True, unpack_pivots=True",
    outputs=return_types.lu_unpack,
    output_differentiability=(False, True, True),
    check=_check_unpack,
    samples=(
        sample(real(3, 3), exchanges(3, 3)), sample(real(3, 2), exchanges(3, 2)),
        sample(real(2, 3), exchanges(2, 2), unpack_pivots=False),
    ) + COMPLEX,
)  # fmt: skip
def lu_unpack(LU_data, LU_pivots, *, unpack_data=True, unpack_pivots=True):
    """The named tuple (P, L, U) from the results of `linalg.lu_factor`; results that are not wanted are empty."""
    nothing = jnp.zeros((0,), LU_data.dtype)
    P = _matrix_of(_order(LU_pivots, LU_data.shape[-2]), LU_data.dtype) if unpack_pivots else nothing
    return (P, *_parts(LU_data)) if unpack_data else (P, nothing, nothing)


lu_unpack.derivative(LU_data=linear)


def _solve(LU: Any, order: Any, B: Any, back: bool) -> Any:
    """A^-1 B for A = P L U, or A^-H B."""
    by = partial(jax.lax.linalg.triangular_solve, LU, left_side=True)
    if not back:
        B = jnp.take_along_axis(B, order[..., None], axis=-2)
        return by(by(B, lower=True, unit_diagonal=True), lower=False)
    options: dict[str, Any] = dict(transpose_a=True, conjugate_a=True)
    found = by(by(B, lower=False, **options), lower=True, unit_diagonal=True, **options)
    return jnp.take_along_axis(found, jnp.argsort(order, axis=-1)[..., None], axis=-2)


def _check_solve(arrays: tuple, statics: tuple) -> None:
    _check_pivots("linalg.lu_solve", *arrays[:2])


@linalg(
    "linalg_lu_solve",
    signature="LU, pivots, B, *, left=True, adjoint=False",
    check=_check_solve,
    samples=(
        sample(regular(3, 3), exchanges(3, 3), real(3, 2)), sample(regular(2, 2), exchanges(2, 2), real(2, 2, 1)),
        sample(regular(3, 3), exchanges(3, 3), real(3, 2), adjoint=True),
        sample(regular(3, 3), exchanges(3, 3), real(2, 3), left=False),
    ) + COMPLEX + SINGLE,
)  # fmt: skip
def lu_solve(LU, pivots, B, *, left=True, adjoint=False):
    """The X with A X = B (X A = B if not `left`; A^H for A if `adjoint`), given `linalg.lu_factor(A)`.

    >>> import xgrad
    >>> LU, pivots = xgrad.linalg.lu_factor(xgrad.tensor([[0.0, 2.0], [4.0, 0.0]]))
    >>> xgrad.linalg.lu_solve(LU, pivots, xgrad.tensor([[2.0], [4.0]]))
    tensor([[1.],
            [1.]])
    """
    require_matrices(LU, "linalg.lu_solve")
    require_same(LU, B, "linalg.lu_solve")
    if pivots.shape != LU.shape[:-1]:
        raise RuntimeError(
            f"linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix, but got "
            f"{list(pivots.shape)} for {list(LU.shape)}"
        )
    n = LU.shape[-1]
    if B.ndim < 2 or B.shape[-2 if left else -1] != n:
        raise RuntimeError(
            f"linalg.lu_solve: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
            f"({'x'.join(map(str, LU.shape[-2:]))} and {'x'.join(map(str, B.shape[-2:]))})"
        )
    order = _order(pivots, n)[..., None]
    LU, order, B = broadcast_batches(LU, order, B)
    if not (LU.size and B.size):
        return jnp.zeros_like(B)
    order = order[..., 0]
    # X A = B is A^H X^H = B^H.
    return _solve(LU, order, B, adjoint) if left else adjoint_of(_solve(LU, order, adjoint_of(B), not adjoint))


@composite("lu_solve")
def _old_lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`linalg.lu_solve` with its arguments in the former order."""
    return lu_solve.function(LU_data, LU_pivots, input, out=out)
