"""torch.utils._pytree's names over `jax.tree_util`, whose trees they are: lists, tuples, dictionaries, named tuples.

`None` is a leaf, as there.  (PyTorch: torch/utils/_pytree.py.)
"""

from collections.abc import Callable
from typing import Any

import jax

from ..tensor import Tensor

TreeSpec = PyTree = jax.tree_util.PyTreeDef
__all__ = [
    "PyTree", "TreeSpec", "register_pytree_node", "tree_all", "tree_any", "tree_flatten", "tree_leaves", "tree_map",
    "tree_map_", "tree_map_only", "tree_structure", "tree_unflatten",
]  # fmt: skip


def _leaf(is_leaf: Any) -> Callable[[Any], bool]:
    return lambda x: x is None or isinstance(x, Tensor) or (is_leaf is not None and is_leaf(x))


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], Any]:
    """Return the leaves and the structure."""
    return jax.tree_util.tree_flatten(tree, is_leaf=_leaf(is_leaf))


def tree_unflatten(leaves: Any, treespec: Any) -> Any:
    """Return the tree of these leaves."""
    if not isinstance(treespec, TreeSpec):
        leaves, treespec = treespec, leaves
    return jax.tree_util.tree_unflatten(treespec, leaves)


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """Return the leaves."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Any = None) -> Any:
    """Return the structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """Return the tree of `func` at each leaf."""
    return jax.tree_util.tree_map(func, tree, *rests, is_leaf=_leaf(is_leaf))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """Call `func` at each leaf, and return the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kinds: Any, func: Callable[..., Any], tree: Any, is_leaf: Any = None) -> Any:
    """Return the tree of `func` at each leaf of one of the classes `kinds`."""
    return tree_map(lambda x: func(x) if isinstance(x, kinds) else x, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Return True if `pred` is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Return True if `pred` is true of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def register_pytree_node(
    cls: type, flatten_fn: Callable[..., Any], unflatten_fn: Callable[..., Any], **options: Any
) -> None:
    """Make a class one of trees: `flatten_fn(x)` gives (children, context), `unflatten_fn(children, context)` an x."""
    jax.tree_util.register_pytree_node(
        cls, lambda x: flatten_fn(x), lambda context, children: unflatten_fn([*children], context)
    )


_register_pytree_node = register_pytree_node
