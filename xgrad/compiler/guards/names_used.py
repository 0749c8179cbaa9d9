"""Noted: collects the names that a traced function's code uses, and makes xgrad.compile's guards of objects from them.

It is the base class of `Surroundings` (closure_guards.py), which finds the objects.

The guard of a module, an object or a list is a `Container` (guard.py), and compares what code can see.  In a module
it compares the globals that code names; in an object the attributes that code names, or all attributes where code
asks for them without a name (`vars(obj)`).  The set of names grows while code is looked through
(closure_guards.py) and while frames run (frames.py), so an object's guard is made again once more names are known;
`before` is the object's content at the first look.
"""

import functools
import io
import sys
import threading
import types
from typing import Any

import jax
import numpy as np

from .code import globals_in, imports_in, is_library, is_notebook, is_our_class, is_ours, names_in, not_only_added_to
from .containers import OfArray, OfGroup, OfLocal, OfObject, OfSubclass, asks_itself, dict_of, is_scalar_type, slots_of
from .guard import Container, Path
from .hyperparameters import HyperparameterGuard, Hyperparameters, ReportedNumbers, signs
from .kinds import CACHED, CALLED, KINDS, NAMING, PLAIN, bases_of_ours, is_library_class, is_module, is_read, may_change
from .namespaces import OfAttributes, OfFixed, OfFunction, OfMethod, OfWrapper, has

NONE: frozenset[str] = frozenset()


class Noted:
    """The names that code uses, and the containers that follow from them."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()  # that the function's own code uses
        self._globals: dict[int, tuple[dict, set[str]]] = {}  # by the id of a module's dictionary: it, the names used
        self._imports: dict[str, set[str]] = {}  # by the name of a module: the names in the code that imports it
        self._before: dict[int, tuple[Any, dict]] = {}  # by the id of an object: it, its content at first
        self._attributes: dict[int, tuple[Any, dict]] = {}  # by the id of a function: it, its attributes at first
        self._ran: dict[int, types.CodeType] = {}  # code that ran in the trace, by its id
        self._otherwise: dict[int, set] = {}  # by the id of code: the variables that it does not only append to
        self._variables: dict[int, set] = {}  # by the id of a list: (name, id of code) of its variables
        self._used: dict[int, set[str]] = {}  # by the id of an object: attributes that code asks for by name
        self._wholly: set[int] = set()  # ids of objects whose attributes code asks for in other ways
        self.numbers: dict[int, Hyperparameters] = {}  # by the id of a group of an optimizer
        self._finding = True  # False once no more of these may be added
        self._changing = False  # True if objects of xgrad's are looked into before its code reads them

    def _whole(self, value: Any) -> dict | None:
        """Return the content that an object had at the first look, or None."""
        known = self._before.get(id(value))
        return None if known is None else known[1]

    def _of(self, value: Any) -> frozenset[str] | None:
        """Return the names of an object's attributes that are guarded; None for all."""
        if id(value) in self._wholly or (self._changing and is_read(type(value))):
            return None
        used = self._used.get(id(value))
        return self._names if used is None else self._names | used

    def _container(self, value: Any, path: Path) -> Container | None:
        found = self._made(value, path, self._whole(value))
        if found is not None and id(value) not in self._before:
            self._before[id(value)] = value, dict(found.before)
        return found

    def _made(self, value: Any, path: Path, before: dict | None) -> Container | None:
        kind = type(value)
        if is_notebook(kind.__module__):
            return None
        numbers = self.numbers.get(id(value))
        if numbers is not None:
            found = OfGroup(value, path, before)
            found.rest = HyperparameterGuard(numbers)
            return found
        guards = getattr(kind, "__xgrad_guards__", None)
        if guards is not None:  # the class names the attributes that count
            return OfObject(value, path, guards, NONE, before)
        reads = getattr(kind, "__xgrad_reads__", None)
        if reads is not None:  # the attributes that code of ours reads, besides those that the user's code names
            self._used.setdefault(id(value), set()).update(reads)
            self._look_for_numbers(value)
        if reads is not None or asks_itself(kind):
            return self._object_guard(value, path, before)
        if isinstance(value, types.FunctionType):
            found = self._function_guard(value, path, before)
            return self._function_attributes(value, path) if found is None and id(value) in self._used else found
        if isinstance(value, functools.partial):  # partial(getattr, settings, "lr")
            self._names |= {text for text in value.args if isinstance(text, str)}
            return OfMethod(value, path, before)
        if isinstance(value, types.MethodType):
            return OfMethod(value, path, before)
        if isinstance(value, types.ModuleType):
            if is_ours(vars(value)) or is_our_class(type(value)):  # the modules of `as_torch()` too
                return None
            return OfFixed(value, path, self._names | self._used.get(id(value), NONE), before)
        if isinstance(value, type):
            return self._class_guard(value, path, before)
        if isinstance(value, (property, classmethod)) or (callable(value) and has(value, "__wrapped__")):
            return OfWrapper(value, path, before)
        if value is sys.modules:  # it has the modules that code imports: `OfImports`
            return None
        for of, kinds in KINDS:
            if isinstance(value, kinds):
                return of(value, path, before)
        if isinstance(value, np.ndarray):
            return OfArray(value, path, before)
        if isinstance(value, NAMING):  # attrgetter("lr")
            texts = (text for text in value.__reduce__()[1] if isinstance(text, str))
            self._names |= {name for text in texts for name in text.split(".")}
            return None
        if isinstance(value, jax.Array) or (is_our_class(kind) and not bases_of_ours(kind)):
            return None
        return self._object_guard(value, path, before)

    def _look_for_numbers(self, optimizer: Any) -> None:
        """Add the groups of an optimizer whose numbers may be operands: before the trace, later it is too late."""
        told = getattr(optimizer, "__xgrad_numbers__", None) if self._finding else None
        for one in () if told is None else map(ReportedNumbers._make, told()):
            # Not of a dictionary's subclass, which may have code and attributes.
            if type(one.group) is dict and id(one.group) not in self.numbers and signs(one, one.group) is not None:
                self.numbers[id(one.group)] = Hyperparameters(one)

    def _object_guard(self, value: Any, path: Path, before: dict | None) -> Container | None:
        kind = type(value)
        used = self._of(value)
        if is_module(value):
            return OfObject(value, path, None, self._names | {"forward"}, before)
        if not slots_of(kind) and dict_of(value) is None:
            return None
        missing = self._names if used is None else used
        if issubclass(kind, threading.local):
            return OfLocal(value, path, used, missing, before)
        if any(map(is_scalar_type, kind.__mro__)) or any(base.__module__ == "enum" for base in kind.__mro__):
            return OfSubclass(value, path, used, missing, before)
        return OfObject(value, path, used, missing, before)

    def _function_guard(self, value: Any, path: Path, before: dict | None) -> Container | None:
        code = value.__code__
        if before is not None and ("code of ", value.__name__) not in before:
            before = None  # its code had not run
        if is_ours(value.__globals__):
            return OfWrapper(value, path, before) if has(value, "__wrapped__") else None
        if not is_library(value.__globals__):
            self._names |= names_in(code)
            self.name_globals(value.__globals__, globals_in(code))
            self._name_imports(value.__globals__, code)
        elif id(code) not in self._ran:
            return OfWrapper(value, path, before) if has(value, "__wrapped__") else None
        return OfFunction(value, path, before)

    def _function_attributes(self, value: Any, path: Path) -> Container:
        """Return the guard of a function's attributes, present or added later."""
        names = self._of(value)
        _, before = self._attributes.setdefault(id(value), (value, dict(vars(value))))
        return OfAttributes(value, path, names, self._names if names is None else names, before)

    def _class_guard(self, value: Any, path: Path, before: dict | None) -> Container | None:
        if not may_change(value):
            return None
        names = (self._names | self._used.get(id(value), NONE)) - CACHED
        library, ours = is_library_class(value), bases_of_ours(value)
        for name, item in vars(value).items():
            special = name[:2] == name[-2:] == "__"
            called = name in CALLED or (special and name not in PLAIN)
            ran = id(getattr(getattr(item, "__func__", item), "__code__", None)) in self._ran
            # Most objects were initialized long before.
            if ran or (called and not (library or name == "__init__")):
                names |= {name}
        # Code of ours may ask for these.
        names |= {name for name in vars(value) if name[:2] != "__" and any(hasattr(base, name) for base in ours)}
        return OfFixed(value, path, names, before)

    def name_globals(self, names: dict[Any, Any], used: frozenset[str]) -> None:
        """Add the names of globals that code uses."""
        self._globals.setdefault(id(names), (names, set()))[1].update(used)

    def _name_imports(self, names: dict, code: types.CodeType) -> None:
        """Add the modules that code with the globals `names` imports when it runs."""
        found = imports_in(code, names.get("__package__") or "")
        if found:
            self.name_globals(sys.modules, found)
            for name in found:
                self._imports.setdefault(name, set()).update(names_in(code))

    def _is_log(self, value: Any) -> bool:
        """Return True for a stream of text, and a list that all code only adds to: results do not depend on it."""
        if issubclass(type(value), io.TextIOBase):  # a notebook's sys.stderr is an object of Python's, with buffers
            return True
        variables = self._variables.get(id(value), ())
        for _, code in variables:
            if code not in self._otherwise:
                self._otherwise[code] = not_only_added_to(self._ran[code])
        return bool(variables) and not any(name in self._otherwise[code] for name, code in variables)
