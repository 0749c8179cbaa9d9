"""torch.utils._pytree's names over `jax.tree_util`, whose trees they are: lists, tuples, dictionaries, named tuples.

As in PyTorch `None` is a leaf, and the leaves of a dictionary are in the order of its items; JAX sorts its keys.
(PyTorch: torch/utils/_pytree.py.)
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from ..tensor import Tensor

TreeSpec = PyTree = LeafSpec = jax.tree_util.PyTreeDef
Context = Any
KeyEntry = Any
MappingKey, SequenceKey, GetAttrKey = jax.tree_util.DictKey, jax.tree_util.SequenceKey, jax.tree_util.GetAttrKey
keystr = jax.tree_util.keystr
__all__ = [
    "PyTree", "TreeSpec", "register_pytree_node", "tree_all", "tree_any", "tree_flatten", "tree_flatten_with_path",
    "tree_iter", "tree_leaves", "tree_map", "tree_map_", "tree_map_only", "tree_map_with_path",
    "tree_structure", "tree_unflatten",
]  # fmt: skip


def _leaf(is_leaf: Any) -> Callable[[Any], bool]:
    return lambda x: x is None or isinstance(x, Tensor) or (is_leaf is not None and is_leaf(x))


class _InOrder:
    """A dictionary whose leaves are in the order of its items."""

    def __init__(self, items: dict[Any, Any]) -> None:
        self.items = items


_plain: Any = lambda keys, values: dict(zip(keys, values))  # noqa: E731 - results have dictionaries again
jax.tree_util.register_pytree_with_keys(
    _InOrder, lambda d: ([(MappingKey(key), value) for key, value in d.items.items()], (*d.items,)), _plain
)


def _in_order(tree: Any, is_leaf: Any) -> Any:
    """Return the tree with its dictionaries as `_InOrder`; those within other classes of nodes stay."""
    if is_leaf is not None and is_leaf(tree):
        return tree
    kind = tree.__class__
    if kind is dict:
        return _InOrder({key: _in_order(value, is_leaf) for key, value in tree.items()})
    if kind in (list, tuple):
        return kind([_in_order(part, is_leaf) for part in tree])
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return kind(*[_in_order(part, is_leaf) for part in tree])
    return tree


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], Any]:
    """Return the leaves and the structure."""
    return jax.tree_util.tree_flatten(_in_order(tree, is_leaf), is_leaf=_leaf(is_leaf))


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
    trees = [_in_order(each, is_leaf) for each in (tree, *rests)]
    return jax.tree_util.tree_map(func, *trees, is_leaf=_leaf(is_leaf))


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
    cls: type, flatten_fn: Callable[..., Any], unflatten_fn: Callable[..., Any], *,
    flatten_with_keys_fn: Callable[..., Any] | None = None, **options: Any,
) -> None:  # fmt: skip
    """Make a class one of trees: `flatten_fn(x)` gives (children, context), `unflatten_fn(children, context)` an x."""
    make: Any = lambda context, children: unflatten_fn([*children], context)  # noqa: E731
    if flatten_with_keys_fn is None:
        jax.tree_util.register_pytree_node(cls, lambda x: flatten_fn(x), make)
    else:
        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys_fn, make, flatten_fn)


def tree_flatten_with_path(tree: Any, is_leaf: Any = None) -> tuple[list[Any], Any]:
    """Return (path, leaf) of the leaves, and the structure."""
    return jax.tree_util.tree_flatten_with_path(_in_order(tree, is_leaf), is_leaf=_leaf(is_leaf))


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """Return the tree of `func(path, leaf)` at each leaf."""
    trees = [_in_order(each, is_leaf) for each in (tree, *rests)]
    return jax.tree_util.tree_map_with_path(func, *trees, is_leaf=_leaf(is_leaf))


def tree_iter(tree: Any, is_leaf: Any = None) -> Iterator[Any]:
    """Iterate over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return [*d.values()], [*d]


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], [*d]


def _dict_unflatten(values: Iterable[Any], context: Iterable[Any]) -> dict[Any, Any]:
    return dict(zip(context, values))


_register_pytree_node = register_pytree_node
