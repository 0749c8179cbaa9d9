"""Nested tuples, lists and dicts of tensors, as transforms take and return them: `jax.tree_util`, None as a leaf."""

from collections.abc import Callable
from typing import Any

from jax import tree_util

from ..tensor import Tensor


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, Tensor)


def flatten(tree: Any) -> tuple[list, Any]:
    """The leaves, and the structure that they came in."""
    return tree_util.tree_flatten(tree, is_leaf=_is_leaf)


def unflatten(structure: Any, leaves: Any) -> Any:
    """The leaves, in a structure that `flatten` gave."""
    return tree_util.tree_unflatten(structure, list(leaves))


def map_tensors(function: Callable, tree: Any) -> Any:
    """`function` of each tensor; everything else stays."""
    return tree_util.tree_map(lambda x: function(x) if isinstance(x, Tensor) else x, tree, is_leaf=_is_leaf)


def spread(prefix: Any, tree: Any) -> list | None:
    """A number of `prefix` for each leaf of `tree`, one standing for all that is below it; None if they don't fit."""
    found: list = []

    def fill(value: Any, below: Any) -> None:
        found.extend([value] * len(flatten(below)[0]))

    try:
        tree_util.tree_map(fill, prefix, tree, is_leaf=lambda x: x is None or not isinstance(x, (tuple, list, dict)))
    except ValueError:
        return None
    return found


def name_of(function: Any) -> str:
    """The name of a function, in messages."""
    return getattr(function, "__name__", None) or repr(function)
