"""Frames: the Python code that runs in a trace, wherever it lies, and the objects that it sees.

What a function reads is read by Python frames.  A profiler of this thread (`sys.setprofile`) is told of each: its code
says which globals and attributes it names, and its arguments, its closure and what its calls give, which objects it may
ask.  `Surroundings` makes guards of it.  Frames of xgrad, JAX and NumPy, and what these call of the standard library,
are passed over: 0.1 µs for each call of theirs, a few percent of what XLA takes to compile the program.
"""

import gc
import sys
import threading
import types
from inspect import CO_GENERATOR
from typing import Any

from .code import DYNAMIC, IGNORED, LOOKED_AT, STDLIB, kind_of, names_in
from .surroundings import Surroundings


class Frames:
    """Looks at the frames of this thread, for the time of a trace.  A profiler that was there before goes on after it.

    Who calls `start` and `watch` calls `stop` and `unwatch`, twice if an interrupt comes in the first.
    """

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._kinds: dict[str, int] = {}  # by the name of the file
        self._codes: dict[int, tuple[types.CodeType, frozenset[str], bool]] = {}
        self._new = _New()
        self._previous: Any = None
        self._seeing = False

    def start(self) -> None:
        """Begin the time in which something may be asked to be new."""
        self._new.start()

    def stop(self) -> None:
        """End it.  May be done again."""
        self._new.stop()

    def watch(self) -> None:
        """See frames from now on."""
        self._previous = sys.getprofile()
        self._seeing = True
        see, kind_of_file = self._see, self._kinds.get

        def seen(frame: Any, event: str, arg: Any) -> None:
            if kind_of_file(frame.f_code.co_filename) != IGNORED:  # nearly all that a trace runs is JAX's
                see(frame, event, arg)

        sys.setprofile(seen)

    def unwatch(self) -> None:
        """See no more frames.  May be done again."""
        previous: Any = self._previous
        if self._seeing:
            sys.setprofile(previous if callable(previous) else None)
            self._seeing = False
        if previous is not None and not callable(previous):  # cProfile's, which is no function
            self._previous = None
            previous.enable()

    def is_new(self, values: list) -> set[int]:
        """The ids of those among values that were made since the block was entered."""
        return self._new.among(values)

    def _see(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        file = code.co_filename
        kind = self._kinds.get(file)
        if kind is None:
            kind = kind_of(frame)
            if file[:1] != "<":  # made at run time: of any module
                self._kinds[file] = kind
        if kind == IGNORED or (kind == STDLIB and self._is_called_by_ignored(frame)):
            return
        if callable(self._previous):
            self._previous(frame, event, arg)
        known = self._codes.get(id(code))
        if known is None:
            names = names_in(code)
            known = self._codes[id(code)] = code, names, not DYNAMIC.isdisjoint(names)
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

    def _is_called_by_ignored(self, frame: Any) -> bool:
        """Whether a frame of the standard library's is run for JAX, say, and not for the function."""
        while frame is not None:
            file = frame.f_code.co_filename
            kind = self._kinds.get(file)
            if kind is None:
                kind = kind_of(frame)
                if file[:1] != "<":
                    self._kinds[file] = kind
            if kind != STDLIB:
                return kind == IGNORED
            frame = frame.f_back
        return True


_COLLECTING = (list, dict, set)


class _New:
    """Tells what was made in a block: what the garbage collector, which rests meanwhile, takes for young."""

    _started = False

    def start(self) -> None:
        global _open, _enabled
        with _lock:
            if _open == 0:
                gc.collect(0)  # what is there is not young any more
                _enabled = gc.isenabled()
                gc.disable()
                self._older: set[int] = set()
            else:  # another thread traces: what it has made stays young
                self._older = set(map(id, gc.get_objects(generation=0)))
            _open, self._started = _open + 1, True
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
        """Remember what is young, for the function collects itself."""
        if _collections() == self._collected:
            self._younger.update(map(id, gc.get_objects(generation=0)))

    def after_collection(self) -> None:
        """Go on: what has not been remembered and is not young is from outside."""
        self._collected = _collections()

    def among(self, values: list) -> set[int]:
        """The ids of those that are new."""
        if not values:
            return set()
        waiting = {id(value) for value in values}
        if _collections() != self._collected:  # another thread has collected: nothing can be said, or held
            return waiting
        young = self._younger.union(map(id, gc.get_objects(generation=0)))
        found = waiting.intersection(young) - self._older
        return found | {id(value) for value in values if not gc.is_tracked(value)}  # small, and nothing tells


_lock = threading.Lock()
_open = 0  # blocks, of all threads
_enabled = True  # whether the collector was, before the first of them


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())
