"""JAX's primitives of linear algebra by NumPy, for by_numpy.py: (arrays, parameters) to a list of arrays or one."""

from collections.abc import Callable
from typing import Any

import numpy as np


def _cholesky(a: Any, **_: Any) -> Any:
    try:
        return np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return np.full_like(a, np.nan)


def _triangular_solve(
    a: Any, b: Any, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool, unit_diagonal: bool, **_: Any
) -> Any:
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        a = np.where(np.eye(a.shape[-1], dtype=bool), 1, a)
    a = np.conj(a) if conjugate_a else a
    a = a.mT if transpose_a else a
    a, b = (a, b) if left_side else (a.mT, b.mT)
    x = _substituted(a, b, lower ^ transpose_a ^ (not left_side))
    return x if left_side else x.mT


def _substituted(a: Any, b: Any, lower: bool) -> Any:
    """The solution, row by row: as in BLAS a zero on the diagonal makes infinities and NaN, and is no error."""
    x = np.empty(np.broadcast_shapes(b.shape, (*a.shape[:-2], 1, 1)), np.result_type(a, b))
    rows, n = range(a.shape[-1]), a.shape[-1]
    for i in rows if lower else reversed(rows):
        known = slice(0, i) if lower else slice(i + 1, n)
        sums = np.einsum("...k,...kj->...j", a[..., i, known], x[..., known, :])
        x[..., i, :] = (b[..., i, :] - sums) / a[..., i, i, None]
    return x


def _lu(a: Any, **_: Any) -> list:
    """The factors in one matrix, the row exchanges, and the permutation that they make."""
    factors = np.array(a)
    rows, k = a.shape[-2], min(a.shape[-2:])
    pivots = np.zeros((*a.shape[:-2], k), np.int32)
    for at in np.ndindex(a.shape[:-2]):
        m = factors[at]
        for i in range(k):
            j = i + int(np.argmax(np.abs(m[i:, i].real) + np.abs(m[i:, i].imag)))
            pivots[(*at, i)] = j
            m[[i, j]] = m[[j, i]]
            m[i + 1 :, i] /= m[i, i]
            m[i + 1 :, i + 1 :] -= np.outer(m[i + 1 :, i], m[i, i + 1 :])
    return [factors, pivots, _permutation(pivots, permutation_size=rows)]


def _permutation(pivots: Any, *, permutation_size: int, **_: Any) -> Any:
    found = np.broadcast_to(np.arange(permutation_size, dtype=np.int32), (*pivots.shape[:-1], permutation_size)).copy()
    for at in np.ndindex(pivots.shape[:-1]):
        for i, j in enumerate(pivots[at]):
            found[at][[i, j]] = found[at][[j, i]]
    return found


def _eig(a: Any, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, **_: Any) -> list:
    assert not compute_left_eigenvectors
    return [*np.linalg.eig(a)] if compute_right_eigenvectors else [np.linalg.eigvals(a)]


def _eigh(a: Any, *, lower: bool, **_: Any) -> list:
    values, vectors = np.linalg.eigh(a, "L" if lower else "U")
    return [vectors, values]


def _svd(a: Any, *, full_matrices: bool, compute_uv: bool, **_: Any) -> list:
    if not compute_uv:
        return [np.linalg.svd(a, compute_uv=False)]
    u, s, vh = np.linalg.svd(a, full_matrices)
    return [s, u, vh]


def _qr(a: Any, *, full_matrices: bool, **_: Any) -> list:
    return [*np.linalg.qr(a, "complete" if full_matrices else "reduced")]


LINALG: dict[str, Callable] = {
    "cholesky": _cholesky, "triangular_solve": _triangular_solve, "lu": _lu, "lu_pivots_to_permutation": _permutation,
    "eig": _eig, "eigh": _eigh, "svd": _svd, "qr": _qr,
}  # fmt: skip
