"""Report: counts what an `xgrad.Backend` did in a `with` block (launches, programs, copies, ...); estimates the time.

The time is what the compiler of the backend's target says, or a roofline over XLA's own cost analysis of each program,
with the numbers of the backend's `Cost`.  The compiler is asked when the estimate is read, not while the block runs.
"""

from typing import Any, NamedTuple

import jax

from ..base.table import Row, Table, Tabled, axes, number, seconds, size
from ..execution.programs.cost import cost_of
from .clock import Log
from .cost import Cost, Parts
from .events import FROM, TO, Events, Sum
from .on_target import OnTarget
from .simulation import Simulation, Works
from .timeline import Timeline

_MOST = 12  # rows of a list; more are summed up


class Estimate(NamedTuple):
    """Seconds, as a backend's `Cost` makes them: of Python, launches, arithmetic, memory, compiling, the link, the
    host, which computes in place of the backend, and the links between chips.  With a target, `chip` stands for
    arithmetic and memory.
    """

    host: float
    launch: float
    compute: float  # of an operator that runs alone, where its arithmetic takes longer than its memory traffic
    memory: float  # where it is the other way; of fused operators both count
    compile: float
    link: float  # bytes, and `latency` for each transfer; two for an operator that the host computes
    fallback: float  # what the host takes to compute such operators
    between: float = 0.0  # what chips send one another
    chip: float = 0.0  # what programs take, and `compile` what compiling them took, as the target's compiler says

    @property
    def total(self) -> float:
        """All together, compiling too: `run` is without it."""
        return sum(self)

    @property
    def run(self) -> float:
        """All but compiling, which a second run does not do."""
        return self.total - self.compile

    def __str__(self) -> str:
        parts = [f"{name} {seconds(value)}" for name, value in self._asdict().items() if value and name != "compile"]
        return f"{seconds(self.run)} each run ({', '.join(parts)}), {seconds(self.compile)} once, to compile"


class Report(Tabled):
    """The record of what a backend did within `with backend.report() as report:`.

    Prints as a table (`print(report)`, or in colours with the package rich, `report.print()`), is HTML in a notebook,
    `as_dict()` for programs, and `plot()` draws the estimated time.
    """

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._events = Events()
        self._works = Works(self._events)
        self._answers: dict[Any, Any] = {}

    def __enter__(self) -> "Report":
        runtime = self._runtime
        self._before, runtime.memory.peak = runtime.memory.peak, runtime.memory.used
        if runtime.clock is not None:
            self._events.log = Log(runtime.clock)
        runtime.reports = (*runtime.reports, self._events)
        return self

    def __exit__(self, *error: Any) -> None:
        runtime = self._runtime
        if error[0] is None:  # else what is noted waits: the error's frames refer to values that are dead without it
            runtime.settle()
        runtime.reports = tuple(events for events in runtime.reports if events is not self._events)
        self._events.peak = runtime.memory.peak
        if self._events.log is not None:
            self._events.log.end = runtime.clock.counts
        runtime.memory.peak = max(self._before, runtime.memory.peak)

    # -- what it says ---------------------------------------------------------------------------------------------

    @property
    def launches(self) -> int:
        """The number of programs that ran."""
        return sum(count for _, count in self._events.launches.values())

    @property
    def operators(self) -> int:
        """The number of operators, view programs and formulas that were asked for."""
        return self._events.operators.total()

    @property
    def fallen(self) -> int:
        """The number of operators that the host computed in place of the backend."""
        return self._events.fallen

    @property
    def _is_roofline(self) -> bool:
        """True if the programs are lowered for an estimate anyway."""
        return self._runtime.backend.cost is not None and self._runtime.backend.target is None

    @property
    def bytes_accessed(self) -> int:
        """The bytes that all programs read and write, as XLA counts them.  Asking compiles each program once more."""
        launches = self._events.launches.items()
        return int(sum(count * sum(self._works.of(key).bytes_by(None).values()) for key, (_, count) in launches))

    def estimate(self, cost: Cost | None = None) -> Estimate:
        """Return the time that the block would take with `cost`, by default the backend's.

        Without `cost` the compiler of the backend's target is asked, if there is one, and the backend's cost has the
        rest: launches, Python, the link.  Raises `ValueError` if there is neither.
        """
        if cost is not None:
            return self._estimate(cost, None)
        return self._estimate(self._runtime.backend.cost, self.on_target())

    def _estimate(self, cost: Cost | None, chip: OnTarget | None) -> Estimate:
        if chip is not None and chip.seconds is not None:
            rest = Estimate(*[0.0] * 7) if cost is None else self._roofline(cost, {})
            return rest._replace(compile=chip.compile_seconds, chip=chip.seconds)
        if cost is None:
            lacks = f" ({chip.target.name}: {chip.missing or 'its compiler estimates no time'})" if chip else ""
            raise ValueError(
                f"no cost is declared{lacks}: report.estimate(xgrad.Cost(...)), or backend.replace(cost=...)"
            )
        return self._roofline(cost, self._events.launches)

    def timeline(self, cost: Cost | None = None, compiles: bool = False) -> Timeline:
        """Return when the host, the programs and the transfers of the block begin and end, with `cost`, by default the
        backend's: a simulation, in which they overlap.

        `compiles`: True if compiling counts.  With a target, programs take as long as its compiler says.
        Raises `ValueError` if the backend has no `cost`: then nothing was noted in its order.

        >>> import xgrad
        >>> chip = xgrad.Backend("chip", cost=xgrad.Cost(launch=1e-3, bandwidth=1e6, host_link=1e6))
        >>> x = xgrad.ones(500, device=chip)
        >>> with chip.report() as report:
        ...     y = (x * 2).tolist()
        >>> [(span.queue, round(span.end, 4)) for span in report.timeline().spans]
        [('compute', 0.005), ('device to host', 0.008)]
        """
        cost = self._runtime.backend.cost if cost is None else cost
        if cost is None or self._events.log is None:
            raise ValueError("a timeline needs what was noted in its order: declare backend.replace(cost=...)")
        chip = self.on_target() if cost is self._runtime.backend.cost else None
        if chip is not None and chip.seconds is not None:
            self._works.chip = {key: answer.estimated_seconds or 0.0 for key, answer in self._answers.items()}
        found = self._simulated(cost, compiles)
        return Timeline(f"backend {self._runtime.backend.name}", found.spans or [], found.end, found.moves)

    def _simulated(self, cost: Cost, compiles: bool = False) -> Simulation:
        log = self._events.log
        if log is None:
            raise ValueError("a fast memory needs what was noted in its order: declare backend.replace(cost=...)")
        simulation = Simulation(cost, log, self._works, compiles)
        simulation.run(log.entries, log.end or self._runtime.clock.counts)
        return simulation

    def on_target(self) -> OnTarget | None:
        """Return what the compiler of the backend's target says of all programs; None for a backend without a target.

        Asking compiles each program once, for the target, in a process of its own.
        """
        target = self._runtime.backend.target
        return None if target is None else OnTarget(target, self._events, self._answers)

    def _roofline(self, cost: Cost, launches: dict[Any, list[Any]]) -> Estimate:
        """Return the time with `cost`; arithmetic and memory of these launches."""
        events, used = self._events, Parts(0.0, 0.0)
        if cost.fast is not None and launches:
            used = self._simulated(cost).used
        else:
            for key, (_, count) in launches.items():
                used = used.plus(cost.parts(self._works.of(key)), count)
        over = events.sent.bytes + events.received.bytes + sum(found.bytes for found in events.fallbacks.values())
        transfers = events.sent.count + events.received.count + 2 * events.fallen
        fallback = 0.0
        for key, (_, count) in events.on_host.items():
            fallback += count * self._works.fallback(key, cost)
        return Estimate(
            host=(self.operators - events.noted) * cost.host + events.noted * cost.noting,
            launch=self.launches * cost.launch,
            compute=used.compute,
            memory=used.memory,
            compile=len(events.programs) * cost.compile,
            link=over / cost.host_link + transfers * cost.transfer,
            fallback=fallback,
            between=used.chips + events.between.bytes / cost.chip_link + events.between.count * cost.chip_latency,
        )

    def temporaries(self) -> int:
        """Return the most bytes that XLA takes for one of the programs beside its operands and results.

        They are not in a backend's `memory`.  Asking compiles each program once more; the target's compiler is asked,
        if it is here.
        """
        if (chip := self.on_target()) is not None and chip.missing is None:
            return chip.temporary_bytes
        with jax.ensure_compile_time_eval():
            costs = [cost_of(launch.lower().compile()) for launch, _ in self._events.launches.values()]
        return max((cost.temporary_bytes or 0 for cost in costs), default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as numbers, strings, lists and dictionaries."""
        events, chip = self._events, self.on_target()

        def told(found: Any) -> dict[str, int]:
            return {"count": found.count, "bytes": found.bytes}

        return {
            "backend": self._runtime.backend.name,
            "operators": dict(events.operators.most_common()),
            "launches": self.launches,
            "programs": list(events.programs),
            "views": {
                "read": told(events.reads),
                "refreshed": told(events.refreshes),
                "written back": told(events.writes),
                "adjoint": told(events.adjoints),
            },
            "copies that donation would have saved": told(events.copies),
            "copies of shared storages": told(events.shared),
            "programs that runtime starts would have saved": [
                {"view": name, "line": line, "count": count} for (name, line), count in events.starts.items()
            ],
            "views that are copies": [
                {"view": name, "line": line, **told(found)} for (name, line), found in events.apart.items()
            ],
            "writes that an alias would have shown": [
                {"view": name, "line": line, "written": written, "count": count}
                for (name, line, written), count in events.parted.items()
            ],
            "fallbacks": [{**key._asdict(), **told(found)} for key, found in events.fallbacks.items()],
            "faults": [fault._asdict() for fault in events.faults],
            "lowerings that did not run": self._unused(),
            "link": {"to the backend": told(events.received), "from the backend": told(events.sent)},
            "transfers": [{**key._asdict(), **told(found)} for key, found in events.transfers.items()],
            "between chips": told(events.between),
            "collectives": {kind: told(found) for kind, found in self._collectives().items()},
            "padding of tiles": told(events.padding),
            "padded to shared sizes": told(events.padded),
            "not padded": [
                {"program": name, "why": why, "count": count} for (name, why), count in events.unpadded.items()
            ],
            "peak memory": events.peak,
            "bytes accessed": self.bytes_accessed if self._is_roofline else None,
            "estimate": None if (estimate := self._known(chip)) is None else estimate._asdict(),
            "target": None if chip is None else chip.as_dict(),
            "timeline": None if estimate is None or events.log is None else self.timeline().as_dict(),
        }

    def _collectives(self) -> dict[str, Sum]:
        """Return how often programs had each kind of collective, and the bytes; nothing without a Cost, which asks."""
        found: dict[str, Sum] = {}
        for key, (launch, count) in self._events.launches.items():
            for each in self._works.of(key).collectives if launch.spread and self._is_roofline else ():
                counted = found.setdefault(each.kind, Sum())
                counted.count += count
                counted.bytes += count * each.bytes
        return found

    def _unused(self) -> list[str]:
        """Return the operators whose lowerings were not called."""
        return [name for name in self._runtime.backend.lowerings if name not in self._events.lowered]

    def _known(self, chip: OnTarget | None) -> Estimate | None:
        """Return the estimate; None if nothing is declared from which it could be made."""
        try:
            return self._estimate(self._runtime.backend.cost, chip)
        except ValueError:
            return None

    def rows(self) -> list[Row]:
        """Return the rows of the table: what, and how much."""
        events: Events = self._events
        found: list[Row] = []

        def row(label: str, text: str) -> None:
            found.append(Row(label.lstrip(), (text,), int(label.startswith(" "))))

        def both(label: str, counted: Any) -> None:
            if counted.count:
                row(label, f"{number(counted.count)}, {size(counted.bytes)}")

        fallen = events.fallen
        row(
            "operators", f"{number(self.operators)}, {number(fallen)} on the host" if fallen else number(self.operators)
        )
        for name, count in events.operators.most_common(_MOST):
            row(f"  {name}", number(count))
        if (more := len(events.operators) - _MOST) > 0:
            row("  others", f"{more} more, which as_dict() counts")
        for name in self._unused():
            called = f"{name} was called with other arguments than it takes"
            unknown = "no operator of that name was called"
            row(f"the lowering of {name}", f"did not run: {called if name in events.operators else unknown}")
        each = (self.operators - fallen) / self.launches if self.launches else 0
        row("launches", f"{number(self.launches)}, {each:.1f} operators in each" if each else number(self.launches))
        row("programs compiled", number(len(events.programs)))
        for reason in events.programs[:_MOST]:
            row("  compiled", reason)
        if len(events.programs) > _MOST:
            row("  compiled", f"... {len(events.programs) - _MOST} more")
        both("padded to shared sizes", events.padded)
        for (name, why), count in events.unpadded.most_common(_MOST):
            row(f"  not padded: {name}", f"{number(count)}, {why}")
        both("views replayed", events.reads)
        both("  refreshed because stale", events.refreshes)
        both("views written back", events.writes)
        both("adjoints of views", events.adjoints)
        both("copies that donation would have saved", events.copies)
        both("copies of shared storages", events.shared)
        for (name, line), count in events.starts.most_common(_MOST):
            row(f"programs for other starts: {name} at {line}", number(count))
        for (name, line), counted in sorted(events.apart.items(), key=lambda item: -item[1].bytes)[:_MOST]:
            both(f"a copy, no view: {name} at {line}", counted)
        for (name, line, written), count in events.parted.most_common(_MOST):
            row(f"not shown by {name} of {line}", f"{number(count)} written at {written}")
        for key, counted in sorted(events.fallbacks.items(), key=lambda item: -item[1].bytes)[:_MOST]:
            both(f"on the host: {key.operator} at {key.line}", counted)
        if events.faults:
            row("faults injected", number(len(events.faults)))
        for fault in events.faults[:_MOST]:
            event = "transfer" if fault.kind == "link" else "launch"
            detail = f": {fault.detail}" if fault.detail else ""
            row(f"  {fault.kind}", f"{event} {number(fault.number)}, {fault.operator} at {fault.line}{detail}")
        for direction, found_there in ((FROM, events.received), (TO, events.sent)):
            both(direction, found_there)
            those = [item for item in events.transfers.items() if item[0].direction == direction]
            for transfer, counted in sorted(those, key=lambda item: -item[1].bytes)[:_MOST]:
                both(f"  {transfer.why} at {transfer.line}", counted)
            if len(those) > _MOST:
                row("  others", f"{len(those) - _MOST} more lines, which as_dict() has")
        both("between chips, by resharding", events.between)
        for kind, counted in self._collectives().items():
            both(f"{kind} in programs", counted)
        row("peak memory", size(events.peak))
        both("padding of tiles, of arrays made", events.padding)
        if self._is_roofline:
            row("bytes accessed", size(self.bytes_accessed))
        if (chip := self.on_target()) is not None:
            found += chip.rows(events.peak)
        if (estimate := self._known(chip)) is not None:
            row("estimated time, each run", seconds(estimate.run))
            for name, value in estimate._asdict().items():
                if value and name != "compile":
                    row(f"  {name}", seconds(value))
            if events.log is not None:
                found += self.timeline().rows()
            if estimate.compile:
                row("once, to compile", seconds(estimate.compile))
        return found

    # -- how it looks ---------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the table."""
        return Table(self.rows(), caption=f"backend {self._runtime.backend.name}", numbers=False)

    def plot(self, ax: Any = None) -> Any:
        """Draw the time of a run, without compiling, as bars, into matplotlib axes `ax` or a new figure; returns them.

        Without a `cost`, and a target's compiler, the bars are bytes: of views, copies, the host's operators, the link.
        Raises `ImportError` without matplotlib.
        """
        estimate, events = self._known(self.on_target()), self._events
        ax = axes(ax, 6, 2.2)
        if estimate is None:
            bars = {
                "views read": events.reads, "refreshed": events.refreshes, "written back": events.writes,
                "adjoints": events.adjoints, "copies": events.copies, "from the host": events.received,
                "to the host": events.sent,
            }  # fmt: skip
            moved = {name: counted.bytes for name, counted in bars.items()}
            moved["on the host"] = sum(counted.bytes for counted in events.fallbacks.values())
            ax.barh([*moved][::-1], [*moved.values()][::-1])
            ax.set_xlabel("bytes")
            ax.set_title(f"backend {self._runtime.backend.name}: no cost is declared")
            return ax
        names = [name for name in estimate._fields if name != "compile"][::-1]
        ax.barh(names, [getattr(estimate, name) * 1e3 for name in names])
        ax.set_xlabel("estimated time in ms")
        ax.set_title(f"backend {self._runtime.backend.name}: {seconds(estimate.run)} each run")
        return ax
