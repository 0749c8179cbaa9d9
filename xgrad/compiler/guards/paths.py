"""Finds the containers (lists, dictionaries, ...) below a guard of xgrad.compile or in arguments, and paths to them."""

from collections.abc import Iterator
from typing import Any

import jax

from ...tensor import Tensor
from .containers import OfMapping, OfObject, OfSequence
from .guard import Container, Guard, Path


def containers_of(guard: Guard) -> Iterator[Container]:
    """Yield the containers that a guard looks into, the outermost one first."""
    if isinstance(guard, Container):
        yield guard
        for _, child in guard.children:
            yield from containers_of(child)
        for other in (guard.rest, guard.kind):
            if other is not None:
                yield from containers_of(other)


def containers_among(value: Any) -> Iterator[Container]:
    """Yield the containers among arguments.  Their leaves have guards of their own."""
    if isinstance(value, Tensor):
        return
    items = jax.tree_util.tree_leaves(value, is_leaf=lambda node: node is not value)
    if len(items) == 1 and items[0] is value:
        return
    if isinstance(value, list):
        yield OfSequence(value, ())
    elif isinstance(value, dict):
        yield OfMapping(value, ())
    elif hasattr(value, "__dict__"):
        yield OfObject(value, (), None, frozenset())
    for item in items:
        yield from containers_among(item)


def orders_among(value: Any, path: Path) -> list[tuple[Path, list[Any]]]:
    """Return (path, keys) of the dictionaries with several keys among arguments."""
    if value.__class__ not in (dict, list, tuple):
        return []
    found = [(path, list(value))] if value.__class__ is dict and len(value) > 1 else []
    for key, item in value.items() if value.__class__ is dict else enumerate(value):
        found += orders_among(item, (*path, key))
    return found


def nodes_of(value: Any) -> list[Any]:
    """Return the lists, tuples, dictionaries and other containers among arguments."""
    if isinstance(value, Tensor):
        return []
    items = jax.tree_util.tree_leaves(value, is_leaf=lambda node: node is not value)
    if len(items) == 1 and items[0] is value:
        return []
    return [value, *(node for item in items for node in nodes_of(item))]


def locate(guard: Any, value: Any, path: Path) -> tuple[Container, Any]:
    """Return the container guard at a path, and the value that is there now."""
    for key in path:
        value = guard.read(value)[key]
        guard = next(child for name, child in guard.children if _same(name, key))
    return guard, value


def _same(name: Any, key: Any) -> bool:
    """Return True for one key of a container.  Tensors, the keys of an optimizer's state, are compared by identity."""
    if isinstance(name, Tensor) or isinstance(key, Tensor):
        return name is key
    return name == key
