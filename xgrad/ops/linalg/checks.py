"""Helpers of xgrad.linalg's operators: check matrices and `info` codes, refuse losses that depend on vectors' phases.

An algorithm that can fail on values returns an `info`, one integer for each matrix, as LAPACK does: 0 is success.  The
forms `*_ex` return it to the user; the others read it, which waits for the device, as PyTorch does on CUDA.  Under a
JAX trace it is not read.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...base.jax_compat import Tracer
from ...batching.batched_tensor import inner_value
from ...dispatch.promotion import broadcast_shapes, conj
from ...errors import LinAlgError
from ...tensor import Tensor, from_array


def require_matrices(A: Any, name: str, square: bool = True, floating: bool = True) -> None:
    """Raise for anything but (batches of) (floating-point, square) matrices."""
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions, but it has {A.ndim}.")
    if square and A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {A.shape[-2]} by {A.shape[-1]} matrices"
        )
    if floating and (A.dtype not in dtypes.INEXACT or A.dtype.itemsize < 4):
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor of 32 bits or more as input. Got {A.dtype.name}"
        )


def require_same(first: Any, second: Any, name: str) -> None:
    """Raise unless both factors have one dtype: products do not promote."""
    if first.dtype != second.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {dtypes.torch_name(first.dtype)} != "
            f"{dtypes.torch_name(second.dtype)} ({name}: "
            "convert one of them with .to(dtype))"
        )


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    return conj(x.mT)


def is_vector(A: tuple[Any, ...], B: tuple[Any, ...]) -> bool:
    """Return whether a right-hand side of this shape is (a batch of) vectors."""
    return len(B) == 1 or (len(A) - 1 == len(B) and A[:-1] == B)


def broadcast_batches(*matrices: Any) -> list[Any]:
    """Broadcast matrices to a common batch."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in matrices))
    return [jnp.broadcast_to(x, batch + x.shape[-2:]) for x in matrices]


def differences(values: Any) -> Any:
    """values[j] - values[i] at (i, j), and 1 on the diagonal."""
    return values[..., None, :] - values[..., :, None] + jnp.eye(values.shape[-1], dtype=values.dtype)


# -- phases -----------------------------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("axis", "narrow"))
def _change(vectors: Any, gradient: Any, *, axis: int, narrow: tuple) -> Any:
    """The derivative of a loss as the vectors along `axis` are turned by a phase each."""
    places = tuple(slice(n) for n in narrow)
    return jnp.imag(jnp.sum((jnp.conj(vectors) * gradient)[(..., *places)], axis=axis))


def require_invariant(name: str, what: str, turns: list[tuple[Any, Any, int, int]]) -> None:
    """Raise `RuntimeError` if a loss depends on the phases of complex vectors, which are arbitrary.

    `turns`: vectors and their gradients, the axis along which they lie, and the direction in which they turn; all turn
    together.
    """
    if not turns or turns[0][0].dtype not in dtypes.COMPLEX:
        return
    k = min(vectors.shape[-3 - axis] for vectors, _, axis, _ in turns)  # not all columns turn together, if one has more
    total: Any = 0
    for vectors, gradient, axis, direction in turns:
        pair = (vectors, gradient)
        if any(isinstance(x, Tensor) and x._level is not None for x in pair):
            return  # inside of vmap
        narrow = (None, k) if axis == -2 else (k, None)
        found = _change(*(x._read() if isinstance(x, Tensor) else x for x in pair), axis=axis, narrow=narrow)
        total = total + direction * found
    if not isinstance(total, Tracer) and not np.all(np.abs(np.asarray(total)) <= 1e-2):
        raise RuntimeError(
            f"{name}: The {what} in the complex case are specified up to multiplication by e^{{i phi}}. The specified "
            "loss function depends on this quantity, so it is ill-defined."
        )


def not_implemented(name: str, instead: str) -> Callable[..., Any]:
    """Make the formula of a missing gradient: it raises an error in backward, as in PyTorch."""

    def formula(grads: Any) -> Any:
        raise NotImplementedError(f"the derivative for '{name}' is not implemented: {instead}")

    return formula


# -- failures ---------------------------------------------------------------------------------------------------------


def check_info(name: str, info: Any, describe: Callable[[int], str]) -> None:
    """Raise `LinAlgError` for the first matrix whose `info` is not 0."""
    array = inner_value(info)._read()
    if isinstance(array, Tracer) or not array.is_fully_addressable:
        return
    values = np.asarray(array)
    if values.any():
        first = int(np.flatnonzero(values)[0])
        where = f"(Batch element {first}): " if values.ndim else ""
        raise LinAlgError(f"{name}: {where}{describe(int(values.flat[first]))}")


def no_info() -> Tensor:
    """The tensor into which the `out=` form of an operator without `info` writes it."""
    return from_array(jnp.zeros((0,), jnp.int32))


def first_zero(diagonal: Any) -> Any:
    """The `info` of a triangular factor: the number (from 1) of the first zero on its diagonal, or 0."""
    zero = diagonal == 0
    if not zero.shape[-1]:
        return jnp.zeros(zero.shape[:-1], jnp.int32)
    return jnp.where(jnp.any(zero, axis=-1), jnp.argmax(zero, axis=-1) + 1, 0).astype(jnp.int32)
