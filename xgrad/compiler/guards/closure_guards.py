"""Surroundings: makes xgrad.compile's guards on a function's arguments, closures, globals and objects in use.

Tensors have guards of their attributes, hooks and class; their values are operands of the program (tensor_guard.py).

Before the trace: the function's own code is looked through, with the Python functions that it names, unless an
installed library defines them; the globals that this code names, closures, defaults, bound objects; and the attributes
of objects that the code names (all of a module's).  `Surroundings` stores their values.  In the trace: the frames that
run, of libraries too, add the names in their code (names_used.py) and the objects that they see (frames.py).  After the
trace: the guards are made (guard.py, containers.py), along the paths by which the function and its arguments lead to
each object; an object without such a path is kept alive by a strong reference.

Not looked into: xgrad, JAX, libraries on JAX, NumPy (code.py).  Not seen: the state of a C extension, files.
"""

import builtins
import functools
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ...tensor import Tensor
from .code import DYNAMIC, globals_in, is_library, is_ours, names_in, not_only_added_to
from .containers import OfContext, OfGroup, OfMapping, OfObject, OfTensor, asks_itself, attributes_of, dict_of, slots_of
from .guard import MISSING, REST, AnyTensor, Container, Equal, EqualArray, EqualBytes, Guard, Path, is_scalar
from .hyperparameters import StandIn
from .iterators_and_clocks import Progress, moves
from .kinds import ITEMS, SKIPPED, holds_tensors, is_library_class, may_change
from .names_used import NONE, Noted
from .namespaces import OfAttributes, OfFixed, OfFunction, OfGlobals, OfImports, OfMethod, OfRoots, OfWrapper

BUILTINS: Any = vars(builtins)
_LIMIT = 50_000  # values that are looked at; all others must be the same objects
_ASKING = frozenset({"state", "state_dict"})  # names in code that may ask an optimizer for its state
_MANY = 256  # entries of a dictionary that library code sees; in a larger one other ways must lead to an entry


class Surroundings(Noted):
    """The guards of a function, its arguments and the objects that it uses, and the containers of the guards."""

    def __init__(self, values: list[Any], function: Any, constants: bool = False) -> None:
        super().__init__()
        self._finding = not constants  # True: numbers of optimizers may be operands
        self._changing = constants  # True: schedules may step in the trace
        self.tensors: list[Tensor] = []  # in the order in which the guards find them
        self.containers: list[Container] = []
        self._values, self._function = values, function
        self._seen: dict[int, Any] = {}
        self._held: list[Any] = []
        # Recorded by frames:
        self._noted: dict[tuple, Any] = {}
        self._met: dict[int, Any] = {}  # objects that frames see, by id
        self._given: set[int] = set()  # ids of the containers among the arguments
        self._memos: list[Any] = []  # caches of functools.lru_cache
        self._owned: set[int] = set()  # ids of objects that belong to a library
        self.kept: list[tuple[Any, ...]] = []  # values that a library's code cached: (put, object, key, value)
        self._asked: set[str] = set()  # the names in code that ran
        self._adopted: list[tuple[dict[Any, Any], Any, Any]] = []
        self._marks = -1
        self.guards: list[Guard] = []
        self.progress: Progress = Progress()
        self.look()
        self._finding = False
        self.progress.begun = True
        self._first = {key: frozenset(used) for key, (_, used) in self._globals.items()}  # guarded names

    # ------------------------------------------------------------ the guards

    def look(self) -> None:
        """Make all guards, until no more names appear: one value's code may name attributes of an earlier value."""
        while True:
            known = self._marked()
            self.tensors, self.containers, self._seen = [], [], {}
            self.guards = [self._guard(value, ()) for value in self._values]
            self.root: OfRoots = OfRoots([self._function])
            self.containers.append(self.root)
            self._root_child(0, self._function)
            done = 0
            while done < len(self._globals):  # a function in a global names more globals
                for names, used in list(self._globals.values())[done:]:
                    self._root_globals(names, frozenset(used))
                    done += 1
            for value in self._held:
                if id(value) not in self._seen:
                    self._root_child(len(self.root.value), value)
            if self._marked() == known:
                self._marks = known
                return

    def _marked(self) -> int:
        """Return the number of stored names and objects.  It only grows."""
        named = len(self._names) + sum(len(used) for _, used in self._globals.values())
        noted = len(self._globals) + len(self._held) + len(self._wholly) + len(self.numbers)
        return named + noted + sum(map(len, self._used.values()))

    def _root_child(self, place: int, value: Any) -> None:
        if place:
            self.root.value.append(value)
        self.root.before[place] = value
        self.root.children.append((place, self._guard(value, (place,))))

    def _root_globals(self, names: dict, used: frozenset[str]) -> None:
        place = len(self.root.value)
        self.root.value.append(names)
        self.root.before[place] = names
        if names is sys.modules:
            found = OfImports(names, (place,), used)
            for name in used.intersection(names):
                self._used.setdefault(id(names[name]), set()).update(self._imports[name])
        else:
            found = OfGlobals(names, (place,), used, self._whole(names))
            if names is not BUILTINS:
                self.name_globals(BUILTINS, found.unset)
        self.containers.append(found)
        self.root.children.append((place, found))
        self._fill(found, (place,))

    def _guard(self, value: Any, path: Path) -> Guard:
        if issubclass(type(value), np.ndarray) and not _has_objects(value):
            return EqualArray(value)
        if asks_itself(type(value)):
            return self._look_into(value, path)
        if isinstance(value, Tensor):
            self.tensors.append(value)
            return self._of_tensor(value, path)
        if is_scalar(value):
            return Equal(value)
        if isinstance(value, EqualBytes.kinds):
            return EqualBytes(value)
        return self._look_into(value, path)

    def _of_tensor(self, value: Tensor, path: Path) -> Guard:
        """Return the guard of a tensor: with its attributes and hooks, and its class if it is the user's."""
        whole, kind = self._whole(value), type(value)
        plain = not (attributes_of(value) if whole is None else whole) and not may_change(kind)
        if plain or id(value) in self._seen:
            return AnyTensor()
        self._seen[id(value)] = value
        found = OfTensor(value, path, whole)
        self._before[id(value)] = value, found.before
        self.containers.append(found)
        self._fill(found, path)
        if may_change(kind):
            found.kind = self._guard(kind, ("__class__",))
        return found

    def _look_into(self, value: Any, path: Path) -> Guard:
        if id(value) in self._seen or len(self._seen) > _LIMIT or self._is_log(value):
            return Guard(value)
        self._seen[id(value)] = value
        found = self._container(value, path)
        if found is None:
            if moves(type(value)):
                self.progress.note(value)
            return Guard(value)
        self.containers.append(found)
        self._fill(found, path)
        if isinstance(found, OfGroup):
            self.tensors.append(self.numbers[id(value)].tensor(value))
            return found
        whole = isinstance(found, (OfObject, OfFixed, OfWrapper, OfContext)) or isinstance(value, types.MethodType)
        rest = None
        if isinstance(found, OfFunction):
            rest = self._function_attributes(value, (*path, REST))
        elif not whole and (slots_of(type(value)) or dict_of(value) or _may_get_attributes(value)):
            rest = OfObject(value, (*path, REST), self._of(value), self._names)
        if rest is not None:
            found.rest = rest
            self.containers.append(rest)
            self._fill(rest, (*path, REST))
        if not isinstance(found, (OfFixed, OfFunction, OfMethod)) and may_change(type(value)):
            found.kind = self._guard(type(value), ("__class__",))
        return found

    def _fill(self, found: Container, path: Path) -> None:
        hooks = isinstance(found, OfTensor)
        for key, item in found.before.items():
            if hooks and key.__class__ is tuple and id(getattr(item, "__code__", None)) not in self._ran:
                found.children.append((key, Guard(item)))  # a hook that has run only outside may do as it likes
            elif found.looks(key):
                found.children.append((key, self._guard(item, (*path, key))))

    def forget_memos(self, made: Callable[[Any], bool]) -> None:
        """Clear the caches of functools.lru_cache that contain tensors of the trace; `made` recognizes these
        tensors."""
        for memo in self._memos:
            if any(map(made, gc.get_referents(memo))):
                memo.cache_clear()

    # ------------------------------------------------------------ recording, called by frames

    def ran(self, code: types.CodeType, names: dict[Any, Any] | None) -> None:
        """Record code that runs in the trace, and its module's globals."""
        self._ran[id(code)] = code
        if names is not None:
            used = globals_in(code)
            self._asked |= names_in(code)
            self.name_globals(names, used)
            self._name_imports(names, code)
            self._before.setdefault(id(names), (names, dict(names)))
            named = names_in(code)
            for name in used:
                value = names.get(name)
                if type(value) in (list, dict, set) and name in not_only_added_to(code):
                    self.variable(value, name, code)
                self.note(value, named, not DYNAMIC.isdisjoint(named))

    def variable(self, value: Any, name: str, code: types.CodeType) -> None:
        """Record the variable in which code has a container."""
        self._variables.setdefault(id(value), set()).add((name, id(code)))

    def note(self, value: Any, names: frozenset[str], wholly: bool, library: bool = False) -> None:
        """Record an object that code sees, with the attributes that the code names, or all of them if `wholly`.

        `library`: True if a list, say, belongs to a library.
        """
        waiting = [(value, wholly, library)]
        while waiting:
            value, wholly, library = waiting.pop()
            itself = asks_itself(type(value))
            if not itself and is_scalar(value):
                continue
            if type(value) is StandIn:
                continue
            if moves(type(value)):
                self.progress.note(value)
                continue
            if not itself and _is_skipped(value):
                if isinstance(value, Tensor) and may_change(type(value)):
                    waiting.append((type(value), False, library))
                continue
            key = id(value), id(names), wholly
            if key in self._noted:
                continue
            self._noted[key] = value
            kind = type(value)
            if kind is types.FunctionType:
                waiting += self._note_function(value, names, wholly)
                continue
            if kind is types.MethodType:
                waiting.append((value.__self__, wholly, library))
                continue
            before = self._whole(value)
            if before is None:
                found = self._container(value, ())
                if found is None:
                    continue
                before = self._before[id(value)][1]
            self._met.setdefault(id(value), value)
            library = is_library_class(kind) if kind.__module__ != "builtins" else library
            if library:
                self._owned.add(id(value))
            fixed = issubclass(kind, (type, types.ModuleType))
            named = fixed or itself or not issubclass(kind, ITEMS)
            if named or dict_of(value) or _may_get_attributes(value):
                self._used.setdefault(id(value), set()).update(names)
                if wholly and not fixed:
                    self._wholly.add(id(value))
            if kind is functools._lru_cache_wrapper:
                self._memos.append(value)
                waiting += [(item, wholly, library) for item in gc.get_referents(value)]
            classes = (*value.__mro__[1:], kind) if issubclass(kind, type) else (kind,)
            waiting += [(base, False, library) for base in classes if may_change(base)]
            for name, item in before.items() if named or len(before) <= _MANY else ():
                if not named or name in names:
                    waiting.append((item, wholly, library))
                elif wholly and not fixed:
                    waiting.append((item, False, library))

    def _note_function(self, value: Any, names: frozenset[str], wholly: bool) -> list[tuple[Any, bool, bool]]:
        """Store a function that code sees; return its attributes that must be stored too."""
        if is_ours(value.__globals__):
            return []
        _, before = self._attributes.setdefault(id(value), (value, dict(vars(value))))
        self._used.setdefault(id(value), set()).update(names)
        if wholly:
            self._wholly.add(id(value))
        if library := is_library(value.__globals__):
            self._owned.add(id(value))
        if before:
            self._met.setdefault(id(value), value)
        return [(item, wholly, library) for name, item in before.items() if wholly or name in names]

    def given(self, nodes: list[Any]) -> None:
        """Record the containers among the arguments: only their leaves have guards."""
        self._given = {id(node) for node in nodes}

    def changed(self, is_new: Any) -> list[Container]:
        """Return the containers that the function changed among objects without guards, which only frames saw."""
        found = []
        owners = {id(dict_of(c.value)): c for c in self.containers if isinstance(c, OfObject) and c.own}
        for key, (value, before) in list(self._before.items()):
            if key in self._globals:
                container = OfGlobals(value, (), frozenset(self._globals[key][1] - self._first.get(key, NONE)), before)
            elif key not in self._met or key in self._given:
                continue
            elif key not in self._seen or issubclass(type(value), type):
                container = None if self._is_log(value) else self._made(value, (), before)
            else:
                continue
            if container is None or isinstance(container, OfTensor):
                continue
            owner = owners.get(key)  # whose attributes the dictionary holds: its guard finds changes of these
            if any(owner is None or not owner.looks(name) for name, *_ in container.changes()):
                found.append(container)
        for key, (value, before) in self._attributes.items():
            if key not in self._seen and key not in self._given and before != vars(value):
                found.append(OfAttributes(value, (), None, NONE, before))
        new = is_new([container.value for container in found])
        return [c for c in found if id(c.value) not in new]

    def keeps(self, container: Container, key: Any, was: Any, now: Any) -> bool:
        """Return True if a change is a library's cache, to be put in place once the program has been found.

        The next call sees it and is traced again: a cache may change the function's results.
        """
        names = container.value
        library = is_library(names) if isinstance(container, OfGlobals) else id(names) in self._owned
        if not library or (was is not MISSING and was is not None) or holds_tensors(now):
            return False
        self.kept.append((container.put, container.value, key, now))
        return True

    def asks(self, names: frozenset[str]) -> bool:
        """Return True if code that ran has one of the names."""
        return not names.isdisjoint(self._asked)

    def saw_numbers(self) -> bool:
        """Return True if code that ran could read a group of an optimizer."""
        return "param_groups" in self._names or not self._met.keys().isdisjoint(self.numbers)

    def adopt(self, owner: Any, key: Any, item: Any) -> None:
        """Take a new item of a dictionary, or attribute of an object, for one that was there before.

        Not if the function may have missed it there.  The caller puts it in its place.
        """
        seen = isinstance(owner, dict) or id(owner) in self._wholly or key in self._used.get(id(owner), NONE)
        if self.asks(_ASKING) or (seen and id(owner) in self._met):
            return
        names, kind = (owner, OfMapping) if isinstance(owner, dict) else (vars(owner), OfObject)
        known = self._before.get(id(owner))
        was = MISSING if known is None else known[1].get(key, MISSING)
        self._adopted.append((names, key, was))
        if known is not None:
            known[1][key] = item
        for container in self.containers:
            if container.value is owner and isinstance(container, kind):
                container.before[key] = item
                if was is MISSING and isinstance(container, OfMapping):
                    container.keys.append(key)

    def disown(self) -> None:
        """Remove what was adopted: the trace has failed."""
        for names, key, was in self._adopted:
            if was is MISSING:
                names.pop(key, None)
            else:
                names[key] = was

    # ------------------------------------------------------------ after the trace

    def finish(self, is_new: Any) -> None:
        """Make the guards again, with the frames' records.  `is_new(values)`: ids of objects that the trace made."""
        met = [value for key, value in self._met.items() if key not in self._seen and key not in self._given]
        functions = self._functions()
        new = is_new([*met, *functions]) | self._drop_globals(is_new)
        for item in (item for memo in self._memos for item in gc.get_referents(memo) if id(item) in new):
            if not holds_tensors(item):  # made in the trace, and not tied to it
                new.discard(id(item))
                self._before.pop(id(item), None)
        self._held = [v for v in [*functions, *met] if id(v) not in new and not issubclass(type(v), types.ModuleType)]
        self.look()

    def _drop_globals(self, is_new: Any) -> set[int]:
        """Drop dictionaries that the function made, as globals for exec(); return their ids."""
        new = is_new([names for names, _ in self._globals.values() if not _is_of_module(names)])
        self._globals = {key: noted for key, noted in self._globals.items() if key not in new}
        return new

    def look_again(self, is_new: Any) -> None:
        """Make the guards again in the trace, with what frames have recorded so far."""
        self._drop_globals(is_new)
        self.look()

    def _functions(self) -> list:
        """Return functions that ran and have no guard yet, if their code uses a closure."""
        nested = {id(const) for code in self._ran.values() for const in code.co_consts}
        known = {id(v.__code__) for v in self._seen.values() if type(v) is types.FunctionType}
        codes = [
            code for key, code in self._ran.items()
            if code.co_freevars and key not in nested and key not in known
        ]  # fmt: skip
        if not codes:
            return []
        return [f for f in gc.get_referrers(*codes) if isinstance(f, types.FunctionType)]

    def restore(self, is_new: Any) -> None:
        """Restore the containers' content."""
        for container in (*self.changed(is_new), *self.containers):
            container.restore()


def _may_get_attributes(value: Any) -> bool:
    """Return True for an object whose class may have defaults of attributes that it lacks."""
    return dict_of(value) is not None and may_change(type(value))


def _is_skipped(value: Any) -> bool:
    """Return True for a value into which guards do not look: one of `SKIPPED`, but for arrays of objects."""
    return isinstance(value, SKIPPED) and not _has_objects(value)


def _has_objects(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.hasobject


def _is_of_module(names: dict) -> bool:
    """Return True if a dictionary is the globals of an imported module."""
    module = sys.modules.get(str(names.get("__name__")))
    return names is sys.modules or (module is not None and names is getattr(module, "__dict__", None))
