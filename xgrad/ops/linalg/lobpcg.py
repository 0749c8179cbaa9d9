"""lobpcg: computes a few of the largest or smallest eigenpairs of a symmetric matrix, by products with it.

The locally optimal block preconditioned conjugate gradient method (A. Knyazev, SIAM J. Sci. Comput. 23, 2001): in each
iteration the best approximations within span{X, W, P}, the vectors, their preconditioned residuals and the last
step.  A QR decomposition makes the basis orthonormal; in place of dependent columns it puts arbitrary new directions.
All iterations are one program.  (PyTorch: torch/_lobpcg.py.)

The derivative is the derivative of the exact eigenpairs: within span{V} as `linalg.eigh`'s, outside of it by one linear
system for each eigenvalue.  It exists where the wanted eigenvalues differ from all others.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...base import dtypes
from ...config import Unrecorded
from ...dispatch.declare import composite, internal
from ...dispatch.samples import SINGLE, definite, fixed, positive, real, sample, whole
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .checks import differences

_MANY = 2**31 - 1


def _iterate(product: Any, X: Any, iK: Any, k: int, niter: int, tol: float, largest: bool) -> tuple:
    """(eigenvalues, eigenvectors) of a matrix; `product` multiplies it with a block of vectors."""
    n = X.shape[1]
    if jnp.iscomplexobj(X):
        raise RuntimeError("lobpcg: A must be real. Use linalg.eigh for complex matrices.")

    def best(basis: Any) -> tuple:
        """The Ritz pairs within the span of orthonormal columns, the wanted ones first."""
        projected = basis.T @ product(basis)
        values, mixed = jnp.linalg.eigh((projected + projected.T) / 2)
        order = slice(None, None, -1) if largest else slice(None)
        return values[order][:n], basis @ mixed[:, order][:, :n]

    def residual(values: Any, X: Any) -> Any:
        return product(X) - X * values

    def error(values: Any, R: Any) -> Any:
        """The largest relative residual of the first k pairs."""
        return jnp.max((jnp.linalg.norm(R, axis=0) / (scale + jnp.abs(values)))[:k])

    def unit(block: Any) -> Any:
        length = jnp.linalg.norm(block, axis=0)
        return block / jnp.where(length == 0, 1, length)

    def step(state: tuple) -> tuple:
        count, values, X, P, R, _ = state
        W = R if iK is None else iK @ R
        values, new = best(jnp.linalg.qr(jnp.concatenate([X, unit(W), unit(P)], 1))[0])
        R = residual(values, new)
        return count + 1, values, new, new - X @ (X.T @ new), R, error(values, R)

    scale = jnp.linalg.norm(product(X)) / jnp.linalg.norm(X)
    values, X = best(jnp.linalg.qr(X)[0])
    R = residual(values, X)
    start = (jnp.int32(1), values, X, jnp.zeros_like(X), R, error(values, R))
    # NaN >= tol is false: a NaN ends the loop.
    _, values, X, *_ = jax.lax.while_loop(lambda state: (state[0] < niter) & (state[-1] >= tol), step, start)
    return values[:k], X[:, :k]


def _outside(A: Any, values: Any, V: Any, block: Any) -> Any:
    """For each j, (L_j - A)^-1 times column j of `block`, both without their parts in span{V}."""
    m = A.shape[-1]
    inside = V @ V.mT
    rest = jnp.eye(m, dtype=A.dtype) - inside
    L = values[..., :, None, None]
    systems = L * jnp.eye(m, dtype=A.dtype) - (rest @ A @ rest)[..., None, :, :] + (1 - L) * inside[..., None, :, :]
    found = jnp.linalg.solve(systems, (rest @ block).mT[..., None])
    return rest @ found[..., 0].mT


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5, 6))
def _eigenpairs(A: Any, X: Any, iK: Any, k: int, niter: int, tol: float, largest: bool) -> Any:
    def one(A: Any, X: Any, iK: Any) -> tuple:
        return _iterate(lambda block: A @ block, X, iK, k, niter, tol, largest)

    over = one
    for _ in A.shape[:-2]:
        over = jax.vmap(over, in_axes=(0, 0, None))
    return over(A, X, iK)


@_eigenpairs.defjvp
def _eigenpairs_tangent(
    k: int, niter: int, tol: float, largest: bool, primals: tuple, tangents: tuple
) -> tuple[tuple, tuple]:
    A, dA = primals[0], tangents[0]
    values, V = _eigenpairs(*primals, k, niter, tol, largest)
    moved = dA @ V
    inner = V.mT @ moved
    mixed = V @ (inner * (1 - jnp.eye(k, dtype=A.dtype)) / differences(values))
    along = jnp.diagonal(inner, axis1=-2, axis2=-1), mixed + _outside(A, values, V, moved)
    return (values, V), along


@internal(
    "lobpcg",
    samples=(
        sample(definite(3, 3), fixed(real(3, 1)), None, k=1, niter=9, tol=1e-14, largest=True),
        sample(definite(4, 4), fixed(real(4, 1)), fixed(definite(4, 4)), k=1, niter=40, tol=1e-14, largest=False),
    )
    + SINGLE,
)
def _lobpcg(A, X, iK, *, k, niter, tol, largest):
    return _eigenpairs(A, X, iK, k, niter, tol, largest)


def _gradient(grads, A, results, defined):
    (of_values, of_vectors), (values, V) = grads, results
    inner = V * of_values[..., None, :]
    if not defined[1]:
        return inner @ V.mT
    turned = V.mT @ of_vectors
    eye = jnp.eye(V.shape[-1], dtype=V.dtype)
    inner = inner + V @ (turned * (1 - eye) / differences(values)) + _outside(A, values, V, of_vectors)
    return inner @ V.mT


_lobpcg.derivative(A=_gradient)  # X and iK are detached


@internal(
    "lobpcg_sparse",
    differentiable=False,
    samples=(sample(positive(3), whole(0, 3, 2, 3), real(3, 1), None, k=1, niter=3, tol=1e-9, largest=True),) + SINGLE,
)  # fmt: skip
def _lobpcg_sparse(values, indices, X, iK, *, k, niter, tol, largest):
    def product(block: Any) -> Any:
        return (
            jnp.zeros((X.shape[0], block.shape[1]), block.dtype).at[indices[0]].add(values[:, None] * block[indices[1]])
        )

    return _iterate(product, X, iK, k, niter, tol, largest)


@composite(method=False)
def lobpcg(
    A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None,
    iK: Tensor | None = None, niter: int | None = None, tol: float | None = None, largest: bool | None = None,
    method: str | None = None, tracker: Any = None, ortho_iparams: dict[Any, Any] | None = None,
    ortho_fparams: dict[Any, Any] | None = None, ortho_bparams: dict[Any, Any] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The k largest (or smallest) eigenvalues and eigenvectors of symmetric matrices: (*, k) and (*, m, k).

    A: (*, m, m), float32 or float64, or a sparse matrix (m, m).  B: of the same shape, positive definite: then
        A v = λ B v; it is made dense and factored by Cholesky.  k: default the columns of X, or 1.
    X: (*, m, n), the first approximation of n >= k vectors, `n` random ones unless it is given (default: k).
    iK: (m, m), a preconditioner, an approximate inverse of A.
    niter: how many iterations at most (default 1000).  tol: of the residuals relative to A and λ (default the root of
        the dtype's precision).  largest: default True.

    `method` ("ortho" or "basic") and `ortho_iparams` and its like are taken where PyTorch takes them, without effect:
    there is one method, robust as "ortho" is.  It is differentiated in A and B (PyTorch: in A, without B), to any
    order; gradients are symmetric, and right once the pairs have converged: ask for a small `tol`.

    Raises `ValueError` for m < 3 n, for a sparse A that requires grad and an unknown method; `RuntimeError` for shapes
    and dtypes that do not fit; `NotImplementedError` for a `tracker`, because the iterations are one program: call it
    with niter=1 and X in a loop.

    >>> import xgrad
    >>> A = xgrad.diag(xgrad.arange(1.0, 10.0))
    >>> values, vectors = xgrad.lobpcg(A, k=2, tol=1e-6)
    >>> xgrad.allclose(values, xgrad.tensor([9.0, 8.0]), atol=1e-4)
    True
    """
    if tracker is not None:
        raise NotImplementedError(
            "lobpcg: a tracker cannot be called, the iterations are one program. Call lobpcg(A, X=X, niter=1) in a "
            "loop, with the vectors that it returned as X."
        )
    if method not in (None, "ortho", "basic"):
        raise ValueError(f"lobpcg: method should be 'ortho' or 'basic', but got {method!r}")
    m = _check(A, B)
    dtype = A.dtype if A.dtype in dtypes.INEXACT else dtypes.float32
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if n is None else n) if X is None else X.shape[-1]
    if m < 3 * n:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of "
            f"requested eigenpairs (={n}). Use linalg.eigh."
        )
    if not 0 < k <= n:
        raise ValueError(f"lobpcg: expected 0 < k <= n, but got k={k} and n={n}")
    batch = tuple(A.shape[:-2])
    if X is None:
        X = FUNCTIONS[""]["randn"](*batch, m, n, dtype=dtype, device=A.device)
    elif tuple(X.shape) != (*batch, m, n):
        raise RuntimeError(f"lobpcg: X should be of shape {[*batch, m, n]}, but is {list(X.shape)}")
    if iK is not None:
        iK = iK.detach().to_dense().to(dtype)
    first: Any = X
    X = first.detach().to(dtype)
    tol = float(jnp.finfo(dtype).eps) ** 0.5 if tol is None else float(tol)
    niter = 1000 if niter is None else int(niter)
    statics = k, _MANY if niter < 0 else niter, tol, largest is not False
    if A._sparse and B is None:
        if A.requires_grad:
            raise ValueError("lobpcg.backward does not support sparse input: give it to_dense(), or detach()")
        source: Any = A if A.layout != "sparse_coo" else A.coalesce()
        with Unrecorded():
            return _lobpcg_sparse.function(source._entries.to(dtype), source._index, X, iK, *statics)
    A = A.to_dense().to(dtype)
    A = (A + A.mT) / 2 if A.requires_grad else A
    if B is None:
        return _lobpcg.function(A, X, iK, *statics)
    # In coordinates y = L^T v, with B = L L^T, the problem is the standard one.
    B = B.to_dense().to(dtype)
    B = (B + B.mT) / 2 if B.requires_grad else B
    triangular, L = FUNCTIONS["linalg"]["solve_triangular"], FUNCTIONS["linalg"]["cholesky"](B)
    inner = triangular(L, triangular(L, A, upper=False).mT, upper=False)
    if iK is not None:
        iK = (L.mT @ iK @ L).detach()
    values, Y = _lobpcg.function((inner + inner.mT) / 2, (L.mT @ X).detach(), iK, *statics)
    return values, triangular(L.mT, Y, upper=True)


def _check(A: Any, B: Any) -> int:
    """Check the matrices, and return the number of rows."""
    for name, x in (("A", A), ("B", B)):
        if x is None:
            continue
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise RuntimeError(f"lobpcg: {name} must be square, but has shape {list(x.shape)}")
        if x.dtype in dtypes.COMPLEX or x.dtype in (dtypes.float16, dtypes.bfloat16):
            raise RuntimeError(
                f"lobpcg: {name} must be real, of 32 bits or more, but is {x.dtype.name}. Use linalg.eigh for complex "
                "matrices."
            )
    if B is not None and tuple(A.shape) != tuple(B.shape):
        raise RuntimeError(f"lobpcg: A and B must have the same shape, but got {list(A.shape)} and {list(B.shape)}")
    return A.shape[-1]
