"""Sparse gradients in the engine, at no cost to dense ones.

A sparse gradient travels in a `SparseGradient`, in either arithmetic.  Its shape is equal to no other: the comparison
that the engine makes for every gradient anyway sends it to `validate_output`, which looks at the node that it goes to.
A leaf, a recorded operator and a node that works on Tensors take it; any other node (of a view, say) gets a dense
gradient, which is right, whatever it does.  A sum with a sparse gradient is no sum of arrays: XLA's program refuses it,
and `add` does it.  No line on the way of a dense gradient asks what it is.

A sparse gradient stands for the dense one that `to_dense()` gives.  (PyTorch: accumulate_grad.h, input_buffer.cpp.)
"""

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from ..config import state
from ..tensor import Tensor


class Shape(tuple):
    """A shape that differs from every shape, itself too: whoever compares it looks closer."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = tuple.__hash__


class SparseGradient:
    """A sparse Tensor on its way."""

    __slots__ = ("dtype", "shape", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.shape = Shape(tensor.shape)
        self.dtype = tensor.dtype

    def shared(self) -> Any:
        """The Tensor for somebody outside of the run.  It may be on its way to others too, who see no write to it."""
        return self.tensor if self.tensor.requires_grad else self.tensor._shallow()


def add(x: Tensor, y: Tensor) -> Any:
    """The sum of two gradients of one node; one of them is sparse at least, and so the sum may be."""
    total = y + x if x._sparse and not y._sparse else x + y
    return SparseGradient(total) if total._sparse else total


def accumulate(variable: Tensor, new: Any) -> None:
    """What AccumulateGrad does where its variable, the gradient that this has, or the new one is sparse.

    A first sparse gradient is never copied: the new Tensor shares its arrays, which nobody can change.  Grad mode
    off: the same Tensor object is updated in place, except that sparse + dense is dense.
    """
    old, recording = variable._grad, state.grad_enabled
    new = _placed_like(variable, new) if new._sparse else new
    if old is None:
        variable._grad = new.clone() if recording else new._shallow() if new._sparse else new.detach()
    elif old._sparse and not new._sparse:
        variable._grad = new + old
    elif recording:
        variable._grad = old + new
    else:
        old.add_(new)


def _placed_like(variable: Tensor, new: Any) -> Any:
    here, there = new._placed(), variable._placed()
    if not state.grad_layout or here is None or there is None or here.device_set == there.device_set:
        return new
    if len(there.device_set) > 1:
        if not isinstance(there, NamedSharding):
            return new
        there = NamedSharding(there.mesh, PartitionSpec())  # rows of a sharded variable: held by every device
    return new._on(lambda array: jax.device_put(array, there))
