"""What a function depends on besides its tensors: arguments, closures, globals, and what is in them.

What is looked at (guards.py says how): the code of the function and of the Python functions that it names, unless they
belong to an installed library; the globals that this code names; closures, defaults, bound objects; and of objects the
attributes that the code names (all of a module's).  What a function looks up in another way (a library's registry,
`getattr` with a computed name, a file) is not seen.
"""

import functools
import sys
import sysconfig
import types
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from ..tensor import Tensor
from .guards import (
    ARRAY,
    SCALARS,
    AnyTensor,
    Container,
    Equal,
    EqualArray,
    Guard,
    OfDeque,
    OfFixed,
    OfFunction,
    OfMapping,
    OfMethod,
    OfObject,
    OfSequence,
    OfSet,
    OfSlots,
    OfWrapper,
    Path,
    names_in,
)

_LIMIT = 50_000  # values that are looked at; the others have to be the same objects
# What of a class is called without being named, and what of it is of no account.
_CALLED = {"forward", "backward", "setup_context", "jvp", "vmap"}
_PLAIN = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "__init__"}


class Surroundings:
    """Guards, and the containers that they look into."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []  # in the order in which the guards find them
        self.containers: list[Container] = []
        self._seen: dict[int, Any] = {}
        self._names: frozenset[str] = frozenset()

    def guards(self, values: list[Any]) -> list[Guard]:
        """Guards for values, looked through together: a later one may name attributes of an earlier one."""
        while True:
            known = self._names
            self.tensors, self.containers, self._seen = [], [], {}
            found = [self._guard(value, ()) for value in values]
            if self._names == known:
                return found

    def _guard(self, value: Any, path: Path) -> Guard:
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return AnyTensor()
        if isinstance(value, SCALARS):
            return Equal(value)
        if isinstance(value, np.ndarray) and value.size <= ARRAY and value.dtype != object:
            return EqualArray(value)
        if id(value) in self._seen or len(self._seen) > _LIMIT:
            return Guard(value)
        self._seen[id(value)] = value
        found = self._container(value, path)
        if found is None:
            return Guard(value)
        self.containers.append(found)
        names = found.names if isinstance(found, OfObject) else None
        for key, item in found.before.items():
            if names is None or key in names:
                found.children.append((key, self._guard(item, (*path, key))))
        if isinstance(found, OfObject) and not is_library_class(type(value)):
            found.kind = self._guard(type(value), ("__class__",))
        return found

    def _container(self, value: Any, path: Path) -> Container | None:
        guards = getattr(type(value), "__xgrad_guards__", None)
        if guards is not None:  # it names what of it counts
            return OfObject(value, path, guards, frozenset())
        if isinstance(value, (list, tuple)):
            return OfSequence(value, path)
        if isinstance(value, (dict, OrderedDict)):
            return OfMapping(value, path)
        if isinstance(value, deque):
            return OfDeque(value, path)
        if isinstance(value, set):
            return OfSet(value, path)
        if isinstance(value, types.FunctionType):
            if is_library(value.__globals__) or _of_library(value.__module__):
                return OfWrapper(value, path) if hasattr(value, "__wrapped__") else None
            self._names |= names_in(value.__code__)
            return OfFunction(value, path)
        if isinstance(value, (types.MethodType, functools.partial)):
            return OfMethod(value, path)
        if isinstance(value, types.ModuleType):
            return None if is_library(vars(value)) else OfFixed(value, path, self._names)
        if isinstance(value, type):
            implicit = {name for name in vars(value) if name in _CALLED or name[:2] == name[-2:] == "__"} - _PLAIN
            return None if is_library_class(value) else OfFixed(value, path, self._names | implicit)
        if isinstance(value, (property, classmethod)) or (callable(value) and hasattr(value, "__wrapped__")):
            return OfWrapper(value, path)
        if isinstance(value, jax.Array):
            return None
        if not hasattr(value, "__dict__"):
            cls: type = type(value)
            slotted = any("__slots__" in vars(kind) for kind in cls.__mro__)
            return OfSlots(value, path) if slotted and not is_library_class(cls) else None
        if hasattr(value, "_parameters"):  # a module: library code reads its attributes
            return OfObject(value, path, None, self._names | {"forward"})
        return None if is_library_class(type(value)) else OfObject(value, path, self._names, self._names)

    def restore(self) -> None:
        """Put back what was in the containers."""
        for container in self.containers:
            container.restore()


def containers_of(guard: Guard) -> Iterator[Container]:
    """The containers that a guard looks into, from the outermost one."""
    if isinstance(guard, Container):
        yield guard
        for _, child in guard.children:
            yield from containers_of(child)
        if isinstance(guard, OfObject) and guard.kind is not None:
            yield from containers_of(guard.kind)


def containers_among(value: Any) -> Iterator[Container]:
    """The containers among arguments: of these only what is in them, their leaves, has guards."""
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


def locate(guard: Any, value: Any, path: Path) -> tuple[Container, Any]:
    """The container at a path, by its guard and as it is now."""
    for key in path:
        value = guard.read(value)[key]
        guard = next(child for name, child in guard.children if name == key)
    return guard, value


LIBRARIES = tuple({sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def is_library(names: dict) -> bool:
    """Whether a module, by its globals, is of an installed library, or xgrad's own."""
    file = names.get("__file__")
    return _of_library(names.get("__name__")) or (bool(file) and str(file).startswith(LIBRARIES))


def _of_library(module: Any) -> bool:
    return str(module).partition(".")[0] in ("xgrad", "jax", "jaxlib", "numpy", "builtins")


def is_library_class(kind: type) -> bool:
    """Whether a class is of an installed library."""
    module = sys.modules.get(kind.__module__)
    return module is None or is_library(vars(module))
