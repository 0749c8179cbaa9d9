"""Clock: logs launches and transfers of an `xgrad.Backend` with a `Cost`; simulation.py computes times from the log.

    launch, transfer, event ──► Entry ──► the logs of the open reports, and of the events of streams

An entry refers to the arrays that it waits for by serial numbers; an array gets one when it is first an operand.
Invariant: nothing is logged while no report is open and no event was made.
"""

import itertools
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import KeyedRef

import jax

from ..config import state
from ..execution.pending import Pending

COMPUTE, TO_DEVICE, TO_HOST, CHIPS, HOST = QUEUES = (
    "compute", "host to device", "device to host", "between chips", "host"
)  # fmt: skip
RECORD, WAIT, SYNC = "record", "wait", "synchronize"
MOST = 1 << 16  # entries that wait for the simulation of events


class Span(NamedTuple):
    """An operation of a queue from `start` to `end`, in seconds; `stream`: its number, 0 for the default one."""

    queue: str
    name: str
    start: float
    end: float
    stream: int = 0
    bytes: int = 0


class Entry:
    """One operation of a backend: on one of the queues, or one of `RECORD`, `WAIT` and `SYNC`."""

    __slots__ = ("counts", "died", "kind", "made", "name", "read", "stream", "what")

    def __init__(self, kind: str, name: str, what: Any, read: Any, stream: Any, counts: tuple[int, int]) -> None:
        self.kind, self.name, self.stream = kind, name, stream
        self.what = what  # (key of a launch, True if it was compiled), a key, bytes, or an event's mark
        self.read: tuple[Any, ...] = read  # numbers and avals of arrays
        self.made: list[Any] = []
        self.died: tuple[int, ...] = ()  # the numbers of arrays that ended before it
        self.counts = counts  # operators until now; of them those that a queue noted


class Log:
    """The entries of one report."""

    def __init__(self, clock: "Clock") -> None:
        self.entries: list[Entry] = []
        self.start: tuple[int, int] = clock.counts
        self.end: tuple[int, int] | None = None  # once it is closed


class Mark:
    """The place of an event in the order of the entries, while something refers to it."""

    __slots__ = ("__weakref__",)


class Clock:
    """Writes the logs of one backend."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.asked: int = 0
        self.noted: int = 0
        self.live: Any = None  # the simulation.Live of the backend's events, once there are streams or events
        self._serials = itertools.count(1)
        self._last = threading.local()  # the entry whose results come next
        self._alive: dict[int, Any] = {}
        self._dead: deque[Any] = deque()

    @property
    def counts(self) -> tuple[int, int]:
        """The operators that were asked for so far, and those that a queue noted."""
        return self.asked, self.noted

    # -- arrays ---------------------------------------------------------------------------------------------------

    def numbers(self, arrays: Iterable[Any]) -> tuple[Any, ...]:
        """Return (number, shape and dtype) of each array of the backend among operands."""
        found = []
        for x in arrays:
            if x.__class__ is tuple:
                found += self.numbers(x)
            elif x.__class__ is Pending:
                if not x.serial:
                    x.serial = next(self._serials)
                    self._alive[x.serial] = KeyedRef(x, self._dead.append, x.serial)
                found.append((x.serial, x.aval))
        return tuple(found)

    def made(self, array: Any) -> None:
        """Note a result of this thread's last entry."""
        entry = getattr(self._last, "entry", None)
        if entry is not None:
            entry.made += self.numbers((array,))

    # -- entries --------------------------------------------------------------------------------------------------

    def launch(self, key: Any, name: str, operands: Any, new: bool, written: Any = None) -> None:
        """Note a program that runs now; `written`: the array whose memory it takes."""
        entry = self._enter(COMPUTE, name, (key, new), self.numbers(operands))
        if written is not None:
            entry.made += self.numbers((written,))

    def fused(self, key: Any, name: str, given: Any, queue: Any, new: bool) -> None:
        """Note a program of a queue that ran; `given`: the numbers of its inputs."""
        self._enter(COMPUTE, name, (key, new), given, queue.stream).made += queue.made

    def transfer(self, kind: str, arrays: Any, size: int, name: str = "") -> None:
        """Note a transfer over a link."""
        self._enter(kind, name or kind, size, self.numbers(arrays))

    def fallen(self, key: Any, name: str, arrays: Any, size: int) -> None:
        """Note an operator that the host computed: its operands come, the results go back."""
        sent = sum(array.nbytes for array in jax.tree.leaves(arrays, is_leaf=lambda x: x.__class__ is Pending))
        self.transfer(TO_HOST, arrays, sent)
        self._enter(HOST, name, key, ())
        self.transfer(TO_DEVICE, (), size - sent)

    def mark(self, kind: str, what: Any, stream: Any) -> None:
        """Note what streams and events were told."""
        self._enter(kind, kind, what, (), stream)

    def _enter(self, kind: str, name: str, what: Any, read: Any, stream: Any = 0) -> Entry:
        stream = state.stream if stream == 0 else stream
        number = stream.number if stream is not None and stream.of(self._runtime) else 0
        entry = self._last.entry = Entry(kind, name, what, read, number, self.counts)
        if self._dead:
            entry.died = tuple([self._dead.popleft().key for _ in range(len(self._dead))])
            for ended in entry.died:
                self._alive.pop(ended, None)
        for events in self._runtime.reports:
            if events.log is not None:
                events.log.entries.append(entry)
        if self.live is not None and len(self.live.events.log.entries) > MOST:
            self.live.advance()
        return entry


def clock_of(runtime: Any) -> Clock | None:
    """Return the clock of a backend; None for one without a Cost."""
    return None if runtime.backend.cost is None else Clock(runtime)
