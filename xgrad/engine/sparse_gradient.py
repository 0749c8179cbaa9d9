"""SparseGradient: carries a sparse gradient through the autograd engine, at no cost to dense gradients.

Its shape equals no other: so the comparison that the engine makes for every gradient sends it to `validate_output`,
which looks at the node that it goes to.  A leaf, a recorded operator and a node that works on Tensors accept it; for
any other node (of a view, say) it is made dense.  The addition of arrays raises an error for a sparse gradient, and
`add` takes over.  No line on the way of a dense gradient asks if it is sparse.

A sparse gradient stands for the dense one that `to_dense()` returns.  (PyTorch: accumulate_grad.h, input_buffer.cpp.)
"""

from collections.abc import Callable
from typing import Any

from jax.sharding import NamedSharding, PartitionSpec

from ..config import state
from ..execution.runner import transferred
from ..tensor import Tensor


class Shape(tuple[Any, ...]):
    """A shape that is unequal to every shape, itself too: each comparison leads to the path for unexpected shapes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__: Callable[..., Any] = tuple.__hash__


class SparseGradient:
    """A sparse Tensor that travels between nodes."""

    __slots__ = ("dtype", "shape", "tensor")

    def __init__(self, tensor: Any) -> None:
        self.tensor: Any = tensor
        self.shape: Shape = Shape(tensor.shape)
        self.dtype: Any = tensor._dtype

    def shared(self) -> Any:
        """The Tensor for a hook or a user, who may write to it: a shallow copy, because other nodes get it too."""
        return self.tensor if self.tensor.requires_grad else self.tensor._shallow()


def add(x: Tensor, y: Tensor) -> Any:
    """Add two gradients, at least one of them sparse.  The sum is a SparseGradient if it is sparse, else a Tensor."""
    total = y + x if x._sparse and not y._sparse else x + y
    return SparseGradient(total) if total._sparse else total


def accumulate(variable: Tensor, new: Any) -> None:
    """Accumulate into `variable.grad`, where the variable, its gradient or the new gradient is sparse.

    A first sparse gradient is never copied: the new Tensor shares its arrays, which are immutable.  With grad mode off
    the same Tensor object is updated in place, except that sparse + dense is dense.
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
        there = NamedSharding(there.mesh, PartitionSpec())  # rows of a sharded variable: each device gets a copy
    return new._on(lambda array: transferred(array, there))
