"""xgrad.compile's guards that look into lists, dictionaries, sets, objects and tensors with attributes."""

import collections
import contextvars
import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any

from ...tensor import Tensor
from .guard import MISSING, Container, Path, base_of, is_dead, kind_name, reads_plainly, same_scalar, shown
from .hyperparameters import HyperparameterGuard


def other_type(guard: Container, value: Any) -> str | None:
    return None if type(value) is guard.type else f" was a {guard.type.__name__} and is {shown(value)}"


class OfSequence(Container):
    """A list or a tuple."""

    __slots__ = ()

    fixed = False

    def read(self, value: Any) -> dict[Any, Any]:
        return dict(enumerate(base_of(type(value)).__iter__(value)))

    def put(self, value: Any, key: Any, item: Any) -> None:
        if key == len(value):  # a library's code has appended it
            value.append(item)
        else:
            value[key] = item

    def name(self, key: Any) -> str:
        return f"[{key}]"

    def differs(self, value: Any) -> str | None:
        count = len(self.before)
        if value.__class__ is self.type and len(value) != count:
            return f" had {count} entries and has {len(value)}"
        return other_type(self, value)

    def check(self, value: Any, found: list[Any]) -> str | None:
        if (reason := self.differs(value)) is not None:
            return reason
        items = value if reads_plainly(type(value)) else self.read(value)
        for key, guard in self.children:
            reason = guard.check(items[key], found)
            if reason is not None:
                return f"[{key}]{reason}"
        return self.check_others(value, found)

    def takes(self, key: Any) -> bool:
        return super().takes(key) and len(self.value) == len(self.before)

    def restore(self) -> None:
        if not isinstance(self.value, tuple) and any(True for _ in self.changes()):
            self.value[:] = self.before.values()


class OfArray(OfSequence):
    """A NumPy array of objects."""

    __slots__ = ("shape",)

    def __init__(self, value: Any, path: Path, before: dict[Any, Any] | None = None) -> None:
        self.shape: tuple[Any, Any] = value.dtype, value.shape
        super().__init__(value, path, before)

    def read(self, value: Any) -> dict[Any, Any]:
        return dict(enumerate(value.flat))

    def put(self, value: Any, key: Any, item: Any) -> None:
        value.flat[key] = item

    def differs(self, value: Any) -> str | None:
        same = value.__class__ is self.type and (value.dtype, value.shape) == self.shape
        return None if same else " is another array now"

    def check(self, value: Any, found: list[Any]) -> str | None:
        return Container.check(self, value, found)

    def takes(self, key: Any) -> bool:
        return False

    def restore(self) -> None:
        Container.restore(self)


class OfMapping(Container):
    """A dictionary, with the order of its keys."""

    __slots__ = ("keys",)

    fixed = False

    def __init__(self, value: Any, path: Path, before: dict[Any, Any] | None = None) -> None:
        super().__init__(value, path, before)
        self.keys: list[Any] = list(self.before)

    def read(self, value: Any) -> dict[Any, Any]:
        if reads_plainly(type(value)):
            return value
        return {key: dict.__getitem__(value, key) for key in base_of(type(value)).__iter__(value)}

    def put(self, value: Any, key: Any, item: Any) -> None:
        # Not by the methods of a subclass, which may put items in its own way.
        plain = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        if item is MISSING:
            plain.__delitem__(value, key)
        else:
            plain.__setitem__(value, key, item)

    def name(self, key: Any) -> str:
        return f"[{key!r}]" if isinstance(key, (str, int)) else f"[a {kind_name(key)}]"

    def differs(self, value: Any) -> str | None:
        if value.__class__ is self.type:
            count = len(self.keys)
            if len(value) != count:
                return f" had {count} entries and has {len(value)}"
            if not same_order(now := self.read(value), self.keys):
                return f" has its keys in another order: {_listed(self.keys)} before, {_listed(now)} now"
        return other_type(self, value)

    def restore(self) -> None:
        if isinstance(self.value, types.MappingProxyType):
            return
        if self.value.__class__ is dict and list(self.value) != self.keys:
            self.value.clear()  # so that the order is restored
        super().restore()


class OfGroup(OfMapping):
    """A group of an optimizer, whose numbers have a guard of their own (hyperparameters.py): its `rest`."""

    __slots__ = ()

    def looks(self, key: Any) -> bool:
        assert isinstance(self.rest, HyperparameterGuard)
        return key not in self.rest.value.reported.names


def same_order(value: Any, keys: list[Any]) -> bool:
    """Return True if a container's items are these, in this order."""
    return all(a is b or same_scalar(a, b) for a, b in zip(value, keys))


def _listed(keys: Any) -> str:
    shorter = [shown(key) for key in keys]
    return f"[{', '.join(shorter[:8])}{', ...' if len(shorter) > 8 else ''}]"


class OfObject(Container):
    """An object's attributes, those with names that code uses or all, and its class.

    `used`: the names that code uses; code may read a missing one from the class, or test it with hasattr.
    """

    __slots__ = ("missing", "names", "own", "slots", "unfilled")

    fixed = False

    def __init__(
        self,
        value: Any,
        path: Path,
        names: frozenset[str] | None,
        used: frozenset[str],
        before: dict[Any, Any] | None = None,
    ) -> None:
        self.slots: tuple[str, ...] = slots_of(type(value))
        self.own: bool = dict_of(value) is not None
        super().__init__(value, path, before)
        self.names: frozenset[str] | None = names
        self.missing: Any = used.difference(self.before) if self.own else frozenset()
        self.unfilled: list[str] = [name for name in self.slots if name not in self.before and self.looks(name)]

    def read(self, value: Any) -> dict[Any, Any]:
        if not self.slots:
            return dict_of(value) or {}
        found = {name: item for name in self.slots if (item := _slot(value, name)) is not MISSING}
        return {**found, **(dict_of(value) or {})}

    def looks(self, key: Any) -> bool:
        return self.names is None or key in self.names

    def put(self, value: Any, key: Any, item: Any) -> None:
        if key not in self.slots:
            OfMapping.put(self, dict_of(value), key, item)  # pyright: ignore[reportArgumentType]
        elif item is MISSING:
            object.__delattr__(value, key)
        else:
            object.__setattr__(value, key, item)  # works for a frozen dataclass too

    def differs(self, value: Any) -> str | None:
        if type(value) is not self.type:
            return other_type(self, value)
        own = dict_of(value) or {}
        if self.missing and not own.keys().isdisjoint(self.missing):
            return f" has got {', '.join(sorted(self.missing.intersection(own)))}"
        for name in self.unfilled:
            if _slot(value, name) is not MISSING:
                return f" has got {name}"
        if self.names is None and self.own:
            now = self.read(value)
            if now.keys() != self.before.keys():
                return f" has other attributes: {', '.join(sorted(now.keys() ^ self.before.keys()))}"
        return None


def dict_of(value: Any) -> dict[Any, Any] | None:
    """Return an object's `__dict__` without calling the user's `__getattribute__`; None if it has none."""
    if not asks_itself(type(value)):
        return getattr(value, "__dict__", None)
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


_NATIVE = (Tensor, dict, list, tuple, set, frozenset, int, float, complex, str, bytes, type, types.ModuleType)


@functools.lru_cache(maxsize=4096)
def asks_itself(kind: type[Any]) -> bool:
    """Return True if the class has a `__getattribute__` of the user's.  isinstance would call it, so `type` is used."""
    return isinstance(kind.__getattribute__, types.FunctionType) and not issubclass(kind, _NATIVE)


def _slot(value: Any, name: str) -> Any:
    if not asks_itself(type(value)):
        return getattr(value, name, MISSING)
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return MISSING


class OfLocal(OfObject):
    """A threading.local: the attributes of the current thread."""

    __slots__ = ()

    live = True


class OfSubclass(OfObject):
    """A member of an enumeration, or an instance of a number's or string's subclass: its value and its attributes."""

    __slots__ = ()

    fixed = True  # a scalar in effect: not large

    def differs(self, value: Any) -> str | None:
        reason = super().differs(value)
        if reason is None and value is not self.value:
            base = next((kind for kind in self.type.__mro__ if is_scalar_type(kind)), None)
            if base is None or not same_scalar(base(value), base(self.value)):
                return f" was {self.value!r} and is {value!r}"
        return reason


def is_scalar_type(kind: type[Any]) -> bool:
    return kind in (int, float, complex, str, bytes)


_SLOTS_OF_C: dict[type, tuple[str, ...]] = {collections.defaultdict: ("default_factory",), BaseException: ("args",)}


@functools.lru_cache(maxsize=1024)
def slots_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the attributes of instances that are not in a `__dict__`, but for those that a subclass hides."""
    found: list[str] = []
    hidden: set[str] = set()  # a property in the place of a slot, as in Python 3.13's paths
    for base in kind.__mro__:
        found += _SLOTS_OF_C.get(base, ())
        names = base.__dict__.get("__slots__", ())
        for n in (names,) if isinstance(names, str) else tuple(names):
            name = f"_{base.__name__.lstrip('_')}{n}" if n[:2] == "__" != n[-2:] else n
            if n not in ("__dict__", "__weakref__") and name not in hidden:
                found.append(name)
        hidden.update(base.__dict__)
    return tuple(found)


class OfDeque(OfSequence):
    """A deque."""

    __slots__ = ()

    def restore(self) -> None:
        if len(self.value) != len(self.before) or any(True for _ in self.changes()):
            self.value.clear()
            self.value.extend(self.before.values())


class OfSet(Container):
    """A set as a whole, with the order of its items."""

    __slots__ = ("items",)

    fixed = False

    def __init__(self, value: Any, path: Path, before: dict[Any, Any] | None = None) -> None:
        super().__init__(value, path, before)
        self.items: list[Any] = list(self.before)

    def read(self, value: Any) -> dict[Any, Any]:
        return dict.fromkeys(value)

    def looks(self, key: Any) -> bool:
        return False

    def differs(self, value: Any) -> str | None:
        same = value.__class__ is self.type and len(value) == len(self.items) and same_order(value, self.items)
        return None if same else " is another set now"

    def told(self, key: Any) -> str:
        return "a set"

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        if {item for item in self.items if not is_dead(item)} != {item for item in self.value if not is_dead(item)}:
            yield None, frozenset(self.items), self.value

    def takes(self, key: Any) -> bool:
        return False

    def restore(self) -> None:
        if any(True for _ in self.changes()):
            self.value.clear()
            self.value.update(self.items)


class OfContext(Container):
    """A context variable, or a weak reference: the value that it gives now."""

    __slots__ = ()

    fixed = False
    live = True
    kinds: Any = (contextvars.ContextVar, weakref.ref)

    def read(self, value: Any) -> dict[Any, Any]:
        if not isinstance(value, contextvars.ContextVar):
            return {"": value()}
        try:
            return {"": value.get()}  # or its default
        except LookupError:
            return {"": MISSING}

    def put(self, value: Any, key: Any, item: Any) -> None:
        if item is not MISSING and isinstance(value, contextvars.ContextVar):
            value.set(item)

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        for key, was, here in super().changes():
            if not (isinstance(self.value, weakref.WeakMethod) and was == here):  # a new method object each time
                yield key, was, here

    def differs(self, value: Any) -> str | None:
        return other_type(self, value)

    def takes(self, key: Any) -> bool:
        return False

    def name(self, key: Any) -> str:
        return ".get()" if issubclass(self.type, contextvars.ContextVar) else "()"


class OfView(Container):
    """The keys, values or items of a dictionary: guarded by the dictionary's content."""

    __slots__ = ()

    kinds: Any = (type({}.keys()), type({}.values()), type({}.items()))

    def read(self, value: Any) -> dict[Any, Any]:
        return {"mapping": value.mapping}

    def differs(self, value: Any) -> str | None:
        return other_type(self, value)

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        return iter(())  # the dictionary's guard finds them

    def takes(self, key: Any) -> bool:
        return False


class OfTensor(Container):
    """A tensor with attributes of the user's, or with hooks, whose functions may close over values."""

    __slots__ = ()

    fixed = False

    def read(self, value: Any) -> dict[Any, Any]:
        return attributes_of(value)

    def name(self, key: Any) -> str:
        return f".{key}" if key.__class__ is str else "'s hook"

    def check(self, value: Any, found: list[Any]) -> str | None:
        found.append(value)
        if not isinstance(value, Tensor):
            return f" was a Tensor and is {shown(value)}"
        now = self.read(value)
        if len(now) != len(self.before):
            names = sorted(map(str, now.keys() ^ self.before.keys()))
            return f" has other attributes or hooks: {', '.join(names)}"
        for key, guard in self.children:
            reason = guard.check(now.get(key, MISSING), found)
            if reason is not None:
                return self.name(key) + reason
        return self.check_others(value, found)

    def changes(self) -> Iterator[tuple[Any, Any, Any]]:
        return iter(())  # Outputs.effects compares tensors


INTERNAL = frozenset(name for name in vars(Tensor) if name.startswith("_")) | {"_trace", "_batched", "_grad_layout"}


def attributes_of(tensor: Tensor) -> dict[Any, Any]:
    """Return a tensor's attributes that are not xgrad's, by name, and its hooks, by (kind, number)."""
    attributes = object.__getattribute__(tensor, "__dict__")
    if len(attributes) == 1:
        return {}
    found: dict[Any, Any] = {name: item for name, item in attributes.items() if name not in INTERNAL}
    for name in ("_hooks", "_post_accumulate_hooks"):
        hooks = attributes.get(name)
        if hooks:
            found.update({(name, i): hook for i, hook in enumerate(hooks.values())})
    return found
