"""Counts operations, launches and compiles of `xgrad.lazy` blocks and lazy backends, for `xgrad.lazy.metrics()`."""

import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from ..base.jax_compat import COMPILED, LOWERED, TRACED
from .source import lines

log: logging.Logger = logging.getLogger("xgrad.lazy")
_READS = ("item()", "bool()", "int()", "float()", "complex()", "print", "a NumPy array", "tolist()", "len()")
FALLBACK = "falls back to the host"  # the end of such a reason
_MOST = 1000  # reasons for compiling that are stored


class Evaluation(NamedTuple):
    """The reason of an evaluation, and the line of the program that asked for it."""

    reason: str
    line: str


class Metrics(NamedTuple):
    """Counts of all threads since the last `xgrad.lazy.reset()`; printed, a table with advice."""

    operations: int  # noted and evaluated
    launches: int  # programs that were run
    programs: tuple[str, ...]  # why each was compiled, of the last 1,000 programs
    evaluations: dict[Evaluation, int]
    tracing: float  # seconds
    compiling: float
    running: float
    advice: tuple[str, ...]
    compiled: int  # programs that were compiled

    @property
    def operations_per_launch(self) -> float:
        """The mean number of operations in a program."""
        return self.operations / self.launches if self.launches else 0.0

    def __str__(self) -> str:
        rows = [
            f"{self.operations} operations in {self.launches} launches, {self.operations_per_launch:.1f} in each; "
            f"{self.compiled} programs",
            f"seconds: tracing {self.tracing:.3f}, compiling {self.compiling:.3f}, running {self.running:.3f}",
        ]
        rows += [f"evaluated {count} times by {reason} at {line}" for (reason, line), count in self.evaluations.items()]
        if earlier := self.compiled - len(self.programs):
            rows.append(f"compiled: {earlier} programs before these")
        rows += [f"compiled: {reason}" for reason in self.programs]
        return "\n".join([*rows, *(f"advice: {text}" for text in self.advice)])


class _Seconds(threading.local):
    """The seconds of the evaluation that a thread is in; None outside."""

    tracing: float | None = None
    compiling: float = 0.0


class Recorder:
    """Counts evaluations of all queues."""

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()  # a signal handler may evaluate in the middle of it
        self.reset()

    def reset(self) -> None:
        """Start again from zero."""
        self.operations: int = 0
        self.launches: int = 0
        self.seconds: tuple[float, float, float] = 0.0, 0.0, 0.0  # tracing, compiling, running
        self.programs: deque[str] = deque(maxlen=_MOST)
        self.compiles: int = 0
        self.compiled: Counter[str] = Counter()  # by line: programs of the same operators
        self.evaluations: Counter[Evaluation] = Counter()

    def new(self, reason: str, line: str, same_operators: bool) -> None:
        """Count a program that has to be compiled."""
        with self.lock:
            self.programs.append(f"{reason}, at {line}")
            self.compiles += 1
            self.compiled[line] += same_operators
        log.info("compiles: %s, at %s", reason, line)

    def start(self) -> float:
        """Begin an evaluation."""
        _seconds.tracing = _seconds.compiling = 0.0
        return time.perf_counter()

    def in_threads(self, compile: Callable[[], None]) -> None:
        """Count the seconds of a function that has other threads compile."""
        started, traced = time.perf_counter(), _seconds.tracing or 0.0
        compile()
        _seconds.compiling += time.perf_counter() - started - ((_seconds.tracing or 0.0) - traced)

    def launched(self, operations: int, launches: int, reason: str, place: Any, started: float) -> None:
        """Count an evaluation of `operations` by so many launches, for which the line at `place` asked."""
        seconds, tracing, compiling = time.perf_counter() - started, _seconds.tracing or 0.0, _seconds.compiling
        _seconds.tracing = None
        line = lines(place)
        with self.lock:
            self.operations += operations
            self.launches += launches
            self.evaluations[Evaluation(reason, line)] += 1
            before = self.seconds
            running = max(seconds - tracing - compiling, 0.0)
            self.seconds = before[0] + tracing, before[1] + compiling, before[2] + running
        log.info("%d operations, %d launches, by %s at %s: %.1f ms", operations, launches, reason, line, seconds * 1e3)

    def metrics(self) -> Metrics:
        """Return the counts."""
        with self.lock:
            evaluations, compiled = dict(self.evaluations), dict(self.compiled)
            counts, times = (self.operations, self.launches, tuple(self.programs)), self.seconds
            compiles = self.compiles
        advice = [
            f"{reason} at {line} cut the program {count} times: read values after the loop, or every n-th step"
            for (reason, line), count in evaluations.items()
            if reason in _READS and count > 2
        ]
        advice += [
            f"{reason} at {line}, cut the program {count} times: a lowering of it would not"
            for (reason, line), count in evaluations.items()
            if reason.endswith(FALLBACK) and count > 2
        ]
        advice += [
            f"new shapes at {line} compiled {count} programs of the same operators: pad to a few sizes"
            for line, count in compiled.items()
            if count > 2
        ]
        return Metrics(*counts, evaluations, *times, tuple(advice), compiles)


_seconds = _Seconds()
recorder: Recorder = Recorder()


def _took(event: str, duration_secs: float, **_: Any) -> None:
    if _seconds.tracing is not None:
        if event == TRACED:
            _seconds.tracing += duration_secs
        elif event in (LOWERED, COMPILED):
            _seconds.compiling += duration_secs


jax.monitoring.register_event_duration_secs_listener(_took)

if "lazy" in os.environ.get("XGRAD_LOG", "").split(","):
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
