"""Takes nested tuples, lists and dictionaries of tensors apart, and rebuilds them, for vmap, grad, cond and others.

`jax.tree_util` sorts dictionaries by their keys; here their order stays, as in PyTorch, because `grads.values()` is
zipped with `params.values()` (torch/utils/_pytree.py).
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..tensor import Tensor


class Structure(NamedTuple):
    """The nesting of leaves: the type (None for a leaf), the keys of a dictionary, and the structure of each item."""

    type: Any = None
    keys: tuple[Any, ...] = ()
    items: tuple["Structure", ...] = ()

    def __str__(self) -> str:
        if self.type is None:
            return "*"
        if issubclass(self.type, dict):
            return "{" + ", ".join(f"{k!r}: {i}" for k, i in zip(self.keys, self.items, strict=True)) + "}"
        inner = ", ".join(str(i) for i in self.items)
        return f"[{inner}]" if issubclass(self.type, list) else f"({inner})"


LEAF = Structure()


def _items(tree: Any) -> tuple[tuple, list] | None:
    """Return the keys of a dictionary, and the items; None for a leaf."""
    if isinstance(tree, dict):
        return tuple(tree), list(tree.values())
    return ((), list(tree)) if isinstance(tree, (tuple, list)) and type(tree).__name__ != "Size" else None


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a tree, and its structure."""
    found = _items(tree)
    if found is None:
        return [tree], LEAF
    keys, items = found
    leaves, structures = [], []
    for item in items:
        below, structure = flatten(item)
        leaves += below
        structures.append(structure)
    return leaves, Structure(type(tree), keys, tuple(structures))


def unflatten(structure: Structure, leaves: Any) -> Any:
    """Return the leaves in a structure of `flatten`."""
    return _build(structure, iter(leaves))


def _build(structure: Structure, leaves: Iterator) -> Any:
    kind = structure.type
    if kind is None:
        return next(leaves)
    items = [_build(item, leaves) for item in structure.items]
    if issubclass(kind, dict):
        return kind(zip(structure.keys, items, strict=True))
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def leaves_like(structure: Structure, tree: Any) -> list[Any] | None:
    """Return the leaves of a tree in the order of a structure; None if the tree has another structure."""
    if structure.type is None:
        return None if _items(tree) is not None else [tree]
    found = _items(tree)
    if found is None or type(tree) is not structure.type or len(found[1]) != len(structure.items):
        return None
    items = found[1]
    if structure.keys:
        if set(found[0]) != set(structure.keys):
            return None
        items = [tree[k] for k in structure.keys]
    leaves = []
    for inner, item in zip(structure.items, items, strict=True):
        below = leaves_like(inner, item)
        if below is None:
            return None
        leaves += below
    return leaves


def map_tensors(function: Callable[..., Any], tree: Any) -> Any:
    """Apply `function` to each tensor; other leaves stay."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [function(x) if isinstance(x, Tensor) else x for x in leaves])


def spread(prefix: Any, tree: Any) -> list[Any] | None:
    """Return a number of `prefix` for each leaf of `tree`, one for all leaves below it; None if they don't fit."""
    return _spread(prefix, flatten(tree)[1])


def _spread(prefix: Any, structure: Structure) -> list | None:
    found = _items(prefix)
    if found is None:
        return [prefix] * _count(structure)
    keys, items = found
    if type(prefix) is not structure.type or len(items) != len(structure.items) or set(keys) != set(structure.keys):
        return None
    numbers = []
    for inner, item in zip(structure.items, [prefix[k] for k in structure.keys] or items, strict=True):
        below = _spread(item, inner)
        if below is None:
            return None
        numbers += below
    return numbers


def _count(structure: Structure) -> int:
    return 1 if structure.type is None else sum(_count(item) for item in structure.items)


def name_of(function: Any) -> str:
    """Return the name of a function for messages."""
    return getattr(function, "__name__", None) or repr(function)
