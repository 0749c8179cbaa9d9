"""validate_outputs: a gradient must have the shape and dtype of what it is the gradient of.

A broadcast gradient is summed to the shape, a complex one for a real tensor loses its imaginary part (unless a custom
Function made it: that is an error), another floating dtype is cast; anything else is an error that names both shapes
(PyTorch: validate_outputs, engine.cpp).
"""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..compile_cache.programs import jit_checked
from ..dtypes import COMPLEX
from ..tensor import Tensor
from . import sparse_gradient
from .sparse_gradient import Shape, SparseGradient


def expandable(shape: tuple, to: tuple) -> bool:
    """Whether `shape` can be broadcast to `to`."""
    return len(shape) <= len(to) and all(s in (1, t) for s, t in zip(reversed(shape), reversed(to), strict=False))


def misshapen(node: str, index: int, got: tuple, shape: tuple) -> RuntimeError:
    """The error for a gradient that is not, and cannot be summed to, the shape of what it is the gradient of."""
    return RuntimeError(
        f"Function {node} returned an invalid gradient at index {index} - got {list(got)} but expected shape "
        f"compatible with {list(shape)}"
    )


def fit(array: Any, shape: tuple, dtype: np.dtype, node: str = "", index: int = 0) -> Any:
    """Sum a broadcast array back to `shape` and cast it to `dtype` (None: leave it).  A pure JAX function.

    Raises `RuntimeError` for another shape; `node` and `index` tell which gradient it is.
    """
    if array.shape != shape:
        if not expandable(shape, array.shape):
            raise misshapen(node, index, array.shape, shape)
        extra = array.ndim - len(shape)
        axes = tuple(range(extra)) + tuple(
            i + extra for i, n in enumerate(shape) if n == 1 and array.shape[i + extra] != 1
        )
        array = jnp.sum(array, axis=axes, dtype=array.dtype).reshape(shape)
    if dtype is not None and array.dtype != dtype:
        if array.dtype in COMPLEX and dtype not in COMPLEX:
            array = jnp.real(array)
        array = array.astype(dtype)
    return array


@functools.lru_cache(maxsize=4096)
def _program(shape: tuple, dtype: np.dtype) -> Any:
    return jit_checked(lambda array: fit(array, shape, dtype), (shape, dtype))


def validate_output(grad: Any, meta: Any, node: Any, index: int) -> Any:
    """The gradient in the form that `meta` (shape, dtype) asks for.  Raises `RuntimeError` if there is none."""
    if grad.__class__ is SparseGradient or meta.shape.__class__ is Shape:
        return sparse_gradient.arrive(grad, meta, node, index)
    shape, dtype = tuple(meta.shape), meta.dtype
    if not expandable(shape, grad.shape):
        raise misshapen(node.name(), index, grad.shape, shape)
    if dtype is None:
        dtype = grad.dtype
        if grad.shape == shape:
            return grad
    if grad.dtype in COMPLEX and dtype not in COMPLEX and not node.raw:
        raise RuntimeError(
            f"Function {node.name()} returned a complex gradient at index {index} - got {grad.dtype.name} for an input "
            f"of {dtype.name}: its imaginary part would be lost. Return its .real if that is meant."
        )
    node.misfit()
    if isinstance(grad, Tensor):
        return tensor_fit(grad, shape, dtype)
    return _program(shape, dtype)(grad)


sparse_gradient.validate = validate_output
tensor_fit: Any = None  # the recorded form, set by xgrad/attach.py
