"""Sparse gradients in the engine, at no cost to dense ones.

Gradients travel between nodes as bare arrays, or as Tensors.  A sparse one leaves its node in a `SparseGradient`, whose
shape is equal to no other: the comparison that the engine makes for every gradient anyway sends it to
`validate_output`, and so to `arrive`, which looks at the node that it goes to.  A leaf, a recorded operator and a node
that works on Tensors get the sparse Tensor itself; any other node (of a view, say) gets a dense gradient, which is
right, whatever it does.  A sum with a sparse gradient is no sum of arrays: XLA's program refuses it, and `add` does
it.  No line on the way of a dense gradient asks what it is.

A sparse gradient stands for the dense one that `to_dense()` gives.  (PyTorch: accumulate_grad.h, input_buffer.cpp.)
"""

from typing import Any

import jax
import numpy as np

from ..config import state
from ..tensor import Tensor, from_array
from .node import Node


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


def opened(value: Any) -> Any:
    """The Tensor in a box; anything else as it is."""
    return value.tensor if value.__class__ is SparseGradient else value


def boxed(value: Any) -> Any:
    """A result of a node as it travels."""
    return SparseGradient(value) if isinstance(value, Tensor) and value._sparse else value


def for_node(node: Node, tensor: Any) -> Any:
    """A sparse Tensor, or a dense gradient in its place, as `node` takes it."""
    if node.is_accumulator or not node.raw or node.takes_sparse():
        return tensor
    return _as_travelling(tensor.to_dense())


def _as_travelling(dense: Tensor) -> Any:
    return dense if state.grad_enabled else dense._read()


def arrive(grad: Any, meta: Any, node: Node, index: int) -> Any:
    """A gradient that is sparse, or that goes to a sparse tensor, with the shape and dtype that `meta` asks for."""
    child = node.next_edges[index][0]
    plain = Meta(tuple(meta.shape), meta.dtype)
    if grad.__class__ is not SparseGradient:
        if tuple(grad.shape) != plain.shape or grad.dtype != plain.dtype:
            grad = validate(grad, plain, node, index)
        return from_array(grad) if child.is_accumulator and not isinstance(grad, Tensor) else grad
    tensor = grad.tensor
    if tuple(tensor.shape) != plain.shape:
        dense = validate(_as_travelling(tensor.to_dense()), plain, node, index)
        return from_array(dense) if child.is_accumulator and not isinstance(dense, Tensor) else dense
    if tensor.dtype != plain.dtype:
        tensor = tensor._cast(plain.dtype)
    return for_node(child, tensor)


class Meta:
    """A shape and a dtype."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: tuple, dtype: np.dtype) -> None:
        self.shape, self.dtype = shape, dtype


def _tensor(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value
    tensor = from_array(value)
    tensor._owned = False  # the buffer holds it too
    return tensor


def add(a: Any, b: Any) -> Any:
    """The sum of two gradients of one node while arrays travel, of which one is a Tensor."""
    x, y = _tensor(a), _tensor(b)
    total = y + x if x._sparse and not y._sparse else x + y
    return total if total._sparse or isinstance(b if x._sparse else a, Tensor) else total._read()


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
        from jax.sharding import NamedSharding, PartitionSpec

        if not isinstance(there, NamedSharding):
            return new
        there = NamedSharding(there.mesh, PartitionSpec())  # rows of a sharded variable: held by every device
    return new._on(lambda array: jax.device_put(array, there))


validate: Any = None  # set by validate.py, which needs this module
