"""Progress: finds the iterators, clocks and random numbers that a traced function uses, which no guard can test.

A function that advances an iterator from outside is refused.  A clock and random numbers are constants of the
program, and a warning says so.
"""

import functools
import gc
import os
import random
import sys
import time
import types
import warnings
import weakref
from collections.abc import Callable
from datetime import date
from typing import Any

import numpy as np

from .kinds import IMMUTABLE

_MODULES = ("builtins", "itertools", "collections", "_collections")
# How to read the state of NumPy's generators.
_STATES: dict[str, Callable] = {
    "random_raw": lambda value: value.state,
    "bit_generator": lambda value: value.bit_generator.state,
    "get_state": lambda value: value.get_state(legacy=False),
}
_CLOCKS = frozenset(
    getattr(time, name)
    for name in ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
                 "process_time_ns", "thread_time", "thread_time_ns", "localtime", "gmtime", "ctime", "strftime")
    if hasattr(time, name)
) | {os.urandom}  # fmt: skip
_RANDOM = frozenset({"random", "secrets", "uuid"})  # modules whose callers' lines are reported, in place of their own


@functools.lru_cache(maxsize=4096)
def moves(kind: type[Any]) -> bool:
    """Return True if C code advances a class's objects: iterators, and generators of random numbers."""
    module = str(kind.__module__)
    if module.startswith("numpy.random."):
        return any(hasattr(kind, name) for name in _STATES)
    return module in _MODULES and bool(kind.__flags__ & IMMUTABLE) and hasattr(kind, "__next__")


@functools.lru_cache(maxsize=4096)
def _draws(kind: type) -> bool:
    return issubclass(kind, random.Random)


class Progress:
    """The objects of a trace that advance, and their states at the first look."""

    def __init__(self) -> None:
        self.begun = False  # True while frames of the function run
        self._met: dict[int, tuple[Callable, Any, bool]] = {}  # by id: (a reference, its state, True if from outside)
        self._frames: dict[int, Callable] = {}  # references to generators, by the id of their frame
        self._lines: dict[int, str] = {}  # the line that advanced a generator, by its id
        self._inputs: list[tuple[str, Any, str]] = []  # (name of the call, the object that draws, line)
        if "numpy.random" in sys.modules:
            self.note(np.random.get_bit_generator())  # pyright: ignore[reportAttributeAccessIssue]

    def note(self, value: Any) -> None:
        """Record an object that advances (`moves`)."""
        known = self._met.get(id(value))
        if known is not None and known[0]() is value:
            return
        # Weak: a generator runs its `finally` when its last reference goes.
        reference = weakref.ref(value) if isinstance(value, types.GeneratorType) else lambda: value
        self._met[id(value)] = reference, _state(value), not self.begun
        if isinstance(value, types.GeneratorType) and value.gi_frame is not None:
            self._frames[id(value.gi_frame)] = reference

    def resumed(self, frame: Any) -> None:
        """Record that a generator's frame runs on."""
        reference = self._frames.get(id(frame))
        generator = None if reference is None else reference()
        if generator is not None and generator.gi_frame is frame:
            self._lines[id(generator)] = _line(frame.f_back)

    def called(self, function: Any, owner: Any, frame: Any) -> None:
        """Store a call of C code that reads a clock or draws random numbers."""
        kind = type(owner)
        if kind is types.ModuleType:
            if function not in _CLOCKS:
                return
            name, owner = f"{owner.__name__}.{function.__name__}()", None
        elif kind is type:
            if not issubclass(owner, date) or function.__name__ not in ("now", "today", "utcnow"):
                return
            name, owner = f"{owner.__name__}.{function.__name__}()", None
        elif _draws(kind) and function.__name__ in ("random", "getrandbits"):
            name = "random numbers of Python"
        else:
            return
        while frame is not None and frame.f_globals.get("__name__") in _RANDOM:
            frame = frame.f_back
        if frame is None or str(frame.f_globals.get("__name__")).partition(".")[0] in sys.stdlib_module_names:
            return  # such as a temporary file's name
        self._inputs.append((name, owner, _line(frame)))

    def advanced(self, is_new: Callable[[list[Any]], set[int]]) -> str | None:
        """Return in words an iterator from outside that the function advanced, or None."""
        found = [(value, outside) for value, outside in self._moved() if hasattr(value, "__next__")]
        new = is_new([value for value, outside in found if not outside])
        for value, _ in found:
            if id(value) not in new:
                name = getattr(value, "__name__", None)
                what = f"the generator {name}" if name else f"a {type(value).__name__}"
                return what + self._lines.get(id(value), "")
        return None

    def warn(self, is_new: Callable[[list[Any]], set[int]]) -> None:
        """Warn once of clocks and random numbers that are constants of the program."""
        drawn = [(value, outside) for value, outside in self._moved() if not hasattr(value, "__next__")]
        found = self._inputs
        new = is_new([value for value, outside in drawn if not outside] + [owner for _, owner, _ in found])
        said = [name + line for name, owner, line in found if owner is None or id(owner) not in new]
        said += ["random numbers of NumPy" for value, _ in drawn if id(value) not in new]
        said = list(dict.fromkeys(said))
        if said:
            more = f", and {len(said) - 1} more" if len(said) > 1 else ""
            warnings.warn(_CONSTANT.format(said[0] + more), UserWarning, stacklevel=2)

    def _moved(self) -> list[tuple[Any, bool]]:
        """Return the objects that advanced, each with True if it was found before the function ran."""
        found = []
        for key, (reference, state, outside) in list(self._met.items()):
            value = reference()
            if value is not None and (key in self._lines or _state(value) != state):
                found.append((value, outside))
        return found


def _state(value: Any) -> Any:
    """Return an iterator's or a generator's state."""
    kind = type(value)
    if kind is types.GeneratorType:
        return None if value.gi_frame is None else value.gi_frame.f_lasti
    for name, state in _STATES.items():
        if hasattr(kind, name):
            return _comparable(state(value))
    if hasattr(kind, "__length_hint__"):
        try:
            return value.__length_hint__()
        except TypeError:  # itertools.repeat, without an end
            return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 and 3.13 say that 3.14 cannot do that
            parts = _parts(value.__reduce__(), 3)
    except Exception:
        parts = None
    inner = [
        (id(item), _state(item)) for item in gc.get_referents(value) if type(item) is not kind and moves(type(item))
    ]
    return repr(value) if kind.__name__ == "count" else parts, inner


def _comparable(state: Any) -> Any:
    """Return a generator's state as numbers and bytes."""
    if isinstance(state, dict):
        return {name: _comparable(part) for name, part in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else repr(state)


def _parts(value: Any, depth: int) -> Any:
    """Return the numbers and iterators' states in the result of `__reduce__`."""
    if isinstance(value, tuple) and depth:
        return [_parts(item, depth - 1) for item in value]
    if isinstance(value, int):
        return value
    return _state(value) if moves(type(value)) else type(value)


def _line(frame: Any) -> str:
    return "" if frame is None else f" ({frame.f_code.co_filename}, line {frame.f_lineno}, in {frame.f_code.co_name})"


_CONSTANT = (
    "xgrad.compile: the function uses {}, which is a constant of the program now: each call gets what the first one "
    "got. Read it outside and give it as a tensor; xgrad.rand and its kind draw in each call."
)
ADVANCED = (
    "xgrad.compile: the function advances {}, which was made outside, and a compiled program cannot repeat that. Call "
    "next() outside and give what it gives as an argument, or make the iterator inside of the function."
)
