"""Report: what a backend did in a block: launches, programs, views, copies, fallbacks, memory, and an estimated time.

The time is what the compiler of the backend's target says, or a roofline over XLA's own cost analysis of each program,
with the numbers of the backend's `Cost`.  Compilers are asked when the estimate is, not while the block runs.
"""

from typing import Any, NamedTuple

import jax

from ..base.table import Row, Table, Tabled, axes, number, seconds, size
from ..execution.programs.cost import cost_of
from .cost import Cost
from .events import FROM, TO, Events, Launch
from .on_target import OnTarget

_MOST = 12  # rows of a list; more are summed up


class Estimate(NamedTuple):
    """Seconds, as a backend's `Cost` makes them: of Python, launches, arithmetic, memory, compiling, the link, and the
    host, which computes in place of the backend.  With a target, `chip` stands for arithmetic and memory.
    """

    host: float
    launch: float
    compute: float  # of an operator that runs alone, where its arithmetic takes longer than its memory traffic
    memory: float  # where it is the other way; of fused operators both count
    compile: float
    link: float  # bytes, and `latency` for each transfer; two for an operator that the host computes
    fallback: float  # what the host takes to compute such operators
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
        self._costs: dict[Any, tuple[float, float]] = {}
        self._answers: dict[Any, Any] = {}

    def __enter__(self) -> "Report":
        runtime = self._runtime
        self._before, runtime.memory.peak = runtime.memory.peak, runtime.memory.used
        runtime.reports = (*runtime.reports, self._events)
        return self

    def __exit__(self, *error: Any) -> None:
        runtime = self._runtime
        if error[0] is None:  # else what is noted waits: the error's frames refer to values that are dead without it
            runtime.settle()
        runtime.reports = tuple(events for events in runtime.reports if events is not self._events)
        self._events.peak = runtime.memory.peak
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

    def on_target(self) -> OnTarget | None:
        """Return what the compiler of the backend's target says of all programs; None for a backend without a target.

        Asking compiles each program once, for the target, in a process of its own.
        """
        target = self._runtime.backend.target
        return None if target is None else OnTarget(target, self._events, self._answers)

    def _roofline(self, cost: Cost, launches: dict[Any, list[Any]]) -> Estimate:
        """Return the time with `cost`; arithmetic and memory of these launches."""
        compute = memory = 0.0
        for key, (launch, count) in launches.items():
            flops, moved = self._cost(key, launch)
            busy, traffic = flops / cost.flops, moved / cost.bandwidth
            if launch.fused or busy > traffic:
                compute += count * busy
            if launch.fused or busy <= traffic:
                memory += count * traffic
        events = self._events
        over = events.sent.bytes + events.received.bytes + sum(found.bytes for found in events.fallbacks.values())
        transfers = events.sent.count + events.received.count + 2 * events.fallen
        fallback = 0.0
        for key, (launch, count) in events.on_host.items():
            flops, moved = self._cost(key, launch)
            fallback += count * max(flops / cost.host_flops, moved / cost.host_bandwidth)
        return Estimate(
            host=self.operators * cost.host,
            launch=self.launches * cost.launch,
            compute=compute,
            memory=memory,
            compile=len(events.programs) * cost.compile,
            link=over / cost.host_link + transfers * cost.transfer,
            fallback=fallback,
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

    def _cost(self, key: Any, launch: Launch) -> tuple[float, float]:
        """Return flops and bytes of a program, as XLA counts them; what it does not say is 0."""
        known = self._costs.get(key)
        if known is None:
            with jax.ensure_compile_time_eval():
                lowered = launch.lower()
                found = cost_of(lowered.compile()) if launch.fused or launch.spread else None
                if found is None:
                    analysis = lowered.cost_analysis() or {}
                    analysis = analysis[0] if isinstance(analysis, (list, tuple)) else analysis
                    known = float(analysis.get("flops", 0.0)), float(analysis.get("bytes accessed", 0.0))
                else:
                    known = found.flops or 0.0, found.bytes_accessed or 0.0
            self._costs[key] = known
        return known

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
            "peak memory": events.peak,
            "estimate": None if (estimate := self._known(chip)) is None else estimate._asdict(),
            "target": None if chip is None else chip.as_dict(),
        }

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
        both("views replayed", events.reads)
        both("  refreshed because stale", events.refreshes)
        both("views written back", events.writes)
        both("adjoints of views", events.adjoints)
        both("copies that donation would have saved", events.copies)
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
        row("peak memory", size(events.peak))
        if (chip := self.on_target()) is not None:
            found += chip.rows(events.peak)
        if (estimate := self._known(chip)) is not None:
            row("estimated time, each run", seconds(estimate.run))
            for name, value in estimate._asdict().items():
                if value and name != "compile":
                    row(f"  {name}", seconds(value))
            if estimate.compile:
                row("once, to compile", seconds(estimate.compile))
        return found

    # -- how it looks ---------------------------------------------------------------------------------------------

    def table(self) -> Table:
        """Return the table."""
        return Table(self.rows(), caption=f"backend {self._runtime.backend.name}", numbers=False)

    def plot(self, ax: Any = None) -> Any:
        """Draw the time of a run, without compiling, as bars, into matplotlib axes `ax` or a new figure; returns them.

        Raises `ImportError` without matplotlib, `ValueError` if the backend has no `cost`, and no target's compiler.
        """
        estimate = self.estimate()
        ax = axes(ax, 6, 2.2)
        names = [name for name in estimate._fields if name != "compile"][::-1]
        ax.barh(names, [getattr(estimate, name) * 1e3 for name in names])
        ax.set_xlabel("estimated time in ms")
        ax.set_title(f"backend {self._runtime.backend.name}: {seconds(estimate.run)} each run")
        return ax
