"""DeviceQueue: collects operations on an `xgrad.Backend(execution="lazy")`, and runs them when a value is read.

It is the queue of `xgrad.lazy()` with the backend's own rules: its results are on the backend and count in its memory,
and no operand is overwritten if the backend declares `donation=False`.  An eager backend has one too, for writes that
wait (`aliasing="regenerate"`) and while `state.together` is True.
"""

from typing import Any

from ..config import state
from ..execution.fused import programs
from ..execution.metrics import recorder
from ..execution.pending import Pending
from ..execution.queue import Queue
from ..execution.references import is_deleted


class DeviceQueue(Queue):
    """The operations of one thread that a backend has collected and not run yet."""

    plain, cut = False, None

    def __init__(self, runtime: Any) -> None:
        super().__init__()
        self.runtime = runtime
        self.most = runtime.backend.pending
        self.stream: Any = None  # the Stream on which the entries will run
        self.spared: tuple[int, ...] = ()  # the inputs of the last program that donation would have taken
        self.made: Any = ()  # the clock's numbers of its results
        launching = runtime.launching
        if launching is not None and launching.shapes:
            self.rules, self.cut = launching, launching.shape

    def note(self, program: Any, operands: Any, owners: Any = None) -> Any:
        runtime = self.runtime
        if runtime.clock is not None and self.stream is not state.stream:
            self.evaluate("another stream")
            self.stream = state.stream
        if runtime.reports:
            runtime.noted(program)
        out = super().note(program, operands, owners)
        for p in out if out.__class__ is tuple else (out,):
            if p.__class__ is Pending and p.queue is self:
                p.place = self.runtime.number  # also of a program without operands
        return out

    def _together(self, where: tuple[int, ...]) -> bool:
        return True

    def _donated(self, alive: list[Any]) -> tuple[int, ...]:
        runtime = self.runtime
        donated = super()._donated(alive)
        if runtime.launching is not None and runtime.launching.verify:
            donated = ()  # the program without passes has them first
        if not runtime.backend.donation:
            for events in runtime.reports:
                for i in donated:
                    events.copies.add(self.inputs[i].nbytes)
            self.spared, donated = donated, ()
        size_of = runtime.memory.size_of
        size = sum(map(size_of, alive)) - sum(size_of(self.inputs[i]) for i in donated)
        if runtime.memory.short_of(size):
            runtime.memory.require(size, f"the results of {len(self.entries)} operations", runtime.line())
        return donated

    def _run(self, fused: Any, values: list[Any], out: list[Any], spare: list[Any]) -> None:
        launching = self.runtime.launching
        fused.run(values, out, spare) if launching is None else launching.fused(fused, values, out, spare)

    def run_entry(self, program: Any, operands: list[Any]) -> Any:
        launching = self.runtime.launching
        return program.run(*operands) if launching is None else launching.run(program, operands)

    def _evaluate(self, reason: str, line: Any) -> None:
        clock = self.runtime.clock
        if self.runtime.aliasing is not None:
            _forget(self.entries)
        if not self.runtime.reports:
            return super()._evaluate(reason, line)
        self.spared, self.made = (), ()
        given = () if clock is None else clock.numbers(self.inputs)  # no reference to them: they may be donated
        before = len(recorder.programs)
        ran, programs.latest = programs.latest, None
        super()._evaluate(reason, line)
        fused = programs.latest
        if fused is None:
            programs.latest = ran
        else:
            reasons = list(recorder.programs)[before:]
            self.runtime.launched(fused, reasons, given, self)
        return None

    def _finish(self) -> None:
        alive, inputs, memory = self.done[0], self.inputs, self.runtime.memory
        super()._finish()
        for x in inputs:
            if x.__class__ is Pending and is_deleted(x.value):
                memory.release(x)
        if self.runtime.clock is not None and self.runtime.reports:
            self.made = self.runtime.clock.numbers(alive)
        for p in alive:
            memory.hold(p, self.runtime.reports)

    def _one_by_one(self, failure: Exception) -> None:
        entries = self.entries
        try:
            super()._one_by_one(failure)
        finally:
            for *_, results, _ in entries:
                for p in results if results.__class__ is tuple else (results,):
                    if p.value is not None:
                        self.runtime.memory.hold(p, self.runtime.reports)


def _forget(entries: list[Any]) -> None:
    """Forget which views were written last: else their values were alive."""
    for *_, out, _ in entries:
        if out.__class__ is Pending:
            out.latest = None


def queue_of(runtime: Any) -> DeviceQueue | None:
    """Return the queue in which this thread notes the programs of a backend now; None if they run at once."""
    return queue_in_thread(runtime) if runtime.lazy or state.together else None


def queue_in_thread(runtime: Any) -> DeviceQueue:
    """Return the queue of a backend in this thread, which an eager backend too has for writes that wait."""
    found = queues()
    queue = found.get(runtime.place)
    if queue is None:
        queue = found[runtime.place] = DeviceQueue(runtime)
    return queue


def queues() -> dict[Any, DeviceQueue]:
    """Return the queues of this thread by the backends' places."""
    found = state.queues
    if found is None:
        found = state.queues = {}
    return found
