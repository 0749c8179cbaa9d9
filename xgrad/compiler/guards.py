"""Guards: whether a value is still what it was when a function was traced, and where its tensors are now.

A `Guard` is made of a value as it was before the trace.  Before each later call it looks whether the value is the same,
and collects the tensors on its way, which are fetched each time: a parameter may be another object as long as it looks
the same.  A `Container` looks into a list, a dictionary, a function, an object (containers.py); after the trace it says
what the function has changed in it in Python, and puts that back.
"""

import types
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..devices import device
from ..size import Size
from ..tensor import Tensor

MISSING = object()
REST = "__rest__"  # the key under which a container's attributes are found, where it has items too

_EXACT = frozenset({int, bool, str, bytes, type(None), type(...), device, Size})  # equal ones are the same
_SCALARS = _EXACT | {float, complex, slice, range}
SCALARS = (*_SCALARS, np.dtype, np.generic)

Path = tuple  # of keys of `Container.read`, from a function or from an argument


def is_scalar(value: Any) -> bool:
    """Whether a value is a number, a string, and the like; not what is derived from these and may have attributes."""
    kind = type(value)
    return kind in _SCALARS or issubclass(kind, (np.dtype, np.generic, device))


def same_scalar(a: Any, b: Any) -> bool:
    """Whether two scalars are the same, down to the type, the sign of a zero and NaN."""
    if type(a) is not type(b) or not is_scalar(a):
        return False
    return bool(a == b) if type(a) in _EXACT or isinstance(a, np.dtype) else repr(a) == repr(b)


class Guard:
    """Looks whether a value is still what it was when the guard was made: here, the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def check(self, value: Any, found: list) -> str | None:
        """Why it is not, or None; the tensors in it are added to `found`."""
        return None if value is self.value else f" is another {kind_name(self.value)} now"


class Equal(Guard):
    """A number, a string, and the like."""

    __slots__ = ()

    def check(self, value: Any, found: list) -> str | None:
        mine = self.value
        return None if value is mine or same_scalar(value, mine) else f" was {mine!r} and is {shown(value)}"


class EqualArray(Guard):
    """A NumPy array, which is a constant of the program: by what is in it, bit for bit, 0.3 ms for a million numbers.

    One that cannot be written is compared too: its flag can be set, and taken back.
    """

    __slots__ = ("dtype", "shape")

    def __init__(self, value: np.ndarray) -> None:
        self.value = _bits(value.copy())
        self.dtype, self.shape = value.dtype, value.shape

    def check(self, value: Any, found: list) -> str | None:
        same = (
            isinstance(value, np.ndarray)
            and value.dtype == self.dtype
            and value.shape == self.shape
            and np.array_equal(_bits(value), self.value)
        )
        return None if same else " is another array now"


def _bits(value: np.ndarray) -> np.ndarray:
    """The memory of an array, in which NaN is NaN, and -0.0 is not 0.0."""
    flat = np.ascontiguousarray(value).reshape(-1)
    size = value.dtype.itemsize
    return flat.view(f"u{size}") if size in (1, 2, 4, 8) else flat.view("u1") if size else flat


class EqualBytes(Guard):
    """A bytearray, an array.array, a memoryview: by what is in it."""

    __slots__ = ("type",)

    kinds = (bytearray, array, memoryview)

    def __init__(self, value: Any) -> None:
        self.value, self.type = bytes(value), value.__class__

    def check(self, value: Any, found: list) -> str | None:
        return None if value.__class__ is self.type and bytes(value) == self.value else " has other bytes now"


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

    __slots__ = ("before", "children", "kind", "path", "rest", "type")

    fixed = True  # whether it has to be the same object in each call
    live = False  # whether its values are to be asked for in each call, being others in another thread, say

    def __init__(self, value: Any, path: Path, before: dict | None = None) -> None:
        self.value: Any = value
        self.path, self.type = path, type(value)
        self.children: list[tuple[Any, Guard]] = []
        self.before = dict(self.read(value)) if before is None else before
        self.rest: Guard | None = None  # of its attributes, if it has items too
        self.kind: Guard | None = None  # of its class

    def read(self, value: Any) -> dict:
        """What is in it now."""
        raise NotImplementedError

    def put(self, value: Any, key: Any, item: Any) -> None:
        """Set one of its values; MISSING takes it away."""
        raise NotImplementedError

    def looks(self, key: Any) -> bool:
        """Whether what is under a key is looked at."""
        return True

    def name(self, key: Any) -> str:
        return f".{key}"

    def differs(self, value: Any) -> str | None:
        """Whether it is another kind of thing as a whole."""
        return None if value is self.value else f" is another {kind_name(self.value)} now"

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
        return self.check_others(value, found)

    def check_others(self, value: Any, found: list) -> str | None:
        """The attributes of what has items too, and the class."""
        reason = None if self.rest is None else self.rest.check(value, found)
        return reason if reason is not None or self.kind is None else self.kind.check(type(value), found)

    def forget(self) -> None:
        """Hold nothing of what was in it any more, nor itself if it may be another one next time."""
        self.before = dict.fromkeys(self.before)
        if not self.fixed:
            self.value = None

    def takes(self, key: Any) -> bool:
        """Whether a value can be put in again in each call."""
        return "__class__" not in self.path and REST not in self.path

    def told(self, key: Any) -> str:
        """A key in words."""
        return f"{type(self.value).__name__}{self.name(key)}"

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        """(key, what was there, what is there now)."""
        now = self.read(self.value)
        for key in list(self.before) + [key for key in now if key not in self.before]:
            was, here = self.before.get(key, MISSING), now.get(key, MISSING)
            if was is not here and not same_scalar(was, here):
                yield key, was, here

    def restore(self) -> None:
        """Put back what was in it."""
        for key, was, _ in list(self.changes()):
            self.put(self.value, key, was)


def kind_name(value: Any) -> str:
    return type(value).__name__


def shown(value: Any) -> str:
    if value is MISSING:
        return "missing"
    if isinstance(value, types.FunctionType):
        return f"the function {value.__name__}"
    return repr(value) if is_scalar(value) else f"a {kind_name(value)}"
