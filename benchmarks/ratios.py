"""Measure two things in turns, and their ratio.

    ours theirs  ours theirs  ours theirs  ...      each round gives a ratio; the table shows their median and quartiles

In turns, because a machine that is slow for a while is then slow for both.  On a CPU the time is the process's CPU
time, all its threads together, which other processes hardly change; on an accelerator it is the wall-clock time.
Invariant: two functions are timed only after they returned equal results (`Timed.tolerance`).
"""

import gc
import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xgrad.base.platforms import default_platform
from xgrad.execution.pending import quietly

WARM_UP = 3  # calls before the clock counts: the first compiles, the second may see other donations or layouts


@dataclass(frozen=True)
class Timed:
    """Two functions to time: each returns the arrays or tensors to wait for."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    tolerance: float | None = 1e-4  # the largest difference of first results, relative to the largest; None: no check

    def samples(self, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
        """Return the times of one call in each round, in µs; a side takes about `seconds` of a round."""
        sides = self.ours, self.theirs
        if self.tolerance is not None:
            check_equal(self.ours(), self.theirs(), self.tolerance)
        calls = []
        for function in sides:
            for _ in range(WARM_UP):
                wait_for(function())
            calls.append(max(1, int(seconds / max(timed(function, 1), 1e-7))))
        pairs = [[timed(function, n) * 1e6 for function, n in zip(sides, calls)] for _ in range(rounds)]
        return [a for a, _ in pairs], [b for _, b in pairs]


@dataclass(frozen=True)
class Counted:
    """Two functions that return numbers: bytes, programs, or seconds of work that a process does only once."""

    ours: Callable[[], float]
    theirs: Callable[[], float]
    unit: str
    varies: bool = False  # False: one round is enough

    def samples(self, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
        """Return the numbers of each round, ours and theirs."""
        if not self.varies:
            return [self.ours()], [self.theirs()]
        for function in (self.ours, self.theirs):  # compile what both sides use
            function()
        pairs = [(self.ours(), self.theirs()) for _ in range(min(rounds, 5))]
        return [a for a, _ in pairs], [b for _, b in pairs]


@dataclass(frozen=True)
class Row:
    """A line of the table: its two sides, and the promised bound and aim of their ratio."""

    name: str  # for the command line
    group: str
    what: str
    against: str
    make: Callable[[], Timed | Counted]
    bound: float | None = None  # the largest ratio that passes
    aim: float | None = None  # the ratio to work towards
    needs: str | None = None  # the module that the row needs: without it the row is skipped


@dataclass(frozen=True)
class Result:
    """The numbers of a row: in each round one of ours and one of theirs; or `note`, which says why there are none."""

    row: Row
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    unit: str = ""
    note: str = ""
    failed: bool = False

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.ours, self.theirs)]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.ratios) == 1:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.ratios, method="inclusive")
        return low, high

    @property
    def verdict(self) -> str:
        """Return "ahead" (aim reached), "holds" (bound kept) or "FALLS SHORT"; bounds are for a CPU."""
        row = self.row
        if self.note or row.bound is None or default_platform() != "cpu":
            return self.note
        if row.aim is not None and self.median <= row.aim:
            return "ahead"
        return "holds" if self.median <= row.bound else "FALLS SHORT"

    def as_dict(self) -> dict[str, Any]:
        """Return the row and all its numbers, round by round, for JSON."""
        row = self.row
        facts = {key: getattr(row, key) for key in ("name", "group", "what", "against", "bound", "aim")}
        if not self.note:
            facts |= {"ratio": self.median, "quartiles": self.quartiles}
            facts |= {"unit": self.unit, "ours": self.ours, "theirs": self.theirs}
        return facts | {"verdict": self.verdict}


# ---------------------------------------------------------------- measuring


def measure(row: Row, rounds: int, seconds: float = 0.01) -> Result:
    """Make the two sides of the row, and measure them.  A row that fails gets a note, and the other rows go on."""
    if row.needs and importlib.util.find_spec(row.needs) is None:
        return Result(row, note=f"{row.needs} is not installed")
    gc.collect()  # free the garbage of earlier rows
    try:
        sides = row.make()
        ours, theirs = sides.samples(rounds, seconds)
    except Exception as error:
        text = next(iter(str(error).splitlines()), "")
        return Result(row, note=f"failed: {type(error).__name__}: {text}", failed=True)
    return Result(row, ours, theirs, sides.unit if isinstance(sides, Counted) else "µs")


def clock() -> float:
    """Return seconds: the process's time if the CPU does the work, else the wall's."""
    return time.process_time() if default_platform() == "cpu" else time.perf_counter()


def timed(function: Callable[[], Any], calls: int) -> float:
    """Return the seconds of one call, measured until its results are computed."""
    result = None
    start = clock()
    for _ in range(calls):
        result = function()
    wait_for(result)
    return (clock() - start) / calls


def wait_for(result: Any) -> None:
    """Wait until arrays, and the arrays of tensors, are computed.

    No reference to a tensor's array remains, and none is exported: a later write may donate it.
    """
    arrays = [quietly(leaf._share().array) if hasattr(leaf, "_share") else leaf for leaf in leaves(result)]
    jax.block_until_ready(arrays)


def leaves(result: Any) -> Iterable[Any]:
    """Yield the leaves of nested tuples and lists: arrays of JAX's, tensors of xgrad's or torch's."""
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from leaves(part)
    else:
        yield result


def check_equal(ours: Any, theirs: Any, tolerance: float) -> None:
    """Raise ValueError unless both sides computed the same: else the ratio of their times says nothing."""
    pair = [[as_numpy(leaf) for leaf in leaves(side)] for side in (ours, theirs)]
    if [a.shape for a in pair[0]] != [b.shape for b in pair[1]]:
        shapes = " and ".join(str([a.shape for a in side]) for side in pair)
        raise ValueError(f"the two sides give results of different shapes: {shapes}")
    for i, (a, b) in enumerate(zip(*pair)):
        off = float(np.abs(a - b).max(initial=0))
        if not off <= tolerance * float(np.abs(b).max(initial=0)):
            raise ValueError(f"the two sides disagree: result {i} by {off:.3g}")


def as_numpy(leaf: Any) -> np.ndarray:
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().numpy()
    return np.asarray(leaf, dtype=np.float64)


# ---------------------------------------------------------------- showing


COLUMNS = ("what", "against", "ratio", "quartiles", "bound", "aim", "")


def cells(result: Result) -> tuple[str, ...]:
    """Return a row of the table: a text for each of COLUMNS."""
    row = result.row
    bound, aim = ("" if p is None else f"{p:g}" for p in (row.bound, row.aim))
    spread = " .. ".join(map(short, result.quartiles)) if len(result.ours) > 1 else ""
    ratio = "" if result.note else short(result.median)
    return row.what, row.against, ratio, spread, bound, aim, result.verdict


def table(results: Iterable[Result], rows: Iterable[Row]) -> Iterable[str]:
    """Yield the lines of a table as the results come in; `rows` are the rows of all results to come."""
    rows = list(rows)
    widths = [max(len(getattr(row, key)) for row in rows) for key in ("what", "against")]

    def line(what: str, against: str, ratio: str, spread: str, bound: str, aim: str, verdict: str) -> str:
        named = f"{what:<{widths[0]}}  {against:<{widths[1]}}"
        return f"{named}  {ratio:>6}  {spread:>16}  {bound:>5}  {aim:>5}  {verdict}".rstrip()

    yield line(*COLUMNS)
    for group, own in itertools.groupby(results, lambda result: result.row.group):
        yield f"-- {group} ".ljust(sum(widths) + 2, "-")
        for result in own:
            yield line(*cells(result))


def styled(results: Iterable[Result]) -> Iterable[list[tuple[str, str]]]:
    """Yield the rows of the table, each cell with a style of rich's; an empty row before each group's."""
    for group, own in itertools.groupby(results, lambda result: result.row.group):
        yield []
        yield [(group, "bold")]
        for result in own:
            colour = {"ahead": "green", "holds": "green", "FALLS SHORT": "bold red"}.get(result.verdict, "")
            yield [(text, colour if place in (2, 6) else "") for place, text in enumerate(cells(result))]


def short(ratio: float) -> str:
    """Return the ratio as text: three digits, an integer from 100 on, one digit below 0.001.

    >>> short(0.04567), short(1.0), short(1234.5)
    ('0.0457', '1.00', '1234')
    """
    return f"{ratio:#.3g}" if 1e-3 <= ratio < 100 else f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1g}"


# Okabe and Ito's colours: the colour-blind can distinguish them; shapes say the same again.
_STYLES = {
    "ahead": ("#0072B2", "o", "aim reached"),
    "holds": ("#56B4E9", "D", "bound kept"),
    "FALLS SHORT": ("#D55E00", "s", "bound broken"),
    "": ("#6e7781", "o", "nothing promised"),
}

_BAND = "#d0d7de"


def draw(results: list[Result], title: str, path: Path) -> None:
    """Draw the table: the median of each row as a dot, its quartiles as a whisker, bound and aim as marks."""
    import matplotlib as mpl  # an optional library

    mpl.use("agg")
    import matplotlib.pyplot as plt  # behind the choice of a backend
    from matplotlib.lines import Line2D

    lines: list[Result | str] = []  # from top to bottom: a group's name, then its rows
    for group, own in itertools.groupby(results, lambda result: result.row.group):
        lines += [group, *own]
    figure, axes = plt.subplots(figsize=(10, 1.6 + 0.27 * len(lines)), layout="constrained")
    axes.set_xscale("log")
    measured = [r for r in results if not r.note]
    seen = [x for r in measured for x in (r.median, *r.quartiles)] + [1.0]
    seen += [p for r in results for p in (r.row.bound, r.row.aim) if p is not None]
    axes.set_xlim(min(seen) / 1.4, max(seen) * 1.4)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.axvline(1, color="#8b949e", linewidth=0.8, zorder=0)

    labels = []
    for y, line in enumerate(lines):
        if isinstance(line, str):
            labels.append(line)
            continue
        row = line.row
        labels.append(f"{row.what} / {row.against}")
        if row.bound is not None:
            axes.plot(
                [row.aim or row.bound, row.bound], [y, y], color=_BAND, linewidth=9, solid_capstyle="butt", zorder=1
            )
            axes.plot(row.bound, y, "|", color="black", markersize=12, markeredgewidth=1.6, zorder=2)
        beside = axes.get_yaxis_transform()
        if line.note:
            note = line.note if len(line.note) <= 72 else line.note[:70] + " …"
            white = dict(facecolor="white", edgecolor="none", alpha=0.85, pad=1)  # over the marks of bound and aim
            axes.text(0.01, y, note, transform=beside, va="center", fontsize=8, style="italic", bbox=white, zorder=5)
            continue
        colour, marker, _ = _STYLES[line.verdict]
        axes.plot(line.quartiles, [y, y], "|-", color=colour, linewidth=1.5, markersize=7, zorder=3)
        axes.plot(line.median, y, marker, color=colour, markersize=6, zorder=4)
        axes.text(1.07, y, short(line.median), transform=beside, va="center", ha="right", fontsize=8.5)

    axes.set_yticks(range(len(lines)), labels, fontsize=8.5)
    for label, line in zip(axes.get_yticklabels(), lines):
        label.set_fontweight("bold" if isinstance(line, str) else "normal")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.grid(axis="x", alpha=0.3, linewidth=0.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("ratio; left of 1, xgrad takes less", fontsize=9)
    figure.suptitle(title, fontsize=10)
    used = {r.verdict for r in measured}
    legend = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=text)
        for verdict, (colour, marker, text) in _STYLES.items()
        if verdict in used
    ]
    legend.append(Line2D([], [], color="#57606a", marker="|", linewidth=1.5, markersize=7, label="quartiles"))
    legend.append(Line2D([], [], color=_BAND, linewidth=9, label="from aim to bound"))
    figure.legend(handles=legend, loc="outside lower center", ncols=len(legend), frameon=False, fontsize=8.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)
