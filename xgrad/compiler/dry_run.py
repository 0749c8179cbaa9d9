"""Rehearsal lets a function run on copies of its tensors; Keeping restores the Python containers that it changed.

`xgrad.compile(verify=True)` uses both for its eager run (verify.py); chips/programs.py uses Keeping alone.

    tensors, generators from outside ──► twins: copies that this thread sees in their place (overlay.py)
    lists, sets, dictionaries, attributes, closures, globals ──► restored after the run (`Kept`)

The search for containers ends after 20,000 values, takes only the globals that code names, and skips elements of sets.
Other effects of the function (printing, a file, the state of a C extension) happen as in any other run.
"""

import collections
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from ..tensor import Tensor
from ..views.storage import Storage, Tracer
from .guards.code import is_our_class, names_in
from .guards.guard import MISSING
from .guards.kinds import may_change
from .overlay import Inline, Overlay, Reached

_LIMIT = 20_000  # values that are searched
_copy = jax.jit(jnp.copy)


class _Copied:
    """A copy of an array from outside: the run may change it, and the program may donate the array itself."""

    __slots__ = ("tracer",)

    def __init__(self, array: Any) -> None:
        self.tracer = _copy(array)


class Rehearsal(Overlay):
    """The tensors that an eager run sees, apart from the tensors of all other threads."""

    def root(self, owner: Any, array: Any) -> Any:
        if isinstance(array, Tracer):
            raise Inline
        return _Copied(array)

    def place(self, reached: Reached, storage: Storage | None) -> None:
        now = reached.now
        if storage is None:
            reached.root = self.root(None, now["_array"])
            now["_array"] = reached.root.tracer
        else:
            reached.storage, reached.root = self.shared(storage)
            now["_storage"] = reached.storage
            now["_cache"], now["_cache_generation"] = None, -1


class Kept:
    """A container, and its content before the run."""

    __slots__ = ("before", "name", "read", "value", "write")

    def __init__(
        self, name: str, value: Any, read: Callable[[], dict[Any, Any]], write: Callable[[dict[Any, Any]], None]
    ) -> None:
        self.name: str = name
        self.value: Any = value
        self.read: Callable[..., Any] = read
        self.write: Callable[..., Any] = write
        self.before: dict[Any, Any] = read()

    def changes(self) -> dict[Any, Any]:
        """Return {key: value now} for each value that is another object than before."""
        now = self.read()
        return {
            key: now.get(key, MISSING)
            for key in [*self.before, *(key for key in now if key not in self.before)]
            if now.get(key, MISSING) is not self.before.get(key, MISSING)
        }

    def restore(self) -> None:
        """Restore the content, in its order."""
        now = self.read()
        if list(map(id, now.values())) != list(map(id, self.before.values())) or [*now] != [*self.before]:
            self.write(self.before)


class Keeping:
    """The containers below a function's arguments, closures, globals and objects, and names for the tensors there."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
        self.kept: list[Kept] = []
        self.names: dict[int, str] = {}  # by the id of a tensor
        self._seen: dict[int, Any] = {}
        waiting = collections.deque([("", function)])
        waiting.extendleft((f"kwargs[{key!r}]", value) for key, value in kwargs.items())
        waiting.extendleft((f"args[{i}]", value) for i, value in reversed(list(enumerate(args))))
        while waiting and len(self._seen) < _LIMIT:
            name, value = waiting.popleft()
            if isinstance(value, Tensor):
                self.names.setdefault(id(value), name)
            elif id(value) not in self._seen and not isinstance(value, _PLAIN):
                self._seen[id(value)] = value
                waiting.extend(self._inside(name, value))

    def restore(self) -> None:
        """Restore all containers."""
        for kept in self.kept:
            kept.restore()

    def _keep(self, name: str, value: Any, read: Callable[[], dict], write: Callable[[dict], None]) -> dict:
        kept = Kept(name, value, read, write)
        self.kept.append(kept)
        return kept.before

    def _inside(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield the values in a value, with their names."""
        if isinstance(value, (list, collections.deque)):
            for key, item in self._keep(name, value, *_of_list(value)).items():
                yield f"{name}[{key}]", item
        elif isinstance(value, dict):
            for key, item in self._keep(name, value, *_of_dict(value)).items():
                yield f"{name}[{key!r}]" if isinstance(key, (str, int)) else f"{name}[...]", item
        elif isinstance(value, set):
            self._keep(name, value, *_of_set(value))
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                yield f"{name}[{i}]", item
        elif isinstance(value, types.FunctionType):
            yield from self._in_function(value)
        elif isinstance(value, types.MethodType):
            yield "", value.__func__
            yield name or "self", value.__self__
        elif isinstance(value, functools.partial):
            yield name, value.func
            yield f"{name}.args", value.args
            yield f"{name}.keywords", value.keywords
        elif isinstance(value, type):
            if may_change(value):
                for key, item in self._keep(value.__qualname__, value, *_of_class(value)).items():
                    yield f"{value.__qualname__}.{key}", item
        elif _is_internal(type(value)):
            if hasattr(value, "_function"):  # a compiled function
                yield name, value._function
        else:
            yield from self._in_object(name, value)

    def _in_function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        yield from self._keep("the closure", function, *_of_cells(cells)).items()
        yield from self._keep("the globals", function, *_of_globals(function)).items()
        yield f"{function.__name__}'s defaults", function.__defaults__
        yield f"{function.__name__}'s defaults", function.__kwdefaults__
        if function.__dict__:
            yield function.__name__, function.__dict__

    def _in_object(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            for key, item in self._keep(name, value, *_of_dict(attributes)).items():
                yield f"{name}.{key}", item
        slots = _slots(type(value))
        if slots and may_change(type(value)):
            for key, item in self._keep(name, value, *_of_slots(value, slots)).items():
                yield f"{name}.{key}", item
        yield "", type(value)


_PLAIN = (int, float, complex, str, bytes, type(None), types.ModuleType, types.BuiltinFunctionType, jax.Array)
# Objects of these modules do not count, or restore themselves.
_INTERNAL = (
    "xgrad.compiler.", "xgrad.engine.", "xgrad.ops.", "xgrad.views.", "xgrad.random.", "jax.", "jaxlib.", "numpy.",
)  # fmt: skip
_STDLIB = "threading.", "_thread.", "logging."


def _is_internal(kind: type) -> bool:
    name = f"{kind.__module__}."
    return name.startswith(_STDLIB) or (name.startswith(_INTERNAL) and is_our_class(kind))


def _slots(kind: type) -> list[str]:
    """Return the slots of instances, but for those that a subclass hides by a property, as Python 3.13's paths do."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        # A class without __slots__ is C code's, and Python may not write its members.
        members = types.MemberDescriptorType if "__slots__" in vars(base) else ()
        for name, item in vars(base).items():
            found.setdefault(name, isinstance(item, members))
    return [name for name, is_slot in found.items() if is_slot]


def _of_list(value: Any) -> tuple[Callable, Callable]:
    def write(before: dict) -> None:
        value.clear()
        value.extend(before.values())

    return lambda: dict(enumerate(value)), write


def _of_dict(value: dict) -> tuple[Callable, Callable]:
    # A subclass of the user's may refuse writes, so the base's methods write; only an OrderedDict needs its own.
    kind: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict

    def write(before: dict) -> None:
        kind.clear(value)
        kind.update(value, before)

    return lambda: dict(dict.items(value)), write


def _of_set(value: set) -> tuple[Callable, Callable]:
    def write(before: dict) -> None:
        value.clear()
        value.update(before)

    return lambda: {item: item for item in value}, write


def _of_cells(cells: dict[str, Any]) -> tuple[Callable, Callable]:
    def read() -> dict:
        found = {}
        for name, cell in cells.items():
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        return found

    def write(before: dict) -> None:
        for name, cell in cells.items():
            if name in before:
                cell.cell_contents = before[name]
            else:
                with_contents = read()
                if name in with_contents:
                    del cell.cell_contents

    return read, write


def _of_globals(function: types.FunctionType) -> tuple[Callable, Callable]:
    names, known = names_in(function.__code__), function.__globals__

    def write(before: dict) -> None:
        for name in names:
            if name in before:
                known[name] = before[name]
            else:
                known.pop(name, None)

    return lambda: {name: known[name] for name in names if name in known}, write


def _of_class(kind: type) -> tuple[Callable, Callable]:
    def read() -> dict:
        return {name: item for name, item in vars(kind).items() if name not in ("__dict__", "__weakref__", "__doc__")}

    def write(before: dict) -> None:
        for name in read().keys() | before.keys():
            if name not in before:
                delattr(kind, name)
            elif vars(kind).get(name, MISSING) is not before[name]:
                setattr(kind, name, before[name])

    return read, write


def _of_slots(value: Any, slots: list[str]) -> tuple[Callable, Callable]:
    def read() -> dict:
        return {name: getattr(value, name) for name in slots if hasattr(value, name)}

    def write(before: dict) -> None:
        for name in slots:
            if name in before:
                object.__setattr__(value, name, before[name])  # works for a frozen dataclass too
            elif hasattr(value, name):
                object.__delattr__(value, name)

    return read, write
