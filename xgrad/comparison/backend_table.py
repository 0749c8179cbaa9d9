"""BackendComparison: shows how one function's results differ between backends, as a table, for `xgrad.compare`."""

from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from ..base.table import Row, Table, axes, number, rich_console, seconds, size
from .circumstances import as_line
from .difference import Difference
from .timing import Times, said


@dataclass
class BackendRun:
    """The results on one backend: `outputs` and `gradients` (None: there is none) are NumPy arrays.

    `report`: what a declared backend did in its first run (`Backend.report`), None for a device of JAX's.  `times`: the
    seconds of each timed run.  `refused`: the error of a backend that lacks something; then it has no results.
    """

    name: str
    outputs: tuple[np.ndarray, ...] = ()
    gradients: tuple[np.ndarray | None, ...] = ()
    report: Any = None
    refused: str | None = None
    times: Times | None = None

    @property
    def seconds(self) -> float | None:
        """The median time of a run; None if it was not timed."""
        return self.times.median if self.times else None


class FirstDifference(NamedTuple):
    """The first operator whose values differ from those on the first backend that can run the function.

    `number`: how many operators ran before it; `line`: the user's; `first` and `other`: its values there and here.
    Both are None where other operators run, and where no operator was found to differ: then `operator` is "backward".
    `rounding`: True if the operators' values differ within rounding alone.
    """

    number: int
    operator: str
    line: str
    first: np.ndarray | None
    other: np.ndarray | None
    rounding: bool = False

    def __str__(self) -> str:
        if self.operator == "backward":
            within = " within rounding" * self.rounding
            return f"the values of all operators are equal{within}, and the gradients differ"
        if self.first is None or self.other is None:
            return f"other operators run from number {self.number} on: {self.operator}, at {self.line}"
        at = _worst(self.first, self.other)
        where = f" at {list(map(int, at))}" if at else ""
        return (
            f"values first differ {'by rounding ' if self.rounding else ''}at operator {self.number}, "
            f"{self.operator}, at {self.line}: "
            f"{self.first[at]} and {self.other[at]}{where}"
        )


def _worst(a: np.ndarray, b: np.ndarray) -> tuple[Any, ...]:
    """Return the index of the largest difference."""
    if a.shape != b.shape:
        return ()
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        distance = np.abs(a.astype(wide) - b.astype(wide))
    # Where both are NaN, or the same infinity, they do not differ.
    distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.where(np.isnan(distance), np.inf, distance))
    return np.unravel_index(int(np.argmax(distance)), a.shape) if a.shape else ()


def _running(estimate: dict[str, float]) -> dict[str, float]:
    """Return the parts of an estimate that each run takes."""
    return {part: value for part, value in estimate.items() if part != "compile"}


@dataclass
class BackendComparison:
    """One function on several backends: what `xgrad.compare(f, *inputs, backends=[...])` returns.

    `runs`: {backend: `BackendRun`}; the first that refuses nothing is the one that the others are compared with.
    `differences`: {backend: the differences of its outputs and gradients from those}; `parts`: {backend:
    `FirstDifference`} of those that are not equal, bit for bit.  It prints as a table, also in a notebook.

    >>> import xgrad
    >>> chip = xgrad.Backend("chip")
    >>> x = xgrad.ones(3, requires_grad=True)
    >>> found = xgrad.compare(lambda x: x.t().exp(), x, backends=["cpu", chip, chip.replace(strides=True)], repeats=1)
    >>> found.equal, list(found.runs)
    (True, ['cpu', 'chip', 'chip, strides=True'])
    """

    name: str
    runs: dict[str, BackendRun]
    differences: dict[str, list[Difference]] = field(default_factory=dict)
    parts: dict[str, FirstDifference] = field(default_factory=dict)
    circumstances: dict[str, Any] = field(default_factory=dict)  # versions, device, date

    @property
    def equal(self) -> bool:
        """True if all backends have all values, equal bit for bit."""
        return not self.refused and all(d.equal for found in self.differences.values() for d in found)

    @property
    def within_rounding(self) -> bool:
        """True if all backends have all values, equal up to rounding."""
        return not self.refused and all(d.within_rounding for found in self.differences.values() for d in found)

    @property
    def refused(self) -> dict[str, str]:
        """The backends that lack something, with their errors."""
        return {name: run.refused for name, run in self.runs.items() if run.refused is not None}

    @property
    def max_difference(self) -> float:
        """The largest absolute difference of any output or gradient; infinite if only one backend has one."""
        found = [d.largest for one in self.differences.values() for d in one]
        return max((float("inf") if largest is None else largest for largest in found), default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return all but the values, as numbers, strings, lists and dictionaries."""
        return {
            name: {
                "refused": run.refused,
                "equal": run.refused is None and all(d.equal for d in self.differences.get(name, ())),
                "within rounding": run.refused is None
                and all(d.within_rounding for d in self.differences.get(name, ())),
                "parts": str(self.parts[name]) if name in self.parts else None,
                "seconds": run.seconds,
                "times": None if run.times is None else [*run.times],
                "report": None if run.report is None else run.report.as_dict(),
                "circumstances": self.circumstances,
            }
            for name, run in self.runs.items()
        }

    # -- the table ------------------------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Return the rows of the table: a label, and a cell for each backend."""
        runs = list(self.runs.values())
        base = next((run.name for run in runs if run.refused is None), None)
        rows = [Row("values", tuple([self._state(run, base) for run in runs]))]
        reports = [None if run.report is None else run.report.as_dict() for run in runs]

        def row(label: str, of: Any) -> None:
            cells = tuple(["-" if report is None else of(report) for report in reports])
            if any(cell not in ("-", "0", "0, 0 B") for cell in cells):
                rows.append(Row(label.lstrip(), cells, int(label.startswith(" "))))

        def told(found: dict[str, int]) -> str:
            return f"{number(found['count'])}, {size(found['bytes'])}"

        row("operators", lambda r: number(sum(r["operators"].values())))
        row("launches", lambda r: number(r["launches"]))
        row("programs compiled", lambda r: number(len(r["programs"])))
        for name, label in (("read", "views replayed"), ("refreshed", "stale views"), ("written back", "written back")):
            row(label, lambda r, name=name: told(r["views"][name]))
        row("adjoints of views", lambda r: told(r["views"]["adjoint"]))
        row("copies for want of donation", lambda r: told(r["copies that donation would have saved"]))
        row("copies of shared storages", lambda r: told(r["copies of shared storages"]))
        row("on the host", lambda r: number(sum(found["count"] for found in r["fallbacks"])))
        row("peak memory", lambda r: size(r["peak memory"]))
        row("bytes accessed", lambda r: "-" if r["bytes accessed"] is None else size(r["bytes accessed"]))

        def chip(label: str, of: Any) -> None:
            row(label, lambda r: "-" if r["target"] is None or r["target"]["missing"] else of(r["target"]))

        chip("bytes accessed on the chip", lambda t: size(t["bytes accessed"]))
        chip("temporary memory on the chip", lambda t: size(t["temporary"]))
        chip("not compiled for the chip", lambda t: number(sum(p["state"] != "compiles" for p in t["programs"])))
        # Compile time has a row of its own: the time here does not include it either.
        row(
            "estimated time", lambda r: "-" if r["estimate"] is None else seconds(sum(_running(r["estimate"]).values()))
        )
        row("  to compile", lambda r: "-" if r["estimate"] is None else seconds(r["estimate"]["compile"]))
        if any(run.times for run in runs):
            rows.append(Row("time here", tuple([str(run.times or "-") for run in runs])))
        return rows

    def _state(self, run: BackendRun, base: str | None) -> str:
        if run.refused is not None:
            return "refused"
        if run.name == base:
            return "reference"
        found = self.differences[run.name]
        if all(d.equal for d in found):
            return "equal"
        largest = max(float("inf") if d.largest is None else d.largest for d in found)
        return f"{'rounding' if all(d.within_rounding for d in found) else 'NOT EQUAL'}, {largest:.3g}"

    def notes(self) -> list[str]:
        """Return the lines under the table: where values first differ, what was refused, what the times say."""
        lines = [f"{name}: {parting}" for name, parting in self.parts.items()]
        lines += [f"{name}: {why}" for name, why in self.refused.items()]
        timed = {name: run.times for name, run in self.runs.items() if run.times}
        return [*lines, *(said("time here", timed) if timed else ()), as_line(self.circumstances)]

    def table(self) -> Table:
        """Return the table: a column for each backend."""
        return Table(self.rows(), list(self.runs), f"compare {self.name}")

    def __str__(self) -> str:
        return "\n".join([f"compare {self.name}", *self.table().lines(), *self.notes()])

    __repr__ = __str__

    def print(self, rich: bool = False) -> None:
        """Print the table; with `rich=True` by the package rich.  Raises `ImportError` if it is not installed."""
        if not rich:
            print(self)
            return
        self.table().print()
        for line in self.notes():
            rich_console().print(line, markup=False, highlight=False, soft_wrap=True)

    def _repr_html_(self) -> str:
        return self.table().html() + "".join(f"<p><small>{escape(line)}</small></p>" for line in self.notes())

    def plot(self, ax: Any = None) -> Any:
        """Draw the estimated time of each backend in its parts, and the time that it took here as a mark.

        Both are without compiling; a backend that refused has none.  Draws into matplotlib axes `ax` or a new figure,
        and returns the axes.  Raises `ImportError` without matplotlib, `ValueError` if there is neither a backend with
        a `cost` nor a measured time.
        """
        runs = [run for run in self.runs.values() if run.refused is None]
        names = [run.name for run in runs]
        told = [None if run.report is None else run.report.as_dict()["estimate"] for run in runs]
        estimates = [None if found is None else _running(found) for found in told]
        measured = [(i, run.seconds * 1e3) for i, run in enumerate(runs) if run.seconds is not None]
        if not measured and not any(estimates):
            raise ValueError("plot(): no backend declares a cost, and no run was timed: there is nothing to draw")
        ax = axes(ax, 7, 0.5 * len(names) + 1.6)
        begin = [0.0] * len(names)
        for part in next((list(found) for found in estimates if found), []):
            lengths = [found[part] * 1e3 if found else 0.0 for found in estimates]
            if any(lengths):
                ax.barh(range(len(names)), lengths, left=begin, height=0.6, label=part)
                begin = [start + length for start, length in zip(begin, lengths)]
        if measured:
            places, times = zip(*measured)
            ax.plot(times, places, "k|", markersize=14, label="measured here")
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlim(left=0)
        ax.set_xlabel("time in ms: bars are estimated" if any(begin) else "time in ms")
        ax.set_title(f"compare {self.name}", loc="left")
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
        return ax
