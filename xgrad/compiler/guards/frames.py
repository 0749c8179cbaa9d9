"""Frames: records the objects that Python code reads while `xgrad.compile` traces it, for the guards.

Python frames read the values that a function depends on.  A profiler of this thread (`sys.setprofile`) gets each frame:
its code has the names of the globals and attributes that it uses; its arguments, its closure and the results of its
calls are the objects that it may ask.  `Surroundings` (closure_guards.py) makes guards of them.  Of xgrad's modules
with state (`STATEFUL` in code.py: xgrad.nn, ...) only the calls' arguments are recorded.  Frames of the rest of xgrad,
of JAX and other packages that code.py lists, and frames of the standard library that these call, are skipped.  That
takes up to 1 µs for each of their events, so operators and steps that run no code of a user's are not seen at all
(`unseen` in base/limits.py).

`_New` finds the objects that the trace made; Python's garbage collector is off meanwhile, in the whole process.
"""

import gc
import itertools
import os
import sys
import threading
import types
import weakref
from inspect import CO_GENERATOR
from typing import Any

from .closure_guards import Surroundings
from .code import DYNAMIC, IGNORED, LOOKED_AT, READING, STDLIB, is_ours, kind_of, names_in
from .kinds import is_read
from .names_used import NONE

_COMPILER = os.path.dirname(os.path.dirname(__file__))
_PACKAGE = os.path.dirname(_COMPILER) + os.sep
_TRACE = os.path.join(_COMPILER, "trace_function.py")


class Frames:
    """Looks at the frames of this thread during a trace.  A profiler that was set before goes on after it.

    The caller of `start` and `watch` calls `stop` and `unwatch`, twice if an interrupt comes in the first call.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._kinds: dict[str, int] = {}  # by file name
        self._codes: dict[int, tuple[types.CodeType, frozenset[str], bool]] = {}
        self._new = _New()
        self._collector: set[types.CodeType] = _FORGETTING
        self._previous: Any = None
        self._seeing = False
        self.asks_types: bool = False  # True if code of the user's that ran names `type`

    def start(self) -> None:
        """Begin the time in which `is_new` can recognize new objects."""
        self._new.start()

    def stop(self) -> None:
        """End that time.  May be called twice."""
        self._new.stop()

    def watch(self) -> None:
        """See frames from now on."""
        # A collection may come at any allocation: what its callbacks read and change is not the function's.
        self._collector = _FORGETTING.union(*map(_codes_of, gc.callbacks))
        self._previous = sys.getprofile()
        self._seeing = True
        see, kind_of_file = self._see, self._kinds.get

        def seen(frame: Any, event: str, arg: Any) -> None:
            if kind_of_file(frame.f_code.co_filename) != IGNORED:  # nearly all frames of a trace are JAX's
                see(frame, event, arg)

        if not callable(self._previous):
            seen.may_pause = True  # pyright: ignore[reportFunctionMemberAccess] - limits.py asks
        sys.setprofile(seen)

    def unwatch(self) -> None:
        """See no more frames.  May be called twice."""
        previous: Any = self._previous
        if self._seeing:
            sys.setprofile(previous if callable(previous) else None)
            self._seeing = False
        if previous is not None and not callable(previous):  # cProfile's, which is not a function
            self._previous = None
            previous.enable()

    def is_new(self, values: list[Any]) -> set[int]:
        """Return the ids of those values that were made since `start`."""
        return self._new.among(values)

    def _see(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if code in self._collector:
            return
        kind = self._kind(frame)
        if kind == READING:
            for value in frame.f_locals.values() if event == "call" else ():
                if is_read(type(value)):
                    self._around.note(value, NONE, True)
            return
        if kind == IGNORED or (kind == STDLIB and self._is_called_by_ignored(frame)):
            return
        if callable(self._previous):
            self._previous(frame, event, arg)
        known = self._codes.get(id(code))
        if known is None:
            if _is_of_import(frame):
                return
            names = names_in(code)
            known = self._codes[id(code)] = code, names, not DYNAMIC.isdisjoint(names)
            self.asks_types = self.asks_types or (kind == LOOKED_AT and "type" in names)
            self._around.ran(code, frame.f_globals if kind == LOOKED_AT else None)
        _, names, wholly = known
        note = self._around.note
        if event == "call" and code.co_flags & CO_GENERATOR:
            self._around.progress.resumed(frame)
        if event in ("call", "return"):
            for name, value in frame.f_locals.items():
                if type(value) in _COLLECTING:
                    self._around.variable(value, name, code)
                note(value, names, wholly)
        if event == "return":
            note(arg, names, False)
            caller = frame.f_back
            if caller is not None and arg is not None:
                known = self._codes.get(id(caller.f_code))
                if known is not None:
                    note(arg, known[1], known[2])
        elif event == "c_call":
            owner = getattr(arg, "__self__", None)
            self._around.progress.called(arg, owner, frame)
            if arg is gc.collect:
                self._new.before_collection()
            if owner is not None and type(owner) is not types.ModuleType:
                note(owner, names, wholly)
        elif event == "c_return" and arg is gc.collect:
            self._new.after_collection()

    def _kind(self, frame: Any) -> int:
        """Return the kind of a frame's file; of xgrad's own code in a user's file IGNORED.

        A public function's code stands where that is declared (dispatch/public_code.py).
        """
        file = frame.f_code.co_filename
        kind = self._kinds.get(file)
        if kind == IGNORED:
            return IGNORED
        if not file.startswith(_PACKAGE) and is_ours(frame.f_globals):
            return IGNORED
        if kind is None:
            kind = kind_of(frame)
            if file[:1] != "<":  # "<string>": code made at run time, for any module
                self._kinds[file] = kind
        return kind

    def _is_called_by_ignored(self, frame: Any) -> bool:
        """Return True if a frame of the standard library is called by an ignored package, JAX for example."""
        while frame is not None:
            kind = self._kind(frame)
            if kind != STDLIB:
                return kind == IGNORED
            frame = frame.f_back
        return True


def _is_of_import(frame: Any) -> bool:
    """Return True for a frame of an import within the trace: it runs once in a process, and not in later calls."""
    while frame is not None and frame.f_code.co_filename != _TRACE:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _codes_of(callback: Any) -> list[types.CodeType]:
    """Return the code of a function, of a method, or of the `__call__` of another object; nothing for C functions."""
    code = getattr(callback, "__code__", None) or getattr(type(callback).__call__, "__code__", None)
    return [] if code is None else [code]


_COLLECTING = (list, dict, set)

# The callbacks by which weak containers forget objects that are gone. A collection runs the callbacks of any container
# in the process; the function's own containers are guarded where it reads them.
_WEAK: Any = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
_FORGETTING: set[types.CodeType] = {kind()._remove.__code__ for kind in _WEAK}


class _New:
    """Finds the objects that were made in a block: the young generation of the collector, which is off meanwhile."""

    _started = False

    def start(self) -> None:
        global _open, _enabled
        with _lock:
            first = _open == 0
            _open, self._started = _open + 1, True
            if first:
                gc.collect(0)  # older objects leave the young generation
                _enabled = gc.isenabled()
                gc.disable()
                self._older: set[int] = set()
            else:  # another thread traces: its objects stay young
                self._older = _young()
            self._collected = _collections()
            self._younger: set[int] = set()

    def stop(self) -> None:
        global _open
        with _lock:
            if self._started:
                _open, self._started = _open - 1, False
            if _open == 0 and _enabled:
                gc.enable()

    def before_collection(self) -> None:
        """Remember the young objects: the function is about to run the collector."""
        if _collections() == self._collected:
            self._younger.update(_young())

    def after_collection(self) -> None:
        """Go on after the function's collection: objects that are neither remembered nor young are older."""
        self._collected = _collections()

    def among(self, values: list[Any]) -> set[int]:
        """Return the ids of the new values."""
        if not values:
            return set()
        if _collections() != self._collected:  # another thread has collected: all values count as new
            return {id(value) for value in values}
        young = (self._younger | _young()) - self._older
        # Small objects may be untracked.
        return {id(value) for value in values if _identity(value) in young or not gc.is_tracked(value)}


_lock = threading.RLock()  # a signal handler or a finalizer may trace in the middle of it
_open = 0  # the number of open blocks in all threads
_enabled = True  # True if the collector was on before the first block


_identity = object.__hash__  # identifies an object as `id` does, but raises no audit event


def _young() -> set[int]:
    """Return the identities of the collector's young objects.

    One C call makes and consumes the list of objects, so that no other thread runs while the list lives. The list
    refers to tuples that another thread is still building, and CPython cannot resize a tuple with two references:
    the other thread's `tuple(generator)` would raise `SystemError: bad argument to internal function`.  `id` would not
    do here: each call of it runs the process's audit hooks, which may be Python functions.
    """
    return set(map(_identity, itertools.chain.from_iterable(map(gc.get_objects, (0,)))))


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())
