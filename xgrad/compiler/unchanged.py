"""Unchanged: whether all that a guard looks at is the very same objects as before, which is quicker to see.

A guard of a function follows it through closures, globals, classes and objects in each call (surroundings.py).  As long
as nobody has put another object anywhere, all these places are known beforehand, and each takes 60 ns to look at.  If
one is different, the guard decides: another object may be equal.
"""

from collections.abc import Callable
from operator import getitem, is_, itemgetter
from typing import Any

from ..tensor import Tensor
from .containers import OfArray, OfMapping, OfObject, OfSequence, OfSet, OfTensor
from .guards import MISSING, AnyTensor, Container, EqualArray, EqualBytes, Guard
from .namespaces import ATTRIBUTES, OfFixed, OfFunction, OfGlobals, OfMethod, OfRoots


class Unchanged:
    """The places that a guard looks at, and what is there."""

    def __init__(self, guard: Guard) -> None:
        self._named: dict[int, tuple[Any, list, list]] = {}  # by the id of a mapping: it, keys, values
        self._cells: list[tuple[Any, Any]] = []
        self._attributes: list[tuple[Any, str, Any]] = []
        self._items: list[tuple[Any, int, Any]] = []
        self._lengths: list[tuple[Any, int]] = []
        self._keys: list[tuple[Any, list]] = []  # of dictionaries, and what is in sets, in order
        self._absent: list[tuple[frozenset, Any]] = []  # (names, a mapping that has none of them)
        self._contents: list[tuple[Guard, Any]] = []  # NumPy arrays, by what is in them
        # (function, its arguments, None), or the same with the guard of what is to be asked in each call
        self._tensors: list[tuple[Any, tuple, Guard | None]] = []
        self._look(guard)
        self._gets: list[tuple[Callable, Any, Any]] = []  # (a mapping's get, key, value)
        self._several: list[tuple[Callable, Any, list]] = []  # (getter of several, mapping, values)
        for mapping, keys, values in self._named.values():
            if len(keys) == 1:
                self._gets.append((mapping.get, keys[0], values[0]))
            else:
                self._several.append((itemgetter(*keys), mapping, values))
        del self._named
        self._asked = any(guard is not None for *_, guard in self._tensors)

    def find(self, found: list) -> bool:
        """Whether nothing is another object; the tensors are added to `found`, as the guard does."""
        try:
            for cell, value in self._cells:
                if cell.cell_contents is not value:
                    return False
            for get, key, value in self._gets:
                if get(key, MISSING) is not value:
                    return False
            for several, mapping, values in self._several:  # 20 ns each
                if not all(map(is_, several(mapping), values)):
                    return False
            for holder, name, value in self._attributes:
                if getattr(holder, name) is not value:
                    return False
            for sequence, place, value in self._items:
                if sequence[place] is not value:
                    return False
            tensors = self._ask() if self._asked else [fetch(*where) for fetch, where, _ in self._tensors]
        except (ValueError, LookupError, AttributeError):  # an empty cell, a shorter list, an attribute that is gone
            return False
        if tensors is None or not all(isinstance(tensor, Tensor) for tensor in tensors):
            return False
        for container, length in self._lengths:
            if len(container) != length:
                return False
        for mapping, keys in self._keys:
            if not all(map(is_, mapping, keys)):
                return False
        for names, mapping in self._absent:
            if not mapping.keys().isdisjoint(names):
                return False
        for guard, value in self._contents:
            if guard.check(value, []) is not None:
                return False
        found += tensors
        return True

    def _ask(self) -> list | None:
        """The tensors, where a guard has to look for some; None if it says no."""
        found: list[Any] = []
        for fetch, where, guard in self._tensors:
            if guard is None:
                found.append(fetch(*where))
            elif guard.check(fetch(*where), found) is not None:
                return None
        return found

    def _look(self, guard: Guard) -> None:
        """Note the places in a container, one after the other, as its guard looks at them."""
        value: Any = guard.value
        if isinstance(guard, (OfSequence, OfMapping)):
            self._lengths.append((value, len(guard.before)))
        if isinstance(guard, OfMapping) and len(guard.keys) > 1:
            self._keys.append((value, guard.keys))
        if isinstance(guard, OfSet):
            self._lengths.append((value, len(guard.items)))
            if guard.items:
                self._keys.append((value, guard.items))
        if isinstance(guard, (OfFixed, OfGlobals)) and guard.unset:
            self._absent.append((guard.unset, value if isinstance(guard, OfGlobals) else vars(value)))
        if isinstance(guard, OfObject):
            self._attributes.append((value, "__class__", value.__class__))
            if guard.missing:
                self._absent.append((guard.missing, value.__dict__))
            if guard.unfilled:
                self._contents.append((guard, value))
            if guard.names is None and guard.own:
                self._lengths.append((value.__dict__, sum(key in value.__dict__ for key in guard.before)))
        if isinstance(guard, Container):
            for key, child in guard.children:
                self._place(guard, value, key, child)
            for other in (guard.rest, guard.kind):
                if isinstance(other, Container):
                    self._look(other)

    def _place(self, guard: Container, value: Any, key: Any, child: Guard) -> None:
        item = guard.before[key]
        if isinstance(child, AnyTensor):
            self._tensors.append((*_fetching(guard, value, key), None))
            return
        if isinstance(child, (OfTensor, OfArray)) or (isinstance(child, Container) and child.live):
            self._tensors.append((*_fetching(guard, value, key), child))
            return
        if isinstance(guard, OfFunction):
            kind, name = key
            if kind == "closure's ":
                self._cells.append((guard.cells[name], item))
            else:
                self._attributes.append((value, ATTRIBUTES[kind], item))
        elif isinstance(guard, OfSequence):
            if not isinstance(value, tuple):
                self._items.append((value, key, item))
        elif isinstance(guard, OfFixed) and key in ("__bases__", "__class__"):
            self._attributes.append((value, key, item))
        elif isinstance(guard, (OfMapping, OfGlobals)):
            self._name(value, key, item)
        elif isinstance(guard, (OfFixed, OfObject)) and not (isinstance(guard, OfObject) and key in guard.slots):
            self._name(vars(value), key, item)
        elif not isinstance(guard, (OfMethod, OfRoots)):  # of which nothing can be changed
            self._attributes.append((value, key, item))
        if isinstance(child, (EqualArray, EqualBytes)):
            self._contents.append((child, item))
        elif isinstance(child, Container):
            self._look(child)

    def _name(self, mapping: Any, key: Any, item: Any) -> None:
        _, keys, values = self._named.setdefault(id(mapping), (mapping, [], []))
        keys.append(key)
        values.append(item)


def _fetching(guard: Container, value: Any, key: Any) -> tuple[Any, tuple]:
    """A function and its arguments that give the tensor at a place."""
    if isinstance(guard, OfFunction):
        return getattr, (guard.cells[key[1]], "cell_contents")
    if isinstance(guard, (OfFixed, OfObject)) and not (isinstance(guard, OfObject) and key in guard.slots):
        return vars(value).get, (key,)
    return (getitem, (value, key)) if isinstance(guard, _BY_KEY) else (getattr, (value, key))


_BY_KEY = (OfSequence, OfMapping, OfGlobals, OfRoots)
