"""xgrad.linalg.lstsq: solves least squares by the singular value decomposition, whichever `driver=` is named.

The solution is pinv(A) B, and is differentiated as that, as PyTorch does (linalg_lstsq_backward, FunctionsManual.cpp).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import return_types
from ...base import dtypes
from ...base.jax_compat import Tracer
from ...batching.batched_tensor import inner_value
from ...dispatch.declare import composite, operator
from ...dispatch.out import write_out
from ...dispatch.promotion import broadcast_shapes
from ...dispatch.samples import COMPLEX, SINGLE, real, sample
from ...dispatch.tables import FUNCTIONS
from ...errors import LinAlgError
from ...tensor import Tensor
from .checks import is_vector
from .singular import pseudo_inverse

_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")

_with_rank = partial(operator, namespace="linalg", method=False, function=False)


def _check(A: Any, B: Any) -> None:
    if A.ndim < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
    if A.dtype != B.dtype:
        raise RuntimeError(
            f"torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype "
            f"{A.dtype.name} and other's dtype {B.dtype.name}"
        )
    if A.dtype not in dtypes.INEXACT or A.dtype.itemsize < 4:
        raise RuntimeError(
            f"linalg.lstsq: Expected a floating point or complex tensor of 32 bits or more as input. Got {A.dtype.name}"
        )
    if not 0 <= A.ndim - B.ndim <= 1:
        raise RuntimeError(
            "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) "
            f"<= 1, but got {list(A.shape)} and {list(B.shape)}"
        )
    rows = B.shape[-1] if is_vector(A.shape, B.shape) else B.shape[-2]
    if rows != A.shape[-2]:
        raise RuntimeError(
            f"torch.linalg.lstsq: input.size(-2) should match other.size({'-1' if rows == B.shape[-1] else '-2'}), "
            f"but got {list(A.shape)} and {list(B.shape)}"
        )


@_with_rank(
    "linalg_lstsq",
    outputs=return_types.linalg_lstsq,
    output_differentiability=(True, True, False, False),
    samples=(
        sample(real(3, 2), real(3, 2), None, driver="gelsy"), sample(real(3, 2), real(3), 0.01, driver="gelsd"),
        sample(real(2, 3), real(2, 1), None, driver="gels"),
    ) + COMPLEX + SINGLE,
)  # fmt: skip
def _lstsq(A, B, rcond, *, driver):
    """Solution, residuals of all right-hand sides, ranks and singular values."""
    _check(A, B)
    vector = is_vector(A.shape, B.shape)
    B = B[..., None] if vector else B
    batch = broadcast_shapes(A.shape[:-2], B.shape[:-2])
    (m, n), k = A.shape[-2:], B.shape[-1]
    real = dtypes.real_of(A.dtype)
    B = jnp.broadcast_to(B, batch + B.shape[-2:])
    if A.size:
        values = jnp.linalg.svd(jax.lax.stop_gradient(A), compute_uv=False)
        if rcond is None or driver == "gels":
            rcond = jnp.finfo(real).eps * max(m, n)
        least = jnp.finfo(real).eps if driver in ("gelsd", "gelss") else 0  # as LAPACK does for a negative rcond
        rtol = jnp.where(jnp.asarray(rcond) < 0, least, rcond).astype(real)
        rank = jnp.sum(values > rtol * values[..., :1], axis=-1)
        X = pseudo_inverse(A, jnp.broadcast_to(rtol, A.shape[:-2])) @ B
    else:
        values, rank = jnp.zeros((*A.shape[:-2], min(m, n)), real), jnp.zeros(A.shape[:-2], int)
        X = jnp.zeros((*batch, n, k), A.dtype) + jnp.sum(B) * 0
    lost = B - A @ X
    residuals = jnp.sum(jnp.real(lost * jnp.conj(lost)), axis=-2)
    X = X[..., 0] if vector else X
    return X, residuals, jnp.broadcast_to(rank, batch).astype(dtypes.default_integer()), values


@composite(method=False, namespace="linalg")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None, out: Any = None) -> Any:
    """The minimum-norm solution X of least squares, |A X - B|: (solution, residuals, rank, singular_values).

    A: (*, m, n); B: (*, m, k) or vectors (*, m).  Singular values up to `rcond` times the largest count as 0.  What
    `driver` ("gelsy" unless given, "gels", "gelsd", "gelss") does not give is empty, as in PyTorch: residuals unless
    m > n and each rank is n (and for "gelsy"), rank for "gels", singular values but for "gelsd" and "gelss".  Raises
    `LinAlgError` for "gels" and a matrix that has a singular value of 0.
    """
    driver = "gelsy" if driver is None else driver
    if driver not in _DRIVERS:
        raise RuntimeError(f"torch.linalg.lstsq: parameter `driver` should be one of ({', '.join(_DRIVERS)})")
    found = _lstsq.function(A, B, rcond, driver=driver)
    if driver == "gels":
        _require_full_rank(found.singular_values)
    m, n = A.shape[-2:]
    none = FUNCTIONS[""]["empty"]
    real = dtypes.real_of(A._dtype)
    residuals = found.residuals if m > n and driver != "gelsy" and _full(found.rank, n, driver) else None
    result = return_types.linalg_lstsq(
        found.solution,
        found.residuals.flatten()[:0] if residuals is None else residuals,
        none(0, dtype=dtypes.default_integer()) if driver == "gels" else found.rank,
        found.singular_values if driver in ("gelsd", "gelss") else none(0, dtype=real),
    )
    if out is None:
        return result
    return return_types.linalg_lstsq(*[write_out("linalg.lstsq", r, o) for r, o in zip(result, out, strict=True)])


def _require_full_rank(values: Tensor) -> None:
    """Raise `LinAlgError` for a matrix that has a singular value of 0, unless the values belong to a trace."""
    array = inner_value(values)._read()
    if not isinstance(array, Tracer) and array.size and (np.asarray(array)[..., -1] == 0).any():
        raise LinAlgError(
            "linalg.lstsq: the least squares solution could not be computed because the input matrix does not have "
            'full rank, which driver "gels" assumes: use "gelsy" or "gelsd"'
        )


def _full(rank: Tensor, n: int, driver: str) -> bool:
    """Return whether all matrices have full rank; "gels" assumes it, and so does a JAX trace."""
    array = inner_value(rank)._read()
    return driver == "gels" or isinstance(array, Tracer) or bool((np.asarray(array) == n).all())
