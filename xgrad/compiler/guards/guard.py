"""Guard: tests that a value is the one that `xgrad.compile` traced, and finds the tensors in it.

A `Guard` is made of a value as it was before the trace.  Before each later call it tests that the value is the same,
and collects the tensors below it, which are fetched each time: a parameter may be another object if it looks the same.
A `Container` looks into a list, a dictionary, a function, an object (containers.py); after the trace it yields the
changes that the function made there in Python, and undoes them.
"""

import collections
import functools
import types
import weakref
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...base.devices import device
from ...base.dtype_object import dtype
from ...base.size import Size
from ...tensor import Tensor

MISSING = object()
REST = "__rest__"  # the key for a container's attributes, where it has items too

_EXACT = frozenset({int, bool, str, bytes, type(None), type(...), device, dtype, Size})  # equal ones are the same
_SCALARS = _EXACT | {float, complex, slice, range}

Path = tuple[Any, ...]  # of keys of `Container.read`, from a function or from an argument


def is_scalar(value: Any) -> bool:
    """Return True for a number, a string, and the like; False for subclasses, which may have attributes."""
    kind = type(value)
    return kind in _SCALARS or (issubclass(kind, (np.dtype, np.generic, device)) and not issubclass(kind, np.void))


def same_scalar(a: Any, b: Any) -> bool:
    """Return True if two scalars are the same, down to the type, the sign of a zero and NaN."""
    if type(a) is not type(b) or not is_scalar(a):
        return False
    return bool(a == b) if type(a) in _EXACT or isinstance(a, np.dtype) else repr(a) == repr(b)


class Guard:
    """Tests that a value is still the one that the guard was made of: here, the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = value

    def check(self, value: Any, found: list[Any]) -> str | None:
        """Return the difference in words, or None; append the value's tensors to `found`."""
        return None if value is self.value else f" is another {kind_name(self.value)} now"


class Equal(Guard):
    """A number, a string, and the like: compared by value."""

    __slots__ = ()

    def check(self, value: Any, found: list[Any]) -> str | None:
        mine = self.value
        return None if value is mine or same_scalar(value, mine) else f" was {mine!r} and is {shown(value)}"


class EqualArray(Guard):
    """A NumPy array, which is a constant of the program: compared bit for bit, 0.3 ms for a million numbers.

    A read-only array is compared too: its flag can be changed and restored.  An array of a subclass has attributes, a
    mask for example: numbers and arrays among them are compared by value, others by identity.
    """

    __slots__ = ("attributes", "form", "type")

    def __init__(self, value: np.ndarray) -> None:
        self.value: np.ndarray[Any, Any] = _bits(value).copy()
        self.type: Any = type(value)
        self.form: tuple[Any, ...] = _form(value)
        self.attributes: dict[str, Guard] = {name: _of_attribute(item) for name, item in _attributes(value).items()}

    def check(self, value: Any, found: list[Any]) -> str | None:
        same = (
            type(value) is self.type
            and _form(value) == self.form
            and np.array_equal(_bits(value), self.value)
            and (self.type is np.ndarray or self._has_attributes(value))
        )
        return None if same else " is another array now"

    def _has_attributes(self, value: np.ndarray) -> bool:
        now = _attributes(value)
        return len(now) == len(self.attributes) and not any(
            name not in now or guard.check(now[name], []) for name, guard in self.attributes.items()
        )


def _attributes(value: np.ndarray) -> dict[str, Any]:
    return {} if type(value) is np.ndarray else object.__getattribute__(value, "__dict__")


def _form(value: np.ndarray) -> tuple[Any, ...]:
    plain = np.ndarray.view(value, np.ndarray)
    return plain.dtype, plain.shape, plain.strides


def _of_attribute(value: Any) -> Guard:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return EqualArray(value)
    return Equal(value) if is_scalar(value) else Guard(value)


def _bits(value: np.ndarray) -> np.ndarray:
    """Return an array's memory as integers: equal NaNs compare equal, and -0.0 differs from 0.0."""
    flat = np.ascontiguousarray(np.ndarray.view(value, np.ndarray)).reshape(-1)
    size = flat.dtype.itemsize
    return flat.view(f"u{size}") if size in (1, 2, 4, 8) else flat.view("u1") if size else flat


class EqualBytes(Guard):
    """A bytearray, an array.array, a memoryview or a row of a table: compared by its bytes, their format and shape."""

    __slots__ = ("type",)

    kinds: Any = (bytearray, array, memoryview, np.void)

    def __init__(self, value: Any) -> None:
        self.value: tuple[Any, ...] = _contents(value)
        self.type: Any = value.__class__

    def check(self, value: Any, found: list[Any]) -> str | None:
        return None if value.__class__ is self.type and _contents(value) == self.value else " has other bytes now"


def _contents(value: Any) -> tuple[Any, ...]:
    with memoryview(value) as view:
        return view.format, view.shape, view.tobytes()


class AnyTensor(Guard):
    """A tensor: `Match` compares it with the `Expected` of the trace."""

    __slots__ = ()

    def __init__(self) -> None:
        pass

    def check(self, value: Any, found: list[Any]) -> str | None:
        found.append(value)
        return None if isinstance(value, Tensor) else f" was a Tensor and is {shown(value)}"


class Container(Guard):
    """An object with values by keys.  `children`: the guards of these values."""

    __slots__ = ("before", "children", "kind", "path", "rest", "type")

    fixed = True  # True if it must be the same object in each call
    live = False  # True if its values must be read in each call: in another thread, say, they are others

    def __init__(self, value: Any, path: Path, before: dict[Any, Any] | None = None) -> None:
        self.value: Any = value
        self.path: Any = path
        self.type: Any = type(value)
        self.children: list[tuple[Any, Guard]] = []
        self.before = dict(self.read(value)) if before is None else before
        self.rest: Guard | None = None  # the guard of its attributes, if it has items too
        self.kind: Guard | None = None  # the guard of its class

    def read(self, value: Any) -> dict[Any, Any]:
        """Return the content of `value`, by keys."""
        raise NotImplementedError

    def put(self, value: Any, key: Any, item: Any) -> None:
        """Set the value at a key; MISSING removes it."""
        raise NotImplementedError

    def looks(self, key: Any) -> bool:
        """Return True if the value at a key has a guard."""
        return True

    def name(self, key: Any) -> str:
        return f".{key}"

    def differs(self, value: Any) -> str | None:
        """Return in words how `value` differs from the container, children aside; None if it does not."""
        return None if value is self.value else f" is another {kind_name(self.value)} now"

    def check(self, value: Any, found: list[Any]) -> str | None:
        reason = self.differs(value)
        if reason is not None:
            return reason
        now = self.read(value)
        for key, guard in self.children:
            item = now.get(key, MISSING)
            reason = guard.check(item, found)
            if reason is not None:
                return f"{self.name(key)}{reason}"
        return self.check_others(value, found)

    def check_others(self, value: Any, found: list[Any]) -> str | None:
        """Check the attributes of a container with items, and its class."""
        reason = None if self.rest is None else self.rest.check(value, found)
        return reason if reason is not None or self.kind is None else self.kind.check(type(value), found)

    def forget(self) -> None:
        """Release the container's former content, and the container itself if later calls may have another one."""
        self.before: dict[Any, Any | None] | dict[Any, Any] = dict.fromkeys(self.before)
        if not self.fixed:
            self.value = None

    def takes(self, key: Any) -> bool:
        """Return True if a call can set the value at a key."""
        return "__class__" not in self.path and REST not in self.path

    def told(self, key: Any) -> str:
        """Return a key in words."""
        return f"{type(self.value).__name__}{self.name(key)}"

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (key, value before, value now) of each value that is different."""
        now = self.read(self.value)
        for key in list(self.before) + [key for key in now if key not in self.before]:
            was, here = self.before.get(key, MISSING), now.get(key, MISSING)
            if was is not here and not same_scalar(was, here):
                if here is MISSING and (is_dead(key) or is_dead(was)):
                    continue  # a weak dictionary has dropped it: the collector ran
                yield key, was, here

    def restore(self) -> None:
        """Undo the changes of the content."""
        for key, was, _ in list(self.changes()):
            self.put(self.value, key, was)


_BUILTIN = (collections.OrderedDict, dict, list, tuple, collections.deque, types.MappingProxyType)


def base_of(kind: type[Any]) -> Any:
    """Return the builtin container that a class is or extends."""
    return next(base for base in kind.__mro__ if base in _BUILTIN)


@functools.lru_cache(maxsize=4096)
def reads_plainly(kind: type[Any]) -> bool:
    """Return True if a container gives the items that it has; a subclass may make them when it is asked."""
    base, names = base_of(kind), ("__getitem__", "__iter__", "get", "keys")
    return all(getattr(kind, name, None) is getattr(base, name, None) for name in names)


def is_dead(value: Any) -> bool:
    """Return True for a weak reference to an object that is gone."""
    return isinstance(value, weakref.ref) and value() is None


def kind_name(value: Any) -> str:
    return type(value).__name__


def shown(value: Any) -> str:
    if value is MISSING:
        return "missing"
    if isinstance(value, types.FunctionType):
        return f"the function {value.__name__}"
    return repr(value) if is_scalar(value) else f"a {kind_name(value)}"
