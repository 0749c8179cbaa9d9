"""Registers Tensor with JAX's pytrees, as a node with one leaf, its array.

So `jax.tree.map`, `jax.device_put`, `jax.block_until_ready`, `jax.jit` and the other transformations accept tensors
wherever they accept arrays.  Their results have no history, as if they had been `detach()`ed.

Invariants: a gradient is never lost unseen.  A tensor that requires grad, under grad mode, is a node of another kind:
it may be mapped or transferred in one tree, but that tree does not match a tree of gradients, and a transformation,
`jnp.sin` included, raises an error, unless under `no_grad()` or after `detach()`.  A node is made of arrays only: if
another object takes a leaf's place (a shape, a sharding, a NumPy array of `jax.device_get`), that object replaces the
tensor.

xgrad's own code treats tensors as leaves: `flatten`, `leaves`, `mapped`.
"""

from collections.abc import Callable
from typing import Any

import jax

from ..config import state
from ..tensor import Tensor, from_foreign
from ..views.storage import Tracer

__all__ = ["flatten", "is_tensor", "leaves", "mapped"]

NO_ARRAY = (
    "Can't convert a Tensor that requires grad to a jax.Array: its history would end there. Use tensor.detach(), work "
    "under xgrad.no_grad(), put the tensor on the left of the operator, or bring the JAX function onto the tape with "
    "xgrad.from_jax."
)


class _Recorded:
    """Distinguishes nodes that require grad; its repr is part of JAX's errors about trees that don't match."""

    def __repr__(self) -> str:
        return "a Tensor that requires grad: use it under xgrad.no_grad(), or detach() it"


_RECORDED = _Recorded()


def _array(tensor: Tensor) -> tuple[tuple[Any], _Recorded | None]:
    return (tensor._export(),), _RECORDED if state.grad_enabled and tensor.requires_grad else None


def _tensor(recorded: _Recorded | None, children: tuple[Any]) -> Any:
    (leaf,) = children
    if not isinstance(leaf, jax.Array):
        return leaf
    if recorded is not None and isinstance(leaf, Tracer):
        raise RuntimeError(NO_ARRAY)
    return from_foreign(leaf)


jax.tree_util.register_pytree_node(Tensor, _array, _tensor)


def is_tensor(node: Any) -> bool:
    """Return whether a node is a tensor, as `is_leaf=` of JAX's functions over trees."""
    return isinstance(node, Tensor)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """`jax.tree.flatten` with tensors as leaves."""
    return jax.tree_util.tree_flatten(tree, is_leaf=is_tensor)


def leaves(tree: Any) -> list[Any]:
    """`jax.tree.leaves` with tensors as leaves."""
    return jax.tree_util.tree_leaves(tree, is_leaf=is_tensor)


def mapped(function: Callable[..., Any], tree: Any) -> Any:
    """`jax.tree.map` over one tree, with tensors as leaves."""
    return jax.tree_util.tree_map(function, tree, is_leaf=is_tensor)
