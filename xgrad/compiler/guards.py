"""Guards: whether a value is still what it was when a function was traced, and where its tensors are now.

A `Guard` is made of a value before the trace.  Before each later call it looks whether the value is still the same, and
collects the tensors on its way, which are fetched anew each time: a parameter may be another object as long as it looks
the same.  A `Container` looks into a list, a dictionary, a function, an object; after the trace it says what the
function has changed in it in Python, and puts that back.
"""

import enum
import functools
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..devices import device
from ..size import Size
from ..tensor import Tensor

SCALARS = (
    int, float, bool, str, bytes, complex, type(None), np.dtype, np.generic, slice, range, enum.Enum, device, Size,
)  # fmt: skip
ARRAY = 4096  # elements of a NumPy array that are compared; a larger one has to be the same object
MISSING = object()

Path = tuple  # of keys of `Container.read`, from a function or from an argument


class Guard:
    """Looks whether a value is still what it was when the guard was made: here, the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def check(self, value: Any, found: list) -> str | None:
        """Why it is not, or None; the tensors in it are added to `found`."""
        return None if value is self.value else f" is another {_kind(self.value)} now"


class Equal(Guard):
    """A number, a string, and the like."""

    __slots__ = ()

    def check(self, value: Any, found: list) -> str | None:
        mine = self.value
        return None if value is mine or _same_scalar(value, mine) else f" was {mine!r} and is {shown(value)}"


class EqualArray(Guard):
    """A NumPy array, which is a constant of the program: a small one by what is in it."""

    __slots__ = ()

    def __init__(self, value: np.ndarray) -> None:
        self.value = value.copy()

    def check(self, value: Any, found: list) -> str | None:
        same = isinstance(value, np.ndarray) and value.dtype == self.value.dtype and np.array_equal(value, self.value)
        return None if same else " is another array now"


class AnyTensor(Guard):
    """A tensor.  What it has to look like is known where it was reached."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def check(self, value: Any, found: list) -> str | None:
        found.append(value)
        return None if isinstance(value, Tensor) else f" was a Tensor and is {shown(value)}"


class Container(Guard):
    """Something with values in it, by their keys.  `children`: the guards of these values."""

    __slots__ = ("before", "children", "path", "type")

    fixed = True  # whether it has to be the same object in each call

    def __init__(self, value: Any, path: Path) -> None:
        self.value: Any = value
        self.path, self.type = path, value.__class__
        self.children: list[tuple[Any, Guard]] = []
        self.before = dict(self.read(value))

    def read(self, value: Any) -> dict:
        """What is in it now."""
        raise NotImplementedError

    def put(self, value: Any, key: Any, item: Any) -> None:
        """Set one of its values; MISSING takes it away."""
        raise NotImplementedError

    def name(self, key: Any) -> str:
        return f".{key}"

    def differs(self, value: Any) -> str | None:
        """Whether it is another kind of thing as a whole."""
        return None if value is self.value else f" is another {_kind(self.value)} now"

    def check(self, value: Any, found: list) -> str | None:
        reason = self.differs(value)
        if reason is not None:
            return reason
        now = self.read(value)
        for key, guard in self.children:
            item = now.get(key, MISSING)
            reason = guard.check(item, found)
            if reason is not None:
                return f"{self.name(key)}{reason}"
        return None

    def forget(self) -> None:
        """Hold nothing of what was in it any more, nor itself if it may be another one next time."""
        self.before = dict.fromkeys(self.before)
        if not self.fixed:
            self.value = None

    def takes(self, key: Any) -> bool:
        """Whether a value can be put in again in each call."""
        return "__class__" not in self.path

    def told(self, key: Any) -> str:
        """A key in words."""
        return f"{type(self.value).__name__}{self.name(key)}"

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        """(key, what was there, what is there now)."""
        now = self.read(self.value)
        for key in list(self.before) + [key for key in now if key not in self.before]:
            was, here = self.before.get(key, MISSING), now.get(key, MISSING)
            if was is not here and not _same_scalar(was, here):
                yield key, was, here

    def restore(self) -> None:
        """Put back what was in it."""
        for key, was, _ in list(self.changes()):
            self.put(self.value, key, was)


class OfSequence(Container):
    """A list or a tuple."""

    __slots__ = ()

    fixed = False

    def read(self, value: Any) -> dict:
        return dict(enumerate(value))

    def put(self, value: Any, key: Any, item: Any) -> None:
        value[key] = item

    def name(self, key: Any) -> str:
        return f"[{key}]"

    def differs(self, value: Any) -> str | None:
        if value.__class__ is not self.type:
            return f" was a {self.type.__name__} and is {shown(value)}"
        count = len(self.before)
        return None if len(value) == count else f" had {count} entries and has {len(value)}"

    def check(self, value: Any, found: list) -> str | None:
        reason = self.differs(value)
        if reason is None:
            for key, guard in self.children:
                reason = guard.check(value[key], found)
                if reason is not None:
                    return f"[{key}]{reason}"
        return reason

    def takes(self, key: Any) -> bool:
        return len(self.value) == len(self.before)

    def restore(self) -> None:
        if self.value.__class__ is not tuple and any(True for _ in self.changes()):
            self.value[:] = self.before.values()


class OfMapping(Container):
    """A dictionary."""

    __slots__ = ()

    fixed = False

    def read(self, value: Any) -> dict:
        return value

    def put(self, value: Any, key: Any, item: Any) -> None:
        if item is MISSING:
            del value[key]
        else:
            value[key] = item

    def name(self, key: Any) -> str:
        return f"[{key!r}]" if isinstance(key, (str, int)) else f"[a {_kind(key)}]"

    def differs(self, value: Any) -> str | None:
        if value.__class__ is not self.type:
            return f" was a {self.type.__name__} and is {shown(value)}"
        count = len(self.before)
        return None if len(value) == count else f" had {count} entries and has {len(value)}"


class OfObject(Container):
    """An object's attributes: those in its __dict__ with a name that code uses, or all; and its class.

    `used`: the names that code uses; an attribute that is missing may be the class's, or asked for by hasattr.
    """

    __slots__ = ("kind", "missing", "names")

    fixed = False

    def __init__(self, value: Any, path: Path, names: frozenset[str] | None, used: frozenset[str]) -> None:
        self.names, self.missing = names, used.difference(value.__dict__)
        self.kind: Guard | None = None  # of its class, if that is no library's
        super().__init__(value, path)

    def read(self, value: Any) -> dict:
        return value.__dict__

    def put(self, value: Any, key: Any, item: Any) -> None:
        if item is MISSING:
            del value.__dict__[key]
        else:
            value.__dict__[key] = item

    def differs(self, value: Any) -> str | None:
        if value.__class__ is not self.type:
            return f" was a {self.type.__name__} and is {shown(value)}"
        if not self.missing.isdisjoint(value.__dict__):
            return f" has got {', '.join(sorted(self.missing.intersection(value.__dict__)))}"
        return None

    def check(self, value: Any, found: list) -> str | None:
        reason = super().check(value, found)
        return reason if reason is not None or self.kind is None else self.kind.check(value.__class__, found)


class OfSlots(Container):
    """An object's attributes, where its class has __slots__ for them."""

    __slots__ = ()

    fixed = False

    def read(self, value: Any) -> dict:
        names = [name for kind in type(value).__mro__ for name in _slots(kind)]
        return {name: getattr(value, name, MISSING) for name in names}

    def put(self, value: Any, key: Any, item: Any) -> None:
        if item is MISSING:
            delattr(value, key)
        else:
            object.__setattr__(value, key, item)  # of a frozen dataclass too

    def differs(self, value: Any) -> str | None:
        return None if value.__class__ is self.type else f" was a {self.type.__name__} and is {shown(value)}"


def _slots(kind: type) -> tuple[str, ...]:
    names = kind.__dict__.get("__slots__", ())
    found = (names,) if isinstance(names, str) else tuple(names)
    return tuple(f"_{kind.__name__.lstrip('_')}{n}" if n[:2] == "__" != n[-2:] else n for n in found)


class OfDeque(OfSequence):
    """A deque."""

    __slots__ = ()

    def restore(self) -> None:
        if len(self.value) != len(self.before) or any(True for _ in self.changes()):
            self.value.clear()
            self.value.extend(self.before.values())


class OfSet(Container):
    """A set: as a whole."""

    __slots__ = ("items",)

    fixed = False

    def __init__(self, value: set, path: Path) -> None:
        self.items = frozenset(value)
        super().__init__(value, path)

    def read(self, value: Any) -> dict:
        return {}

    def differs(self, value: Any) -> str | None:
        return None if value.__class__ is self.type and value == self.items else " is another set now"

    def told(self, key: Any) -> str:
        return "a set"

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        if self.value != self.items:
            yield None, self.items, self.value

    def takes(self, key: Any) -> bool:
        return False

    def restore(self) -> None:
        if self.value != self.items:
            self.value.clear()
            self.value.update(self.items)


class OfFixed(Container):
    """What has to be the same object, and of which the values that are named are looked at: a class, a module."""

    __slots__ = ("inherited", "names")

    def __init__(self, value: Any, path: Path, names: frozenset[str]) -> None:
        self.names = names
        self.inherited = [n for n in names if isinstance(value, type) and n not in vars(value) and hasattr(value, n)]
        super().__init__(value, path)

    def differs(self, value: Any) -> str | None:
        if value is not self.value:
            return f" is another {_kind(self.value)} now"
        for name in self.inherited:
            if name in value.__dict__:
                return f" has got {name}"
        return None

    def read(self, value: Any) -> dict:
        known = vars(value)
        found = {name: known[name] for name in self.names if name in known}
        if isinstance(value, type):
            found["__bases__"] = value.__bases__
        return found

    def put(self, value: Any, key: Any, item: Any) -> None:
        if item is MISSING:
            delattr(value, key)
        else:
            setattr(value, key, item)


class OfFunction(Container):
    """A Python function: the globals that its code names, its closure, its defaults."""

    __slots__ = ("cells", "names")

    def __init__(self, value: Any, path: Path) -> None:
        self.names = [name for name in names_in(value.__code__) if name in value.__globals__]
        self.cells = dict(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True))
        super().__init__(value, path)

    def read(self, value: Any) -> dict:
        known = value.__globals__
        found = {("global ", name): known[name] for name in self.names if name in known}
        for name, cell in self.cells.items():
            try:
                found["closure's ", name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        found["default of ", value.__name__] = value.__defaults__
        found["keyword default of ", value.__name__] = value.__kwdefaults__
        return found

    def put(self, value: Any, key: Any, item: Any) -> None:
        kind, name = key
        if kind == "global ":
            OfMapping.put(self, value.__globals__, name, item)  # pyright: ignore[reportArgumentType]
        elif kind == "closure's ":
            self.cells[name].cell_contents = item

    def name(self, key: Any) -> str:
        return f" {key[0]}{key[1]}"

    def check(self, value: Any, found: list) -> str | None:
        if value is not self.value:
            return f" is another {_kind(self.value)} now"
        known, cells = value.__globals__, self.cells
        for key, guard in self.children:
            kind, name = key
            try:
                item = (
                    known.get(name, MISSING) if kind == "global "
                    else cells[name].cell_contents if kind == "closure's "
                    else value.__defaults__ if kind == "default of "
                    else value.__kwdefaults__
                )  # fmt: skip
            except ValueError:
                item = MISSING
            if guard.__class__ is Guard:
                if item is not guard.value:
                    return f" {kind}{name} is another {_kind(guard.value)} now"
            elif (reason := guard.check(item, found)) is not None:
                return f" {kind}{name}{reason}"
        return None


class OfMethod(Container):
    """A bound method, or a partial function."""

    __slots__ = ()

    fixed = False

    def read(self, value: Any) -> dict:
        if isinstance(value, functools.partial):
            return {"func": value.func, "args": value.args, "keywords": value.keywords}
        return {"__func__": value.__func__, "__self__": value.__self__, "__class__": type(value.__self__)}

    def differs(self, value: Any) -> str | None:
        return None if value.__class__ is self.type else f" was a {self.type.__name__} and is {shown(value)}"


class OfWrapper(Container):
    """What stands for functions: a property, a static method, a function that a library's decorator gave."""

    __slots__ = ()

    def read(self, value: Any) -> dict:
        return {name: getattr(value, name) for name in _WRAPPED if hasattr(value, name)}

    def takes(self, key: Any) -> bool:
        return False


_WRAPPED = ("__wrapped__", "fget", "fset")


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """The names of globals and attributes that a code object and those in it use."""
    found = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= names_in(const)
        elif isinstance(const, str) and const.isidentifier():  # getattr(self, "scale")
            found.add(const)
    return frozenset(found)


def _same_scalar(a: Any, b: Any) -> bool:
    if not isinstance(a, SCALARS) or a.__class__ is not b.__class__:
        return False
    return bool(a == b) or (a != a and b != b)


def _kind(value: Any) -> str:
    return type(value).__name__


def shown(value: Any) -> str:
    if value is MISSING:
        return "missing"
    return repr(value) if isinstance(value, SCALARS) else f"a {_kind(value)}"
