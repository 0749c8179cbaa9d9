"""xgrad.compile's guards of functions, methods, modules, classes and globals: they test what traced code reads."""

import functools
import types
from collections.abc import Iterator
from typing import Any

from .containers import OfMapping, OfObject, dict_of, other_type
from .guard import MISSING, Container, Guard, Path, kind_name, same_scalar


class OfRoots(Container):
    """The root of all guards: the function, and the globals and objects that its code reads in other ways."""

    __slots__ = ()

    def __init__(self, value: list[Any]) -> None:
        super().__init__(value, ())

    def read(self, value: Any) -> dict[Any, Any]:
        return dict(enumerate(value))

    def name(self, key: Any) -> str:
        value = self.value[key]
        return "" if key == 0 or isinstance(value, (dict, types.FunctionType)) else f"the {kind_name(value)}"

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        return iter(())


class OfNames(Container):
    """The values that code names, of an object that has more of them.  `unset`: the names without a value so far."""

    __slots__ = ("names", "unset")

    also: tuple[str, ...] = ()  # what is looked at beside the names

    def __init__(self, value: Any, path: Path, names: frozenset[str], before: dict[Any, Any] | None = None) -> None:
        self.names: frozenset[str] = names
        super().__init__(value, path, before)
        self.unset: frozenset[str] = names.difference(self.before)

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        now = self.read(self.value)
        for key in (*self.names, *self.also):
            was, here = self.before.get(key, MISSING), now.get(key, MISSING)
            if was is not here and not same_scalar(was, here):
                yield key, was, here


class OfFixed(OfNames):
    """A class or a module: the same object in each call.  A name that is set later hides an inherited attribute."""

    __slots__ = ()

    also: tuple[str, ...] = ("__bases__", "__class__")

    def looks(self, key: Any) -> bool:
        return key in self.names or key == "__bases__" or (key == "__class__" and type(self.value) is not type)

    def differs(self, value: Any) -> str | None:
        if value is not self.value:
            return f" is another {kind_name(self.value)} now"
        if not value.__dict__.keys().isdisjoint(self.unset):
            return f" has got {', '.join(sorted(self.unset.intersection(value.__dict__)))}"
        return None

    def read(self, value: Any) -> dict[Any, Any]:
        known = vars(value)
        if not isinstance(value, type):
            return known
        found: dict[Any, Any] = dict(known)
        found["__bases__"], found["__class__"] = value.__bases__, value.__class__
        return found

    def put(self, value: Any, key: Any, item: Any) -> None:
        if item is MISSING:
            delattr(value, key)
        else:
            setattr(value, key, item)


class OfGlobals(OfNames):
    """The globals of a module that code names.  One that is set later may hide a builtin, or an except binds it."""

    __slots__ = ()

    def read(self, value: Any) -> dict[Any, Any]:
        return value

    def looks(self, key: Any) -> bool:
        return key in self.names

    def name(self, key: Any) -> str:
        return f"global {key}"

    def told(self, key: Any) -> str:
        return self.name(key)

    def differs(self, value: Any) -> str | None:
        if value.keys().isdisjoint(self.unset):
            return None
        return f"there is a global {', '.join(sorted(self.unset.intersection(value)))} now"

    def put(self, value: Any, key: Any, item: Any) -> None:
        OfMapping.put(self, value, key, item)  # pyright: ignore[reportArgumentType]


class OfImports(OfGlobals):
    """`sys.modules`: the modules that code imports when it runs.  An import in the trace does not count as a change."""

    __slots__ = ()

    def name(self, key: Any) -> str:
        return f"the module {key}"

    def differs(self, value: Any) -> str | None:
        found = sorted(self.unset.intersection(value))
        return f"there is a module {', '.join(found)} now" if found else None

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        return iter(())


class OfFunction(Container):
    """A Python function: its code, its closure, its defaults."""

    __slots__ = ("cells",)

    def __init__(self, value: Any, path: Path, before: dict[Any, Any] | None = None) -> None:
        self.cells: Any = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        super().__init__(value, path, before)

    def read(self, value: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for name, cell in self.cells.items():
            try:
                found["closure's ", name] = cell.cell_contents
            except ValueError:  # not assigned yet
                found["closure's ", name] = MISSING
        found["default of ", value.__name__] = value.__defaults__
        found["keyword default of ", value.__name__] = value.__kwdefaults__
        found["code of ", value.__name__] = value.__code__
        return found

    def put(self, value: Any, key: Any, item: Any) -> None:
        kind, name = key
        if kind == "closure's " and item is MISSING:
            del self.cells[name].cell_contents
        elif kind == "closure's ":
            self.cells[name].cell_contents = item
        else:
            setattr(value, ATTRIBUTES[kind], item)

    def takes(self, key: Any) -> bool:
        return super().takes(key) and key[0] == "closure's "

    def name(self, key: Any) -> str:
        return f" {key[0]}{key[1]}"

    def check(self, value: Any, found: list[Any]) -> str | None:
        if value is not self.value:
            return f" is another {kind_name(self.value)} now"
        for key, guard in self.children:
            kind, name = key
            try:
                item = self.cells[name].cell_contents if kind == "closure's " else getattr(value, ATTRIBUTES[kind])
            except ValueError:
                item = MISSING
            if guard.__class__ is Guard:
                if item is not guard.value:
                    return f" {kind}{name} is another {kind_name(guard.value)} now"
            elif (reason := guard.check(item, found)) is not None:
                return f" {kind}{name}{reason}"
        return self.check_others(value, found)


class OfAttributes(OfObject):
    """A function's attributes."""

    __slots__ = ()

    fixed = True

    def differs(self, value: Any) -> str | None:
        return f" is another {kind_name(self.value)} now" if value is not self.value else super().differs(value)


ATTRIBUTES = {"default of ": "__defaults__", "keyword default of ": "__kwdefaults__", "code of ": "__code__"}


class OfMethod(Container):
    """A bound method, or a partial function."""

    __slots__ = ()

    fixed = False

    def read(self, value: Any) -> dict[Any, Any]:
        if isinstance(value, functools.partial):
            return {"func": value.func, "args": value.args, "keywords": value.keywords}
        return {"__func__": value.__func__, "__self__": value.__self__, "__class__": type(value.__self__)}

    def differs(self, value: Any) -> str | None:
        return other_type(self, value)


class OfWrapper(Container):
    """A wrapper of functions: a property, a static method, the result of a library's decorator."""

    __slots__ = ()

    def read(self, value: Any) -> dict[Any, Any]:
        return {name: getattr(value, name) for name in _WRAPPED if has(value, name)}

    def takes(self, key: Any) -> bool:
        return False


def has(value: Any, name: str) -> bool:
    """Return True if an object has an attribute, without a call of the user's `__getattr__`."""
    return name in (dict_of(value) or ()) or any(name in vars(kind) for kind in type(value).__mro__)


_WRAPPED = ("__wrapped__", "fget", "fset")
