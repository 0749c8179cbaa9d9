"""Walks nested dictionaries, lists and tuples, for torch.py and data.py: maps their leaves, or lists them with names.

Invariant: the order, and the classes and attributes of dictionaries (`_metadata` of a `state_dict`), stay.  `jax.tree`
would sort the dictionaries and call None an empty tree.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any


def _is_node(tree: Any) -> bool:
    """Return True if the tree has leaves below it; a Size is a leaf itself."""
    return isinstance(tree, (dict, list)) or (isinstance(tree, tuple) and type(tree).__name__ != "Size")


def mapped(function: Callable[[str, Any], Any], tree: Any, name: str = "") -> Any:
    """Return `tree` with `function(name, leaf)` in the place of each leaf; names are keys and indices with dots."""
    if not _is_node(tree):
        return function(name, tree)
    if isinstance(tree, dict):
        new = copy.copy(tree)
        for key, value in tree.items():
            new[key] = mapped(function, value, _below(name, key))
        return new
    items = [mapped(function, value, _below(name, i)) for i, value in enumerate(tree)]
    if isinstance(tree, list):
        return items
    kind: Any = type(tree)
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, leaf), in the order of `mapped`."""
    if not _is_node(tree):
        yield name, tree
        return
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from leaves(value, _below(name, key))


def _below(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def called(name: str) -> str:
    """Return the beginning of an error about a leaf; empty if the tree itself is the leaf."""
    return f"'{name}': " if name else ""
