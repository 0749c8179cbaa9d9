"""svd_lowrank, pca_lowrank: approximate a matrix's largest singular values and vectors by a random subspace.

(Halko, Martinsson, Tropp, SIAM Review 53, 2011; PyTorch: torch/_lowrank.py.)
"""

from typing import Any

from ...dispatch.declare import composite
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .householder import qr
from .singular import svd


def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """Orthonormal columns that nearly span the range of A."""
    Q = qr.function(A @ FUNCTIONS[""]["randn"](A.shape[-1], q, dtype=A.dtype, device=A.device))[0]
    for _ in range(niter):
        Q = qr.function(A.mH @ Q)[0]
        Q = qr.function(A @ Q)[0]
    return Q


@composite(method=False)
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> Any:
    """(U, S, V) of nearly A = U diag(S) V^H, for the largest singular values; of A - M if M is given.

    A: (*, m, n), of the rank `q`, at most min(m, n); `niter`: the subspace iterations that sharpen it.
    Random: it draws from the default generator.
    """
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    m, n = A.shape[-2:]
    q = min(q, m, n)
    A = A if M is None else A - M
    if m < n:
        Q = _basis(A.mH, q, niter)
        U, S, Vh = svd.function(A @ Q, False)
        return U, S, Q @ Vh.mH
    Q = _basis(A, q, niter)
    U, S, Vh = svd.function(Q.mH @ A, False)
    return Q @ U, S, Vh.mH


@composite(method=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Any:
    """`svd_lowrank` of the rows of A minus their mean (not subtracted if `center` is False)."""
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)
