"""xgrad.linalg: eig, eigh, eigvals, eigvalsh, the eigenvalues and eigenvectors of general and of Hermitian matrices.

Eigenvectors are fixed up to their phase, and have a derivative where eigenvalues are distinct.  The gradients save the
result, as PyTorch's do (linalg_eig_backward, FunctionsManual.cpp): equal eigenvalues make the gradient of vectors NaN
or infinite, the gradient of the values alone is right for any matrix, and a loss that depends on the phase of complex
vectors is an error.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import return_types
from ...base import dtypes as _dtypes
from ...base.platforms import traced_for
from ...config import state
from ...dispatch.declare import composite, operator
from ...dispatch.samples import COMPLEX, SINGLE, definite, real, regular, sample
from ...tensor import Tensor
from .checks import adjoint, differences, require_invariant, require_matrices

linalg: Any = partial(operator, namespace="linalg", method=False)


# -- Hermitian matrices -----------------------------------------------------------------------------------------------


def _rotation(inner: Any, values: Any) -> Any:
    """The mixing of eigenvectors: inner_ij / (L_j - L_i), 0 on the diagonal."""
    return inner * (1 - jnp.eye(values.shape[-1], dtype=values.dtype)) / differences(values)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def _eigh(A: Any, UPLO: str) -> Any:
    values, vectors = jnp.linalg.eigh(A, UPLO=UPLO, symmetrize_input=False)
    return values, vectors


@_eigh.defjvp
def _eigh_tangent(UPLO: str, primals: tuple, tangents: tuple) -> Any:
    """dL = diag(V^H dA V), dV = V (V^H dA V / E).  JAX's own rule decomposes the mean of both triangles instead."""
    values, V = _eigh(*primals, UPLO)
    inner = adjoint(V) @ tangents[0] @ V
    return (values, V), (jnp.real(jnp.diagonal(inner, axis1=-2, axis2=-1)), V @ _rotation(inner, values))


_HERMITIAN = (sample(definite(3, 3)), sample(definite(2, 2, 2), UPLO="U")) + COMPLEX + SINGLE
_GENERAL = (sample(regular(3, 3)), sample(regular(2, 2, 2)), sample(real(0, 0))) + COMPLEX + SINGLE


@linalg("linalg_eigh", signature='A, UPLO="L"', outputs=return_types.linalg_eigh, samples=_HERMITIAN)
def eigh(A, *, UPLO="L"):
    """The named tuple (eigenvalues, eigenvectors) of Hermitian matrices; only one triangle is read.

    The vectors have no gradient (NaN) where eigenvalues are equal; a loss that depends on the phase of complex vectors
    raises `RuntimeError` in backward.
    """
    require_matrices(A, "linalg.eigh")
    if UPLO not in ("L", "U", "l", "u"):
        raise RuntimeError(f"linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return _eigh(A, UPLO.upper())


def _eigh_gradient(grads, results, defined):
    """V (diag(gL) + skew(V^H gV) / E) V^H with E_ij = L_j - L_i."""
    (of_values, of_vectors), (values, V) = grads, results
    inner = V * of_values[..., None, :]
    if defined[1]:
        turned = adjoint(V) @ of_vectors
        inner = inner + V @ ((turned - adjoint(turned)) / 2 / differences(values))
    return inner @ adjoint(V)


eigh.derivative(A=_eigh_gradient)


def _check_phases(name: str) -> Any:
    def check(grads: list, saved: list) -> None:
        if grads[1] is not None:
            require_invariant(name, "eigenvectors", [(saved[1], grads[1], -2, 1)])

    return check


eigh.operator.check_gradients = _check_phases("linalg_eigh_backward")


@linalg("linalg_eigvalsh", signature='A, UPLO="L"', function=False, node="LinalgEighBackward0", samples=_HERMITIAN)
def _eigvalsh(A, *, UPLO="L"):
    require_matrices(A, "linalg.eigvalsh")
    return eigh(A, UPLO=UPLO)[0]


# -- general matrices -------------------------------------------------------------------------------------------------


def _by_numpy(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues and eigenvectors as LAPACK makes them, for JAX's CPU too: NaN of what is not finite."""
    dtype, finite = np.result_type(A, np.complex64), np.asarray(np.isfinite(A).all((-2, -1)))
    values, vectors = np.linalg.eig(np.where(finite[..., None, None], A, 0))
    values, vectors = values.astype(dtype), vectors.astype(dtype)
    values[~finite] = vectors[~finite] = complex(np.nan, np.nan)
    return values, vectors


def _to_one(A: Any) -> tuple[Any, Any]:
    """Return matrices whose largest element is near 1, and the powers of two that they were divided by.

    LAPACK scales by itself where elements are beyond 1e-12 or 1e12 (1e-138 or 1e138 in double precision), and the
    eigenvalues of jaxlib's stay scaled: of a matrix times 1e20 they are 4e-9 of what they should be.
    """
    largest = jnp.max(jnp.abs(A), axis=(-2, -1))
    usual = jnp.isfinite(largest) & (largest > 0)
    exponent = jnp.frexp(jnp.where(usual, largest, 1))[1] - 1
    # Not the largest power: XLA multiplies by its inverse, which is subnormal, and so 0.
    scale = jnp.ldexp(jnp.ones_like(largest), jnp.minimum(exponent, jnp.finfo(largest.dtype).maxexp - 3))
    return A / scale[..., None, None], scale[..., None]


@jax.custom_jvp
def _eig(A: Any) -> Any:
    if traced_for() != "tpu":
        A, scale = _to_one(A)
        values, vectors = jnp.linalg.eig(A)
        return values * scale, vectors
    # A TPU has no program for it: the host computes it, in the middle of the chip's program.
    dtype = jnp.promote_types(A.dtype, jnp.complex64)
    like = jax.ShapeDtypeStruct(A.shape[:-1], dtype), jax.ShapeDtypeStruct(A.shape, dtype)
    return jax.pure_callback(lambda A: _by_numpy(np.asarray(A)), like, A, vmap_method="broadcast_all")


@_eig.defjvp
def _eig_tangent(primals: tuple, tangents: tuple) -> Any:
    """dL = diag(V^-1 dA V), and dV keeps the columns' length (JAX has this for new releases alone)."""
    values, V = _eig(*primals)
    inner = jnp.linalg.solve(V, tangents[0].astype(V.dtype) @ V)
    moved = V @ _rotation(inner, values)
    lengthened = jnp.real(jnp.sum(jnp.conj(V) * moved, axis=-2, keepdims=True))
    return (values, V), (jnp.diagonal(inner, axis1=-2, axis2=-1), moved - V * lengthened)


@linalg("linalg_eig", outputs=return_types.linalg_eig, samples=_GENERAL)
def eig(A):
    """The named tuple (eigenvalues, eigenvectors) of square matrices, complex.  Not on every device and jax release.

    The vectors have no gradient (NaN) where eigenvalues are equal; a loss that depends on their phase raises
    `RuntimeError` in backward.
    """
    require_matrices(A, "linalg.eig")
    if not A.size:
        complex_ = _dtypes.complex128 if A.dtype.itemsize in (8, 16) and A.dtype != _dtypes.complex64 else None
        dtype = complex_ or _dtypes.complex64
        return jnp.zeros(A.shape[:-1], dtype), jnp.zeros(A.shape, dtype)
    return _eig(A)


def _eig_gradient(grads, results, defined, dtypes):
    """V^-H (diag(gL) + (V^H gV - V^H V diag(Re V^H gV)) / E*) V^H with E_ij = L_j - L_i."""
    (of_values, of_vectors), (values, V) = grads, results
    if not V.size:
        return jnp.zeros(V.shape, dtypes[0])
    Vh = adjoint(V)
    inner = of_values[..., None] * Vh
    if defined[1]:
        turned = Vh @ of_vectors
        lengthened = jnp.real(jnp.diagonal(turned, axis1=-2, axis2=-1))
        turned = turned - (Vh @ V) * lengthened[..., None, :]
        inner = inner + (turned / jnp.conj(differences(values))) @ Vh
    found = jnp.linalg.solve(Vh, inner)
    return found if dtypes[0] in _dtypes.COMPLEX else jnp.real(found)


eig.derivative(A=_eig_gradient)
eig.operator.check_gradients = _check_phases("linalg_eig_backward")


@jax.custom_jvp
def _values(A: Any) -> Any:
    if traced_for() == "tpu":
        return _eig(A)[0]
    A, scale = _to_one(A)
    return jnp.linalg.eigvals(A) * scale


@_values.defjvp
def _values_tangent(primals: tuple, tangents: tuple) -> Any:
    """The tangent of `eig`, which has derivatives of every order: JAX's own has the first alone."""
    (values, _), (moved, _) = jax.jvp(_eig, primals, tangents)
    return values, moved


@linalg("linalg_eigvals", function=False, node="LinalgEigBackward0", samples=_GENERAL)
def _eigvals(A):
    require_matrices(A, "linalg.eigvals")
    return _values(A) if A.size else eig(A)[0]


# -- eigenvalues alone ------------------------------------------------------------------------------------------------


def watched(A: Any) -> bool:
    """Return whether a derivative may be asked for: it needs the vectors, which are computed at once then."""
    return state.forward_level >= 0 or (state.grad_enabled and isinstance(A, Tensor) and A.requires_grad)


@composite(method=False, namespace="linalg")
def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """The eigenvalues of Hermitian matrices in ascending order."""
    if out is None and watched(A):
        return eigh.function(A, UPLO)[0]
    return _eigvalsh.function(A, UPLO, out=out)


@composite(method=False, namespace="linalg")
def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex eigenvalues of square matrices, in no order.  Not on every device and jax release."""
    if out is None and watched(A):
        return eig.function(A)[0]
    return _eigvals.function(A, out=out)
