"""Removes the arbitrary phase of eigenvectors and singular vectors, before `xgrad conform` compares them.

An eigenvector may be multiplied by any e^(i phi).  Times the conjugate of its first element, the product is the same
for each phi.  A column of U and its row of Vh have one phase together.
"""

from collections.abc import Callable
from typing import Any


def _eigenvectors(values: Any, vectors: Any) -> list:
    return [values, vectors * vectors[..., :1, :].conj()]


def _singular_vectors(u: Any, s: Any, vh: Any) -> list:
    """Without the columns beyond the reduced form, which are any basis."""
    k = s.shape[-1]
    first = u[..., :1, :k]
    return [u[..., :k] * first.conj(), s, vh[..., :k, :] * first.mT]


FIXED: dict[str, Callable] = {
    "linalg_eigh": _eigenvectors, "linalg_eig": _eigenvectors, "lobpcg": _eigenvectors,
    "lobpcg_sparse": _eigenvectors, "linalg_svd": _singular_vectors,
}  # fmt: skip
