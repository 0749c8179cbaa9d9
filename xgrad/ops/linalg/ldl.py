"""linalg.ldl_factor, ldl_solve: LDL decompositions of symmetric and Hermitian matrices, and solving with them.

JAX has no LDL decomposition.  The matrices may be indefinite.  This is LAPACK's choice of pivots (sytf2 and hetf2,
lower triangle; Bunch and Kaufman, Math.  Comp. 31, 1977) in a loop over columns, each step a fixed number of vector
operations: a block of two pivots takes two columns, and is marked by a negative pivot for both.  The decomposition has
no gradient, as in PyTorch.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ... import return_types
from ...dispatch.declare import composite, operator
from ...dispatch.samples import COMPLEX, SINGLE, definite, exchanges, real, regular, sample, whole
from ...tensor import Tensor
from .checks import broadcast_batches, check_info, no_info, not_implemented, require_matrices, require_same

linalg: Any = partial(operator, namespace="linalg", method=False)

# At this ratio one block of two and two single pivots make elements grow equally.
_ALPHA = (1 + 17**0.5) / 8


def _size(x: Any) -> Any:
    return jnp.abs(jnp.real(x)) + jnp.abs(jnp.imag(x)) if jnp.iscomplexobj(x) else jnp.abs(x)


def _exchange(i: Any, j: Any, n: int) -> Any:
    """The numbers to n, i and j exchanged."""
    return jnp.arange(n).at[i].set(j).at[j].set(i)


def _factor(A: Any, conj: Any) -> tuple[Any, Any, Any]:
    """(LD, pivots, info) of one matrix; only its lower triangle is read."""
    n = A.shape[-1]
    at = jnp.arange(n)
    lower = jnp.tril(A, -1)
    diagonal = jnp.diagonal(A)
    full = lower + conj(lower.T) + jnp.diag(conj(diagonal) / 2 + diagonal / 2)
    # A row and column of zeros, so that a block of two has a second column at the end, too.
    full = jnp.pad(full, (0, 1))
    at = jnp.arange(n + 1)

    def step(state: Any) -> Any:
        k, S, LD, pivots, info = state
        column = jnp.where(at > k, _size(S[:, k]), -1)
        other = jnp.argmax(column)
        largest = jnp.maximum(column[other], 0)
        here = _size(S[k, k])
        row = jnp.max(jnp.where((at >= k) & (at != other), _size(S[:, other]), 0))
        bad = (jnp.maximum(here, largest) == 0) | jnp.isnan(here)
        # here >= alpha * largest * (largest / row), without the quotient
        stay = bad | (here >= _ALPHA * largest) | (here * row >= _ALPHA * largest * largest)
        single = stay | (_size(S[other, other]) >= _ALPHA * row)
        chosen = jnp.where(stay, k, other)
        second = jnp.where(single, k, k + 1)
        order = _exchange(second, chosen, n + 1)
        S = S[order][:, order]
        one = S[:, k]
        below = jnp.where(at > k, one / jnp.where(bad, 1, S[k, k]), 0)
        two = jax.lax.dynamic_slice(S, (0, k), (n + 1, 2))
        block = jax.lax.dynamic_slice(two, (k, 0), (2, 2))
        det = block[0, 0] * block[1, 1] - block[0, 1] * block[1, 0]
        adjugate = jnp.stack([block[1, 1], -block[0, 1], -block[1, 0], block[0, 0]]).reshape(2, 2)
        pair = jnp.where((at > k + 1)[:, None], two @ adjugate / jnp.where(single, 1, det), 0)
        # A single pivot is a pair whose second column is 0.
        pair = jnp.where(single, jnp.stack([below, jnp.zeros_like(below)], 1), pair)
        D = jnp.where(single, jnp.diag(jnp.stack([block[0, 0], jnp.zeros_like(det)])), block)
        S = S - pair @ D @ conj(pair.T)
        first = pair[:, 0] + jnp.where(at == k, D[0, 0], 0) + jnp.where(at == k + 1, D[1, 0], 0)
        LD = LD.at[:, k].set(first)
        following = pair[:, 1] + jnp.where(at == k + 1, D[1, 1], 0)
        LD = LD.at[:, k + 1].set(jnp.where(single, LD[:, k + 1], following))
        mark = jnp.where(single, chosen + 1, -(chosen + 1)).astype(jnp.int32)
        pivots = pivots.at[k].set(mark)
        pivots = pivots.at[k + 1].set(jnp.where(single, pivots[k + 1], mark))
        info = jnp.where(bad & (info == 0), k + 1, info).astype(jnp.int32)
        return jnp.where(single, k + 1, k + 2), S, LD, pivots, info

    start = (jnp.asarray(0), full, jnp.zeros_like(full), jnp.zeros(n + 1, jnp.int32), jnp.zeros((), jnp.int32))
    _, _, LD, pivots, info = jax.lax.while_loop(lambda state: state[0] < n, step, start)
    return LD[:n, :n], pivots[:n], info


def _over_batch(function: Any, *arrays: Any) -> Any:
    """Map a function of single matrices over their batch."""
    for _ in arrays[0].shape[:-2]:
        function = jax.vmap(function)
    return function(*arrays)


def _conjugate(hermitian: bool) -> Any:
    return jnp.conj if hermitian else lambda x: x


@linalg(
    "linalg_ldl_factor_ex",
    signature="A, *, hermitian=False, check_errors=False",
    outputs=return_types.linalg_ldl_factor_ex,
    function=False,
    missing="linalg_ldl_factor_ex",
    samples=(sample(definite(3, 3)), sample(real(3, 3)), sample(real(2, 2), hermitian=True), sample(real(0, 0)))
    + COMPLEX
    + SINGLE,
)
def _ldl_factor(A, *, hermitian=False, check_errors=False):
    require_matrices(A, "torch.linalg.ldl_factor_ex")
    if not A.size:
        return A, jnp.zeros(A.shape[:-1], jnp.int32), jnp.zeros(A.shape[:-2], jnp.int32)
    return _over_batch(partial(_factor, conj=_conjugate(hermitian and jnp.iscomplexobj(A))), A)


_ldl_factor.derivative(all=not_implemented("linalg_ldl_factor_ex", "use linalg.eigh or linalg.lu_factor"))


def _zero_pivot(i: int) -> str:
    return (
        f"D[{i},{i}] is exactly zero. The factorization has been completed, but it cannot be used to solve a system: "
        "linalg.ldl_factor_ex gives it without this error"
    )


@composite(method=False, namespace="linalg")
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False, out: Any = None) -> Any:
    """The named tuple (LD, pivots, info); see `ldl_factor`.  `info`: the number, from 1, of the first zero pivot."""
    result = _ldl_factor.function(A, hermitian=hermitian, out=out)
    if check_errors:
        check_info("torch.linalg.ldl_factor_ex", result.info, _zero_pivot)
    return result


@composite(method=False, namespace="linalg")
def ldl_factor(A: Tensor, *, hermitian: bool = False, out: Any = None) -> Any:
    """The named tuple (LD, pivots) of symmetric (Hermitian if `hermitian`) matrices; only one triangle is read.

    LD holds the unit lower triangular L and the block-diagonal D; a negative pivot marks blocks of two, as in LAPACK.
    Not differentiable.  Raises `LinAlgError` for a pivot of zero.
    """
    result = _ldl_factor.function(A, hermitian=hermitian, out=None if out is None else (*out, no_info()))
    check_info("torch.linalg.ldl_factor", result.info, _zero_pivot)
    return return_types.linalg_ldl_factor(*result[:2])


def _solve(LD: Any, pivots: Any, B: Any, conj: Any) -> Any:
    """Solve A X = B.  Exchanges of later steps are applied to the earlier columns of L: P A P^T = L D L^H."""
    n = LD.shape[-1]
    at = jnp.arange(n)

    def step(k: Any, state: Any) -> Any:
        L, order, starts, inside = state
        start = (pivots[k] < 0) & ~inside
        second = k + start
        new = _exchange(second, jnp.where(inside, second, jnp.abs(pivots[k]) - 1), n)
        L = jnp.where(at < k, L[new], L)
        return L, order[new], starts.at[k].set(start), start

    L, order, starts, _ = jax.lax.fori_loop(0, n, step, (jnp.tril(LD, -1), at, jnp.zeros(n, bool), jnp.asarray(False)))
    inner = (at[:, None] == at + 1) & starts  # the element below the diagonal of a block of two belongs to D
    D = jnp.where(inner, LD, 0)
    D = D + conj(D.T) + jnp.diag(jnp.diagonal(LD))
    L = jnp.where(inner, 0, L)
    by = partial(jax.lax.linalg.triangular_solve, L, left_side=True, lower=True, unit_diagonal=True)
    found = jnp.linalg.solve(D, by(B[order]))
    return by(found, transpose_a=True, conjugate_a=conj is jnp.conj)[jnp.argsort(order)]


@linalg(
    "linalg_ldl_solve",
    signature="LD, pivots, B, *, hermitian=False",
    samples=(
        sample(regular(3, 3), exchanges(3, 3), real(3, 2)),
        sample(regular(2, 2), whole(-2, -1, 2), real(2, 1), hermitian=True),  # a block of two
    ) + COMPLEX + SINGLE,
)  # fmt: skip
def ldl_solve(LD, pivots, B, *, hermitian=False):
    """The X with A X = B, given `linalg.ldl_factor(A)`.

    >>> import xgrad
    >>> A = xgrad.tensor([[0.0, 2.0], [2.0, 0.0]])
    >>> xgrad.linalg.ldl_solve(*xgrad.linalg.ldl_factor(A), xgrad.tensor([[2.0], [4.0]]))
    tensor([[2.],
            [1.]])
    """
    require_matrices(LD, "torch.linalg.ldl_solve")
    require_same(LD, B, "torch.linalg.ldl_solve")
    if B.ndim < 2:
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has {B.ndim}")
    if pivots.shape != LD.shape[:-1]:
        raise RuntimeError(
            f"torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with "
            f"shape {list(pivots.shape)} instead of {list(LD.shape[:-1])}"
        )
    if pivots.dtype.kind not in "iu":
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {pivots.dtype.name}")
    if B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(
            f"torch.linalg.ldl_solve: Incompatible shapes of A and B for the equation AX = B ({list(LD.shape)} and "
            f"{list(B.shape)})"
        )
    LD, pivots, B = broadcast_batches(LD, pivots[..., None], B)
    if not (LD.size and B.size):
        return jnp.zeros_like(B)
    conj = _conjugate(hermitian and jnp.iscomplexobj(LD))
    return _over_batch(partial(_solve, conj=conj), LD, pivots[..., 0], B)
