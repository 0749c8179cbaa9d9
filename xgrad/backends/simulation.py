"""Simulation: estimates when each program and transfer begins and ends on an `xgrad.Backend` with a `Cost`.

It goes through the log that clock.py writes.  These work side by side:

    host      adds `host` or `note` for each operator, compiles, reads values: then it waits
    compute   programs, in the order of their stream, once their operands are there; `Cost.queues` of them at once
    links     host to device, device to host, between chips: each one transfer at a time

A transfer waits for its array, and for its stream if that is not the default one; as XLA runs them.
Invariant: nothing begins before the host has come to it.
"""

import math
from bisect import bisect
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from .clock import CHIPS, COMPUTE, HOST, QUEUES, RECORD, SYNC, TO_HOST, WAIT, Entry, Log, Mark, Span
from .cost import Cost, Parts
from .events import Events, Sum
from .tiles import tiled
from .work import Work


class Moves:
    """The arrays in a fast memory, and those that were moved: how many, and their bytes."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost
        self._there: OrderedDict[int, tuple[int, bool]] = OrderedDict()  # by number: bytes, True if newer than outside
        self._used = 0
        self.into, self.out = Sum(), Sum()

    def traffic(self, entry: Entry, work: Work) -> tuple[float, float]:
        """Return the bytes that a program moves from or to the slow memory, and from or to the fast one."""
        sizes = {number: tiled(aval.shape, aval.dtype, self._cost.tiles) for number, aval in (*entry.read, *entry.made)}
        whole = sum(sizes[number] for number, _ in (*entry.read, *entry.made))
        every = sum(work.bytes_by(self._cost.tiles).values())
        share = min(1.0, every / whole) if whole else 0.0  # of a large operand a program may read a part
        slow, quick = max(every - whole, 0.0), 0.0
        for number, _ in entry.read:
            if number in self._there:
                self._there.move_to_end(number)
                quick += share * sizes[number]
                continue
            slow += share * sizes[number]
            if share == 1.0 and self._fits(sizes[number]):
                self.into.add(sizes[number])
                slow += self._enter(number, sizes[number], False)
        for number, _ in entry.made:
            self.drop(number)
            if self._fits(sizes[number]):
                quick += share * sizes[number]
                slow += self._enter(number, sizes[number], True)
            else:
                slow += share * sizes[number]
        return slow, quick

    def _fits(self, size: int) -> bool:
        return size <= (self._cost.fast or 0)

    def drop(self, number: int) -> None:
        """Forget an array that has ended."""
        self._used -= self._there.pop(number, (0, False))[0]

    def _enter(self, number: int, size: int, new: bool) -> int:
        """Take an array in, and return the bytes that are written back to make room."""
        back = 0
        while not self._fits(self._used + size):
            _, (gone, newer) = self._there.popitem(last=False)
            self._used -= gone
            if newer:
                self.out.add(gone)
                back += gone
        self._there[number] = size, new
        self._used += size
        return back


class Simulation:
    """Computes when each entry of a log begins and ends on one backend, in seconds from the log's start."""

    def __init__(self, cost: Cost, log: Log, works: "Works", compiles: bool = True) -> None:
        self.cost, self.works, self.compiles = cost, works, compiles
        self.spans: list[Span] | None = []  # None: they are not kept
        self.now: float = 0.0  # the host's time
        self.marks: WeakKeyDictionary[Mark, float] = WeakKeyDictionary()
        self.moves: Moves | None = None if cost.fast is None else Moves(cost)
        self.used = Parts(0.0, 0.0)  # of all programs
        self._known: dict[Any, Parts] = {}
        self._counts = log.start
        # By queue, for each of what it does at once: when it is busy, from the host's time on.
        self._busy: dict[str, list[list[tuple[float, float]]]] = {queue: [[]] for queue in QUEUES}
        self._busy[COMPUTE] = [[] for _ in range(cost.queues)]
        self._order: dict[int, float] = {}  # by stream: when its next program may begin
        self._done: dict[int, float] = {}  # by stream: when all of it is done
        self._ready: dict[int, float] = {}  # by an array's number

    def run(self, entries: Iterable[Entry], counts: tuple[int, int]) -> None:
        """Go through entries; `counts`: the operators that the host has come to after them."""
        for entry in entries:
            self._python(entry.name, entry.counts)
            for number in entry.died:
                self._ready.pop(number, None)
                if self.moves is not None:
                    self.moves.drop(number)
            if entry.kind == COMPUTE:
                self._launch(entry)
            elif entry.kind == HOST:
                self._host(entry.name, 0.0 if entry.what is None else self.works.fallback(entry.what, self.cost))
            elif entry.kind == RECORD:
                self.marks[entry.what] = max(self.now, self._done.get(entry.stream, 0.0))
            elif entry.kind == WAIT:
                self._order[entry.stream] = max(self._order.get(entry.stream, 0.0), self.marks.get(entry.what, 0.0))
            elif entry.kind == SYNC:
                self.now = max(self.now, self.end_of(entry.what))
            else:
                self._transfer(entry)
        self._python("Python", counts)

    def end_of(self, what: Any) -> float:
        """Return when an event is reached, a stream's work is done, or all work for None."""
        if isinstance(what, Mark):
            return self.marks.get(what, 0.0)
        return max(self._done.values(), default=0.0) if what is None else self._done.get(what, 0.0)

    @property
    def end(self) -> float:
        """When the host and all queues are done."""
        return max(self.now, self.end_of(None))

    def _python(self, name: str, counts: tuple[int, int]) -> None:
        (asked, noted), self._counts = self._counts, counts
        asked, noted = counts[0] - asked, counts[1] - noted
        self._host(name, (asked - noted) * self.cost.host + noted * self.cost.noting)

    def _host(self, name: str, seconds: float) -> None:
        if seconds > 0:
            self._span(HOST, name, self.now, self.now + seconds)
            self.now += seconds

    def _span(self, queue: str, name: str, start: float, end: float, stream: int = 0, size: int = 0) -> None:
        if self.spans is not None:
            self.spans.append(Span(queue, name, start, end, stream, size))

    def _parts(self, key: Any, entry: Entry) -> Parts:
        if self.moves is not None:
            work = self.works.of(key)
            return self.cost.parts(work, self.moves.traffic(entry, work))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.works.parts(key, self.cost)
        return found

    def _launch(self, entry: Entry) -> None:
        key, new = entry.what
        if new and self.compiles:
            self._host(f"compile {entry.name}", self.cost.compile)
        parts = self._parts(key, entry)
        self.used = self.used.plus(parts)
        ready = max(self.now, self._order.get(entry.stream, 0.0), self._operands(entry))
        end = self._place(COMPUTE, entry, ready, self.cost.launch + parts.busy)
        self._order[entry.stream] = end
        for each in self.works.of(key).collectives if parts.chips else ():
            seconds = self.cost.between(each.sent, each.steps)
            end = self._place(CHIPS, entry, end, seconds, each.bytes, each.kind)
        self._finish(entry, end)

    def _transfer(self, entry: Entry) -> None:
        size, cost = entry.what, self.cost
        seconds = cost.between(size) if entry.kind == CHIPS else cost.transfer + size / cost.host_link
        ready = max(self.now, self._operands(entry))
        if entry.stream:
            ready = max(ready, self._order.get(entry.stream, 0.0))
        end = self._place(entry.kind, entry, ready, seconds, size)
        if entry.stream:
            self._order[entry.stream] = end
        self._finish(entry, end)
        if entry.kind == TO_HOST:
            self.now = end  # it has the value then

    def _place(self, queue: str, entry: Entry, ready: float, seconds: float, size: int = 0, name: str = "") -> float:
        """Give a queue something to do once it is ready, where it first has the time for it; return when it is done."""
        start, chosen = min([(_gap(busy, ready, seconds), n) for n, busy in enumerate(self._busy[queue])])
        busy, end = self._busy[queue][chosen], start + seconds
        n = bisect(busy, (start, end))
        if n and busy[n - 1][1] == start:
            n -= 1
            busy[n] = busy[n][0], end
        else:
            busy.insert(n, (start, end))
        while len(busy) > 1 and busy[0][1] <= self.now:  # nothing begins before the host has come to it
            busy.pop(0)
        self._span(queue, name or entry.name, start, end, entry.stream, size)
        return end

    def _operands(self, entry: Entry) -> float:
        return max([self._ready.get(number, 0.0) for number, _ in entry.read], default=0.0)

    def _finish(self, entry: Entry, end: float) -> None:
        self._done[entry.stream] = max(self._done.get(entry.stream, 0.0), end)
        for number, _ in entry.made:
            self._ready[number] = end


def _gap(busy: list[tuple[float, float]], ready: float, seconds: float) -> float:
    """Return the first time from `ready` on at which there are so many seconds between busy intervals."""
    n = bisect(busy, (ready, math.inf))
    start = max(ready, busy[n - 1][1]) if n else ready
    while n < len(busy) and start + seconds > busy[n][0]:
        start = max(start, busy[n][1])
        n += 1
    return start


class Works:
    """The work of the programs in a report; each is compiled, to be counted, when it is asked for."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._known: dict[Any, Work] = {}
        self.chip: dict[Any, float] = {}  # seconds that a target's compiler says, in place of the Cost's, by key

    def of(self, key: Any) -> Work:
        """Return what a program does that ran, or that the host computed."""
        found = self._known.get(key)
        if found is None:
            launches = self._events.launches
            found = self._known[key] = Work((launches if key in launches else self._events.on_host)[key][0])
        return found

    def parts(self, key: Any, cost: Cost) -> Parts:
        """Return the seconds of a program."""
        return Parts(self.chip[key], 0.0) if key in self.chip else cost.parts(self.of(key))

    def fallback(self, key: Any, cost: Cost) -> float:
        """Return the seconds that the host takes for a program."""
        work = self.of(key)
        return max(work.flops / cost.host_flops, work.moved / cost.host_bandwidth)


class Live:
    """The clock of a backend's streams and events: time goes on with what the backend does."""

    def __init__(self, runtime: Any) -> None:
        self._clock = runtime.clock
        self.events: Events = Events()
        self.events.log = Log(self._clock)
        self.simulation: Simulation = Simulation(runtime.backend.cost, self.events.log, Works(self.events))
        self.simulation.spans = None
        runtime.reports = (*runtime.reports, self.events)

    def advance(self) -> Simulation:
        """Simulate what was noted since the last time."""
        log = self.events.log
        entries, log.entries = log.entries, []
        self.simulation.run(entries, self._clock.counts)
        return self.simulation
