"""Unchanged: whether all that a guard looks at is the very same objects as before, which is quicker to see.

A guard of a function follows it through closures, globals, classes and objects in each call (surroundings.py).  As long
as nobody has put another object anywhere, all these places are known beforehand, and each takes 60 ns to look at.  If
one is different, the guard decides: another object may be equal.
"""

from operator import getitem
from typing import Any

from ..tensor import Tensor
from .guards import (
    MISSING,
    AnyTensor,
    Container,
    EqualArray,
    Guard,
    OfFixed,
    OfFunction,
    OfMapping,
    OfMethod,
    OfObject,
    OfSequence,
    OfSet,
)


class Unchanged:
    """The places that a guard looks at, and what is there."""

    def __init__(self, guard: Guard) -> None:
        self._gets: list[tuple[Any, Any, Any]] = []  # (a mapping's get, key, value)
        self._cells: list[tuple[Any, Any]] = []
        self._attributes: list[tuple[Any, str, Any]] = []
        self._items: list[tuple[Any, int, Any]] = []
        self._lengths: list[tuple[Any, int]] = []
        self._absent: list[tuple[frozenset, Any]] = []  # (names, a mapping that has none of them)
        self._arrays: list[tuple[Guard, Any]] = []  # NumPy arrays and sets, by what is in them
        self._tensors: list[tuple[Any, Any]] = []  # (function, its arguments)
        self._look(guard)

    def find(self, found: list) -> bool:
        """Whether nothing is another object; the tensors are added to `found`, as the guard does."""
        try:
            for cell, value in self._cells:
                if cell.cell_contents is not value:
                    return False
            for get, key, value in self._gets:
                if get(key, MISSING) is not value:
                    return False
            for holder, name, value in self._attributes:
                if getattr(holder, name) is not value:
                    return False
            for sequence, place, value in self._items:
                if sequence[place] is not value:
                    return False
            tensors = [fetch(*where) for fetch, where in self._tensors]
        except (ValueError, IndexError, AttributeError):  # an empty cell, a shorter list, an attribute that is gone
            return False
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            return False
        for container, length in self._lengths:
            if len(container) != length:
                return False
        for names, mapping in self._absent:
            if not names.isdisjoint(mapping):
                return False
        for guard, value in self._arrays:
            if guard.check(value, []) is not None:
                return False
        found += tensors
        return True

    def _look(self, guard: Guard) -> None:
        """Note the places in a container, one after the other, as its guard looks at them."""
        value: Any = guard.value
        if isinstance(guard, (OfSequence, OfMapping)):
            self._lengths.append((value, len(guard.before)))
        if isinstance(guard, OfSet):
            self._arrays.append((guard, value))
        if isinstance(guard, OfFixed) and guard.inherited:
            self._absent.append((frozenset(guard.inherited), vars(value)))
        if isinstance(guard, OfObject):
            self._attributes.append((value, "__class__", value.__class__))
            if guard.missing:
                self._absent.append((guard.missing, value.__dict__))
        if isinstance(guard, Container):
            for key, child in guard.children:
                self._place(guard, value, key, child)
        if isinstance(guard, OfObject) and guard.kind is not None:
            self._look(guard.kind)

    def _place(self, guard: Container, value: Any, key: Any, child: Guard) -> None:
        item = guard.before[key]
        if isinstance(child, AnyTensor):
            self._tensors.append(_fetching(guard, value, key))
            return
        if isinstance(guard, OfFunction):
            kind, name = key
            if kind == "global ":
                self._gets.append((value.__globals__.get, name, item))
            elif kind == "closure's ":
                self._cells.append((guard.cells[name], item))
            else:
                self._attributes.append((value, "__defaults__" if kind == "default of " else "__kwdefaults__", item))
        elif isinstance(guard, OfSequence):
            if value.__class__ is not tuple:
                self._items.append((value, key, item))
        elif key == "__bases__":
            self._attributes.append((value, key, item))
        elif isinstance(guard, OfMapping):
            self._gets.append((value.get, key, item))
        elif isinstance(guard, (OfFixed, OfObject)):
            self._gets.append((vars(value).get, key, item))
        elif not isinstance(guard, OfMethod):  # of which nothing can be changed
            self._attributes.append((value, key, item))
        if isinstance(child, EqualArray):
            self._arrays.append((child, item))
        elif isinstance(child, Container):
            self._look(child)


def _fetching(guard: Container, value: Any, key: Any) -> tuple[Any, tuple]:
    """A function and its arguments that give the tensor at a place."""
    if isinstance(guard, OfFunction):
        kind, name = key
        cell = (getattr, (guard.cells.get(name), "cell_contents"))
        return (value.__globals__.get, (name,)) if kind == "global " else cell
    if isinstance(guard, (OfFixed, OfObject)):
        return vars(value).get, (key,)
    return (getitem, (value, key)) if isinstance(guard, (OfSequence, OfMapping)) else (getattr, (value, key))
