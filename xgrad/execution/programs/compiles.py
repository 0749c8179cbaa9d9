"""Measures how long this process traces and compiles; shows a line in the terminal or notebook while XLA compiles.

JAX says when it begins and ends to trace, to lower and to compile, in the thread that does it.  One of them may happen
within another, whose own seconds are the rest.

Invariant: the line stands in the terminal only while XLA compiles: the thread that ends the last compile erases it.
"""

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, NamedTuple

import jax

from ...base.jax_compat import COMPILED, LOWERED, SAVED, TRACED, xgrad_compiles
from ..source import lines, outside

WAIT, PAUSE = 3.0, 1.0  # seconds of compiling before the line is shown; seconds without that end it
_PHASES = {TRACED: "tracing", LOWERED: "lowering", COMPILED: "compiling"}


class Compile(NamedTuple):
    """The seconds that a program took to compile, or to load if it was `found` in the compile cache, and its line."""

    seconds: float
    program: str
    line: str
    found: bool


class CompileMetrics(NamedTuple):
    """Where the time of first runs went since the process began; printed, a table.

    The seconds of all threads are added, for all programs that JAX compiled, other packages' too.
    """

    programs: int  # compiled, or found in the compile cache
    found: int  # of these, found in the compile cache
    tracing: float  # seconds in which Python ran functions to see their operations
    lowering: float  # seconds in which JAX wrote these down for XLA
    compiling: float  # seconds in which XLA compiled
    loading: float  # seconds that the programs took which were found
    saved: float  # seconds that compiling these had taken, less the time of reading them
    slowest: tuple[Compile, ...]  # the ten that took the longest to compile or to load

    def __str__(self) -> str:
        return "\n".join([
            f"{self.programs} programs, {self.found} of them from the compile cache, which saved {self.saved:.1f} s",
            f"seconds: tracing {self.tracing:.2f}, lowering {self.lowering:.2f}, compiling {self.compiling:.2f}, "
            f"loading {self.loading:.2f}",
            *(f"{s:8.2f} s, {name} at {line}{', from the cache' * found}" for s, name, line, found in self.slowest),
        ])  # fmt: skip


class _Thread(threading.local):
    place: Any = None  # the line for which a thread of a pool compiles
    found = False  # True if the program that the thread compiles was in the cache

    def __init__(self) -> None:
        self.inner: list[float] = []  # for each phase that the thread is in, the seconds of those within it


class Recorder:
    """The compiles of all threads."""

    batch: tuple[int, int] | None = None  # the number of programs before those compiled ahead, and of these
    shown = 0  # characters in the terminal
    watched = False  # True while a thread writes the line
    since = ended = 0.0  # the begin of the first of several compiles without a pause, and the end of the last one

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()  # a signal handler may compile in the middle of it
        self.thread: _Thread = _Thread()
        self.counts: dict[str, Any] = dict.fromkeys(CompileMetrics._fields[:-1], 0)
        self.slowest: list[Compile] = []
        self.active: dict[int, tuple[Any, bool]] = {}  # {thread: (line, True for xgrad's programs)} of running compiles

    def begin(self, event: str, value: float, **_: Any) -> None:
        """JAX begins one of the phases."""
        if event in _PHASES:
            self.thread.inner.append(0.0)
        if event == COMPILED:
            self.thread.found, own = False, xgrad_compiles()
            if not self.active and time.perf_counter() - self.ended > PAUSE:
                self.since = time.perf_counter()
            self.active[threading.get_ident()] = self.thread.place or outside(sys._getframe(1)), own
            if own and not self.watched and os.environ.get("XGRAD_PROGRESS") != "0":
                # Standard error may be closed, replaced or missing, and the interpreter may end: no more threads.
                with suppress(OSError, ValueError, AttributeError, RuntimeError):
                    if sys.stderr.isatty() or _in_notebook():
                        threading.Thread(target=self._watch, name="xgrad progress", daemon=True).start()
                        self.watched = True

    def end(self, event: str, duration_secs: float, **more: Any) -> None:
        """JAX ends one of the phases, or says how much the cache has saved."""
        if event == SAVED:
            self.thread.found = True
            self._add("saved", duration_secs)
        elif event in _PHASES:
            inner = self.thread.inner
            own = duration_secs - (inner.pop() if inner else 0.0)
            if inner:
                inner[-1] += duration_secs
            found = event == COMPILED and self.thread.found
            self._add("loading" if found else _PHASES[event], own)
            if event == COMPILED:
                self._compiled(own, more.get("fun_name", "?"), found)

    def _compiled(self, seconds: float, function: str, found: bool) -> None:
        place, _ = self.active.pop(threading.get_ident(), (None, False))
        self.ended = time.perf_counter()
        if not self.active:
            self._write("")
        program = Compile(seconds, function.removeprefix("jit(").removesuffix(")").strip("_"), lines(place), found)
        with self.lock:
            self._add("programs", 1)
            self._add("found", int(found))
            self.slowest = sorted([*self.slowest, program], reverse=True)[:10]

    def _add(self, name: str, amount: float) -> None:
        with self.lock:
            self.counts[name] += amount

    def _watch(self) -> None:
        """Write the line while XLA compiles, in a thread of its own."""
        while self.active or time.perf_counter() - self.ended < PAUSE:
            seconds = time.perf_counter() - self.since
            places = [place for place, own in [*self.active.values()] if own]
            self._write(self._text(places[-1], seconds) if places and seconds > WAIT else "")
            time.sleep(0.25)
        self.watched = False

    def _text(self, place: Any, seconds: float) -> str:
        number, batch = self.counts["programs"] + 1, self.batch
        which = f"program {number}" if batch is None else f"{min(number - batch[0], batch[1])} of {batch[1]} programs"
        name = "" if place is None or place[0].co_name[0] == "<" else f"{place[0].co_name} at "
        return f"xgrad: compiling {which}, {seconds:.0f} s, {name}{lines(place)}"[:79]

    def _write(self, text: str) -> None:
        """Write a text over the last one, without Python's lock of the file, which the interpreter's end may find."""
        if text or self.shown:
            with suppress(OSError, ValueError, AttributeError):
                blank, self.shown = " " * self.shown, len(text)
                line = f"\r{blank}\r{text}"
                if _in_notebook():
                    sys.stderr.write(line)
                    sys.stderr.flush()
                else:
                    os.write(sys.stderr.fileno(), line.encode(errors="replace"))


def _in_notebook() -> bool:
    """Return True if standard error is a notebook's output, which is not a terminal, and has no file of its own."""
    return type(sys.stderr).__module__.startswith("ipykernel.")


recorder: Recorder = Recorder()
jax.monitoring.register_scalar_listener(recorder.begin)
jax.monitoring.register_event_duration_secs_listener(recorder.end)


def metrics() -> CompileMetrics:
    """Return where the time of first runs went: tracing, lowering, compiling, the compile cache, the slowest programs.

    While xgrad's programs are compiled for more than 3 seconds, a line in the terminal or notebook says so;
    XGRAD_PROGRESS=0 in the environment leaves it out.

    >>> import xgrad
    >>> before = xgrad.compile_cache.metrics().programs
    >>> y = xgrad.ones(2, 3, 5, 7).sinh().cumsum(2)
    >>> xgrad.compile_cache.metrics().programs > before
    True
    """
    with recorder.lock:
        return CompileMetrics(**recorder.counts, slowest=tuple(recorder.slowest))
