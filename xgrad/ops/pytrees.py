"""Tensors in JAX's pytrees: a node with one leaf, its array.

So `jax.tree.map`, `jax.device_put`, `jax.block_until_ready`, `jax.jit` and the other transformations take tensors
wherever they take arrays.  What comes back has no history, as if it had been `detach()`ed, and `requires_grad` is not
remembered either: trees of parameters and of their gradients must have one structure.

Invariant: a node is made of arrays only.  Where something else takes a leaf's place (a shape, a sharding, a NumPy array
of `jax.device_get`), it stands there itself.  xgrad's own code takes tensors as leaves: `flatten`, `leaves`, `mapped`.
"""

from collections.abc import Callable
from typing import Any

import jax

from ..tensor import Tensor, from_foreign

__all__ = ["flatten", "leaves", "mapped"]


def _array(tensor: Tensor) -> tuple[tuple[Any], None]:
    return (tensor._export(),), None


def _tensor(_: None, children: tuple[Any]) -> Any:
    (leaf,) = children
    return from_foreign(leaf) if isinstance(leaf, jax.Array) else leaf


jax.tree_util.register_pytree_node(Tensor, _array, _tensor)


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Tensor)


def flatten(tree: Any) -> tuple[list, Any]:
    """`jax.tree.flatten` with tensors as leaves."""
    return jax.tree_util.tree_flatten(tree, is_leaf=_is_tensor)


def leaves(tree: Any) -> list:
    """`jax.tree.leaves` with tensors as leaves."""
    return jax.tree_util.tree_leaves(tree, is_leaf=_is_tensor)


def mapped(function: Callable, tree: Any) -> Any:
    """`jax.tree.map` over one tree, with tensors as leaves."""
    return jax.tree_util.tree_map(function, tree, is_leaf=_is_tensor)
