"""fit: sums a broadcast gradient back to its argument's shape and casts it to the argument's dtype, over JAX arrays."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..base.dtypes import COMPLEX
from ..execution.programs.half import summed


def expandable(shape: tuple[Any, ...], to: tuple[Any, ...]) -> bool:
    """Return whether `shape` can be broadcast to `to`."""
    return len(shape) <= len(to) and all(s in (1, t) for s, t in zip(reversed(shape), reversed(to), strict=False))


def misshapen(node: str, index: int, got: tuple[Any, ...], shape: tuple[Any, ...]) -> RuntimeError:
    """Make the error for a gradient that does not have its argument's shape and cannot be summed to it."""
    return RuntimeError(
        f"Function {node} returned an invalid gradient at index {index} - got {list(got)} but expected shape "
        f"compatible with {list(shape)}"
    )


def fit(array: Any, shape: tuple[Any, ...], dtype: np.dtype, node: str = "", index: int = 0) -> Any:
    """Sum a broadcast array back to `shape` and cast it to `dtype` (None: leave it).  A pure JAX function.

    Raises `RuntimeError` for a shape that does not broadcast; `node` and `index` name the gradient in the error.
    """
    if array.shape != shape:
        if not expandable(shape, array.shape):
            raise misshapen(node, index, array.shape, shape)
        extra = array.ndim - len(shape)
        axes = tuple(range(extra)) + tuple(
            i + extra for i, n in enumerate(shape) if n == 1 and array.shape[i + extra] != 1
        )
        array = summed(array, axes).reshape(shape)
    if dtype is not None and array.dtype != dtype:
        if array.dtype in COMPLEX and dtype not in COMPLEX:
            array = jnp.real(array)
        array = array.astype(dtype)
    return array
