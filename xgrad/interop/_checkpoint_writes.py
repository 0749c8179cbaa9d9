"""Writes: puts a checkpoint's values into the user's tree, for `orbax.restore_into`; plans all writes before the first.

Invariant: `plan` changes nothing, and raises for a leaf that can't be written; after it, `run` can fail half-way only
on a device (for want of memory) or in a container of the user's own class.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..random import Generator
from ..tensor import Tensor
from ._checkpoint_fit import seeded
from ._checkpoint_tree import Path, children, name_of
from ._loading import check_writable, write_all


class Writes:
    """The writes that give a tree the leaves `new`, by path."""

    def __init__(self, new: dict[Path, Any]) -> None:
        self._new = new
        self._tensors: list[tuple[Tensor, Any]] = []
        self._others: list[Callable[[], Any]] = []
        self._homeless: list[Path] = []  # leaves to be replaced, without a list or dictionary above them so far

    def plan(self, tree: Any) -> None:
        """Plan the writes.  Raises, with its name, for a leaf that can't get its new value."""
        if self._planned(tree, ()) is not tree:
            names = ", ".join(f"'{name_of(path)}'" for path in self._homeless)
            raise TypeError(f"{names} can't be restored in place: put it in a dictionary or a list, or use restore()")

    def run(self) -> None:
        """Do the planned writes."""
        write_all(self._tensors)
        for write in self._others:
            write()

    def _planned(self, node: Any, path: Path) -> Any:
        """Return the node that replaces this one: itself, if its leaves can be changed in place."""
        found = children(node)
        if found is None:
            return self._leaf(node, path)
        below, build = found
        items = [self._planned(value, (*path, key)) for key, value in below]
        if all(new is value for new, (_, value) in zip(items, below)):
            return node
        if isinstance(node, (dict, list)):
            self._homeless = [other for other in self._homeless if other[: len(path)] != path]
            for key, new in zip(node if isinstance(node, dict) else range(len(items)), items):
                if node[key] is not new:
                    self._others.append(lambda node=node, key=key, new=new: node.__setitem__(key, new))
            return node
        return build(items)

    def _leaf(self, leaf: Any, path: Path) -> Any:
        if path not in self._new:
            return leaf
        value = self._new[path]
        if value is leaf:
            return leaf
        if isinstance(leaf, Tensor):
            check_writable(name_of(path), leaf)
            self._tensors.append((leaf, value))
        elif isinstance(leaf, Generator):
            self._others.append(lambda: seeded(leaf, *value))
        elif isinstance(leaf, np.ndarray):
            if not leaf.flags.writeable:
                raise ValueError(f"'{name_of(path)}' is a NumPy array that is read-only")
            self._others.append(lambda: np.copyto(leaf, value))
        elif isinstance(leaf, jax.Array) or type(leaf) is not type(value) or leaf != value:
            self._homeless.append(path)
            return value
        return leaf
