"""Unchanged: translates the guards of a compiled function into Python conditions, mostly `is`, for guard_code.py.

A guard follows a function through closures, globals, classes and objects in each call (closure_guards.py).  As long as
every place has the very same object, the places are known beforehand: `Unchanged` writes a condition for each, and
`quick_find` (guard_code.py) makes one Python function of them and of the tensors' comparisons.  A condition takes 15 to
30 ns, and a guard that is called 200.  If a condition fails, the guards decide: another object may be equal.

    if not (c3.cell_contents is c4 and c5["scale"] is c6 and "len" not in c5 and c7.check(c8, []) is None):
        return None
"""

import types
from collections.abc import Callable, Iterable
from keyword import iskeyword
from operator import is_, itemgetter
from typing import Any

from ...tensor import Tensor
from .containers import OfArray, OfMapping, OfObject, OfSequence, OfSet, OfTensor, asks_itself, dict_of
from .guard import MISSING, AnyTensor, Container, EqualArray, EqualBytes, Guard, base_of, reads_plainly
from .hyperparameters import HyperparameterGuard
from .namespaces import ATTRIBUTES, OfAttributes, OfFixed, OfFunction, OfGlobals, OfMethod, OfRoots

# Names of one mapping that have a condition each, where it must have them, and where it must not: for more a loop in C
# is as quick, without text to compile.
_MANY, _FEW = 32, 4


class Source:
    """The text of a generated function, and the objects that it names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {
            "Tensor": Tensor,
            "MISSING": MISSING,
            "all": all,
            "map": map,
            "is_": is_,
            "dict_of": dict_of,
        }
        self._names: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """Return the name of an object in the text."""
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = f"c{len(self.objects)}"
            self.objects[known] = value  # a reference, so that its id is not used again
        return known

    def require(self, conditions: list[str], indent: str) -> None:
        """Write lines that return None unless all conditions hold."""
        for i in range(0, len(conditions), 100):  # lines that are short enough to read in a debugger
            self.lines.append(f"{indent}if not ({' and '.join(conditions[i : i + 100])}): return None")

    def function(self, name: str) -> Callable[..., Any]:
        """Compile the text, and return its function `name`."""
        exec(compile("\n".join(self.lines), "<guards of xgrad.compile>", "exec"), self.objects)
        return self.objects.pop(name)


class Unchanged:
    """The places that a guard looks at: a condition for each, and an expression for each tensor."""

    def __init__(self, guard: Guard, source: Source) -> None:
        self.conditions: list[str] = []
        self.tensors: list[tuple[str, Guard | None]] = []  # (expression, the guard to be called in each call)
        self._name = source.name
        self._named: dict[int, tuple[Any, list, list]] = {}  # by the id of a mapping: (it, keys, values)
        self._look(guard)
        for mapping, keys, values in self._named.values():
            self._same_items(mapping, keys, values)

    def _look(self, guard: Guard) -> None:
        """Write the conditions of a guard and its children, in the order in which the guard would test them."""
        value: Any = guard.value
        name, add = self._name, self.conditions.append
        if isinstance(guard, (OfSequence, OfMapping)):
            add(f"len({name(value)}) == {len(guard.before)}")
        if isinstance(guard, OfMapping) and len(guard.keys) > 1:
            kind = type(value)
            keys = name(value) if reads_plainly(kind) else f"{name(base_of(kind).__iter__)}({name(value)})"
            add(f"all(map(is_, {keys}, {name(guard.keys)}))")  # in order
        if isinstance(guard, OfSet):
            add(f"len({name(value)}) == {len(guard.items)}")
            if guard.items:
                add(f"all(map(is_, {name(value)}, {name(guard.items)}))")  # in order
        if isinstance(guard, OfGlobals):
            self._absent(guard.unset, value)
        if isinstance(guard, OfFixed):
            self._absent(guard.unset, vars(value))
        if isinstance(guard, OfObject):
            own = dict_of(value)
            if isinstance(guard, OfAttributes) and not own:  # few functions have attributes
                add(f"not {name(value)}.__dict__")
                return
            itself = asks_itself(type(value))
            add(f"{f'type({name(value)})' if itself else f'{name(value)}.__class__'} is {name(type(value))}")
            if own is not None:  # it must not be another dictionary, set as __dict__
                add(f"{f'dict_of({name(value)})' if itself else f'{name(value)}.__dict__'} is {name(own)}")
                self._absent(guard.missing, own)
            if guard.unfilled:
                self._ask(guard, value)
            if guard.names is None and own is not None:
                add(f"len({name(own)}) == {sum(key in own for key in guard.before)}")
        if isinstance(guard, Container):
            for key, child in guard.children:
                self._place(guard, value, key, child)
            for other in (guard.rest, guard.kind):
                if isinstance(other, Container):
                    self._look(other)
                elif isinstance(other, HyperparameterGuard):
                    self.tensors.append((name(value), other))

    def _ask(self, guard: Guard, value: Any) -> None:
        """Write a condition that calls the guard, for NumPy arrays and others that are compared by content."""
        self.conditions.append(f"{self._name(guard)}.check({self._name(value)}, []) is None")

    def _absent(self, names: Iterable[str], mapping: Any) -> None:
        missing = sorted(names)
        if len(missing) > _FEW and type(mapping) in (dict, types.MappingProxyType):
            self.conditions.append(f"{self._name(mapping)}.keys().isdisjoint({self._name(frozenset(missing))})")
        else:
            self.conditions += [f"{n!r} not in {self._name(mapping)}" for n in missing]

    def _same_items(self, mapping: Any, keys: list, values: list) -> None:
        if len(keys) > _MANY and reads_plainly(type(mapping)):
            several = f"{self._name(itemgetter(*keys))}({self._name(mapping)})"
            self.conditions.append(f"all(map(is_, {several}, {self._name(tuple(values))}))")
            return
        for key, value in zip(keys, values):
            shown = repr(key) if type(key) is str else self._name(key)
            # A subclass of dict may give items, or make them, in its own way.
            plain = type(mapping) in (dict, types.MappingProxyType) and value is not MISSING
            get = self._name(dict.get if isinstance(mapping, dict) else type(mapping).get)
            item = f"{self._name(mapping)}[{shown}]" if plain else f"{get}({self._name(mapping)}, {shown}, MISSING)"
            self.conditions.append(f"{item} is {self._name(value)}")

    def _attribute(self, value: Any, attribute: str, item: Any) -> None:
        plain = attribute.isascii() and attribute.isidentifier() and not iskeyword(attribute)  # so that it is a name
        read = f"{self._name(value)}.{attribute}" if plain else f"getattr({self._name(value)}, {attribute!r})"
        self.conditions.append(f"{read} is {self._name(item)}")

    def _place(self, guard: Container, value: Any, key: Any, child: Guard) -> None:
        item = guard.before[key]
        if isinstance(child, AnyTensor):
            self.tensors.append((self._fetching(guard, value, key), None))
            return
        if isinstance(child, (OfTensor, OfArray)) or (isinstance(child, Container) and child.live):
            self.tensors.append((self._fetching(guard, value, key), child))
            return
        if isinstance(guard, OfFunction):
            kind, name = key
            if kind == "closure's ":
                self.conditions.append(f"{self._name(guard.cells[name])}.cell_contents is {self._name(item)}")
            else:
                self._attribute(value, ATTRIBUTES[kind], item)
        elif isinstance(guard, OfSequence):
            if not isinstance(value, tuple):
                self.conditions.append(f"{self._fetching(guard, value, key)} is {self._name(item)}")
        elif isinstance(guard, OfFixed) and key in ("__bases__", "__class__"):
            self._attribute(value, key, item)
        elif isinstance(guard, (OfMapping, OfGlobals)):
            self._item(value, key, item)
        elif isinstance(guard, (OfFixed, OfObject)) and not (isinstance(guard, OfObject) and key in guard.slots):
            self._item(dict_of(value), key, item)
        elif not isinstance(guard, (OfMethod, OfRoots)):  # whose places cannot be set
            self._attribute(value, key, item)
        if isinstance(child, (EqualArray, EqualBytes)):
            self._ask(child, item)
        elif isinstance(child, Container):
            self._look(child)

    def _item(self, mapping: Any, key: Any, item: Any) -> None:
        _, keys, values = self._named.setdefault(id(mapping), (mapping, [], []))
        keys.append(key)
        values.append(item)

    def _fetching(self, guard: Container, value: Any, key: Any) -> str:
        """Return the expression for the tensor at a place."""
        name = self._name
        if isinstance(guard, OfFunction):
            return f"{name(guard.cells[key[1]])}.cell_contents"
        if isinstance(guard, (OfFixed, OfObject)) and not (isinstance(guard, OfObject) and key in guard.slots):
            return f"{name(dict_of(value))}[{name(key)}]"
        if isinstance(guard, (OfMapping, OfSequence)) and not reads_plainly(type(value)):
            return f"{name(base_of(type(value)).__getitem__)}({name(value)}, {name(key)})"
        if isinstance(guard, _BY_KEY):
            return f"{name(value)}[{name(key)}]"
        return f"getattr({name(value)}, {name(key)})"


_BY_KEY = (OfSequence, OfMapping, OfGlobals, OfRoots)
