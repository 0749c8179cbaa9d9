"""`Tensor.grad_dtype`: the dtype in which a leaf's gradient is stored (PyTorch: torch/csrc/autograd/variable.h).

Invariant: the input metadata of a leaf's AccumulateGrad are `expected(leaf)`, so the engine casts each gradient that
arrives there before a hook of the leaf sees it.
"""

from typing import Any, NamedTuple

import jax

from ..base.dtype_object import dtype as dtype_type
from ..base.dtype_object import of
from ..base.dtypes import as_dtype
from ..tensor import SAME, Tensor


class AnyDtype(NamedTuple):
    """The input metadata of a leaf whose `grad_dtype` is None: the shape, and a dtype that no gradient's is equal to.

    So the engine passes each gradient to `validate_output`, which casts nothing for it.
    """

    shape: tuple[Any, ...]
    dtype: None = None


def expected(leaf: Tensor) -> Any:
    """The shape and dtype that a gradient must have at a leaf."""
    dtype = leaf._grad_dtype
    if dtype is SAME:
        array = leaf._array
        return array.aval if array is not None else leaf._like()
    return AnyDtype(tuple(leaf.shape)) if dtype is None else jax.ShapeDtypeStruct(leaf.shape, dtype)


def _only_of_leaves(tensor: Tensor, what: str) -> None:
    if not tensor.is_leaf:
        raise RuntimeError(f"grad_dtype can only be {what} on leaf tensors.")


def grad_dtype(self: Tensor) -> dtype_type | None:
    """The dtype of this leaf's gradient: its own unless another was set; None if gradients are not cast.

    A gradient that arrives at the leaf is cast to it, so a leaf in bfloat16 can gather its gradient in float32.  Raises
    `RuntimeError` for a tensor that is not a leaf, for a value that is not a dtype and if `.grad` has another dtype.

    >>> import xgrad
    >>> x = xgrad.ones(2, dtype=xgrad.bfloat16, requires_grad=True)
    >>> x.grad_dtype = xgrad.float32
    >>> (x * 3).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """
    _only_of_leaves(self, "accessed")
    found = self._dtype_of_grad()
    return None if found is None else of(found)


def set_grad_dtype(self: Tensor, dtype: Any) -> None:
    """`x.grad_dtype = dtype`; None allows any."""
    _only_of_leaves(self, "set")
    if dtype is not None:
        try:
            dtype = as_dtype(dtype)
        except TypeError as error:
            raise RuntimeError(f"grad_dtype must be a dtype or None, but got {type(dtype).__name__}") from error
        if self._grad is not None and self._grad.dtype != dtype:
            raise RuntimeError(
                f"Cannot set grad_dtype to '{dtype.name}' because there is already a gradient with dtype "
                f"'{self._grad.dtype.name}'. Set .grad to None first."
            )
    self._grad_dtype = SAME if dtype is not None and dtype == self._dtype else dtype
    accumulator = None if self._accumulator is None else self._accumulator()
    if accumulator is not None:
        accumulator.avals = (expected(self),)
