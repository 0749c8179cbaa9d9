"""Shows `Findings`, the result of `xgrad.compare` without `backends`, as text, HTML or bars, or by the package rich.

The columns are "replay" and "geometry", the two ways to record a view that was written, which are called paths here.
The rows are made once; `xgrad/base/table.py` lays them out.
"""

from collections.abc import Iterator
from dataclasses import asdict
from html import escape
from typing import Any

from ..base.table import Row, Table, axes, number, rich_console, seconds, size
from ..chips.reading import Reading
from ..execution.programs.cost import Cost, cost_of
from ..views.tracking import PATHS
from .circumstances import as_line
from .findings import Findings, PathReport, ViewProgram
from .timing import said, slower

_MOST_PROGRAMS = 12  # of each path that are listed one by one; of more, their number


# ---------------------------------------------------------------- the table


def verdict(comparison: Findings) -> str:
    """Return one line about all values."""
    if comparison.equal:
        return "outputs and gradients are equal, bit for bit"
    largest = f"the largest difference is {comparison.max_difference:.3g}"
    return f"equal up to rounding: {largest}" if comparison.within_rounding else f"NOT EQUAL: {largest}"


def values(comparison: Findings) -> list[str]:
    """Return one line for each output and gradient."""
    lines = []
    for d in comparison.differences:
        if d.equal:
            state = "equal"
        elif d.largest is None:
            state = "NOT EQUAL: only one path has it, or shape or dtype differ"
        else:
            state = f"{'within rounding' if d.within_rounding else 'NOT EQUAL'}, difference {d.largest:.3g}"
        lines.append(f"{d.name} {d.dtype}{list(d.shape)}: {state}")
    return lines


_TIMED = {
    "compile views": "compile time of views", "compile": "compile time of one program",
    "compiled": "run time of one program", "eager": "run time, eager",
}  # fmt: skip


def times_said(comparison: Findings) -> list[str]:
    """Return lines that say which path takes longer, where that can be said, and which times vary widely."""
    reports = [comparison.paths[path] for path in PATHS]
    found = [(label, {r.name: r.times[what] for r in reports if what in r.times}) for what, label in _TIMED.items()]
    lines = [text for label, times in found if len(times) == len(PATHS) for text in said(label, times)]
    how = "times: in turns, A B B A, medians ± half the distance of the quartiles; compiles find no cache"
    return [*lines, how] if lines else []


def _costs(costs: list[Cost], times: list[Any] | None = None, depth: int = 1) -> Iterator[Row]:
    yield Row("operations", tuple(number(c.operations) for c in costs), depth)
    yield Row("FLOPs", tuple(number(c.flops) for c in costs), depth)
    yield Row("bytes accessed", tuple(size(c.bytes_accessed) for c in costs), depth)
    yield Row("temporary memory", tuple(size(c.temporary_bytes) for c in costs), depth)
    if times and all(times):
        yield Row("compile time", tuple(map(str, times)), depth)
    elif times is None and any(c.compile_seconds is not None for c in costs):
        yield Row("compile time, once", tuple(seconds(c.compile_seconds) for c in costs), depth)


def rows(comparison: Findings) -> Iterator[Row]:
    """Yield the rows of the table, below its heading."""
    reports = [comparison.paths[path] for path in PATHS]
    yield Row("nodes in the graph", tuple(number(r.nodes.total()) for r in reports))
    names = {name: max(r.nodes[name] for r in reports) for r in reports for name in r.nodes}
    for name in sorted(names, key=lambda n: (-names[n], n)):
        yield Row(name, tuple(number(r.nodes[name]) if r.nodes[name] else "-" for r in reports), 1)
    if any(r.programs for r in reports):
        yield Row("programs of views in backward", tuple(number(len(r.programs)) for r in reports))
        yield from _costs([r.views for r in reports], [r.times.get("compile views") for r in reports])
    if all(r.whole is not None for r in reports):
        yield Row("forward and backward as one program")
        yield from _costs([r.whole for r in reports if r.whole is not None], [r.times.get("compile") for r in reports])
        if all("compiled" in r.times for r in reports):
            yield Row("run time", tuple(str(r.times["compiled"]) for r in reports), 1)
    yield from _on_chip(comparison.target, reports)
    if all("eager" in r.times for r in reports):
        yield Row("forward and backward, eager")
        yield Row("run time", tuple(str(r.times["eager"]) for r in reports), 1)


def _on_chip(target: Any, reports: list[PathReport]) -> Iterator[Row]:
    """Yield the rows of a target: what its compiler says of both paths."""
    if target is None:
        return
    if any(r.programs for r in reports):
        yield Row(f"programs of views on {target.name}")
        yield Row("estimated time", tuple(seconds(_time_of_views(r)) for r in reports), 1)
        yield from _costs([r.views_on_chip for r in reports])
    answers = [r.on_chip for r in reports]
    if all(answer is not None for answer in answers):
        yield Row(f"one program on {target.name}", tuple(answer.state for answer in answers))
        yield Row("estimated time", tuple(seconds(answer.estimated_seconds) for answer in answers), 1)
        yield Row("estimated cycles", tuple(number(Reading(answer.hlo).cycles) for answer in answers), 1)
        yield from _costs([cost_of(answer, answer.seconds) for answer in answers])


def _time_of_views(report: PathReport) -> float | None:
    """Return the estimated time of a path's view programs on the chip, None if the compiler has none."""
    found = [(p.on_chip.estimated_seconds, p.nodes) for p in report.programs]
    return None if any(time is None for time, _ in found) else sum(time * n for time, n in found)


def as_dict(comparison: Findings) -> dict[str, Any]:
    """Return all but the values, as numbers, strings, lists and dictionaries."""

    def told(answer: Any) -> dict[str, Any]:
        found = {"state": answer.state, "said": answer.said, "estimated seconds": answer.estimated_seconds}
        return found | {"cycles": Reading(answer.hlo).cycles} | asdict(cost_of(answer, answer.seconds))

    def of(r: PathReport) -> dict[str, Any]:
        def program(p: ViewProgram) -> dict[str, Any]:
            return dict(role=p.role, steps=p.steps, root=[*p.chain.root_shape], view=[*p.chain.shape], nodes=p.nodes)

        views = [p for p in r.programs if p.on_chip is not None]
        return {
            "nodes": dict(r.nodes), "views": asdict(r.views), "program": None if r.whole is None else asdict(r.whole),
            "on the chip": None if r.on_chip is None else told(r.on_chip),
            "view programs": [program(p) | asdict(p.cost) for p in r.programs],
            "views on the chip": [program(p) | told(p.on_chip) for p in views],
            "eager seconds": r.eager_seconds, "compiled seconds": r.compiled_seconds,
            "times": {what: [*found] for what, found in r.times.items()},
        }  # fmt: skip

    whole = {
        "name": comparison.name, "equal": comparison.equal, "within rounding": comparison.within_rounding,
        "target": comparison.target and comparison.target.name, "circumstances": comparison.circumstances,
        "times": times_said(comparison),
    }  # fmt: skip
    return whole | {path: of(r) for path, r in comparison.paths.items()}


def programs(comparison: Findings) -> str:
    """Return the optimized programs, each under a heading."""
    found = []
    for path, r in comparison.paths.items():
        found += [f"// {path}, on the CPU", r.hlo or r.untraceable or "not compiled"]
        if r.on_chip is not None:
            found += [f"// {path}, on {comparison.target.name}", r.on_chip.hlo or r.on_chip.said]
    return "\n".join(found)


def notes(comparison: Findings) -> list[str]:
    """Return the lines under the table: view programs, and why no whole one exists."""
    lines = []
    for path in PATHS:
        programs = comparison.paths[path].programs
        for p in programs[:_MOST_PROGRAMS]:
            shapes = f"{list(p.chain.root_shape)} -> {list(p.chain.shape)}"
            cost = f"{number(p.cost.operations)} operations, {size(p.cost.bytes_accessed)}"
            if (chip := p.on_chip) is not None:
                there = size(chip.bytes_accessed) if chip.state == "compiles" else chip.state
                cost += f"; {comparison.target.name}: {there}"
            lines.append(f"{path:<9} {p.role:<8} {shapes}  {p.steps}  x{p.nodes}  ({cost})")
        if len(programs) > _MOST_PROGRAMS:
            lines.append(f"{path:<9} {len(programs) - _MOST_PROGRAMS} more programs, which as_dict() lists")
    untraceable = comparison.paths[PATHS[0]].untraceable
    if untraceable is not None:
        lines.append(f"not one program: {untraceable}")
    return lines


def foot(comparison: Findings) -> list[str]:
    """Return the lines at the end: what the times say, and versions, device and date."""
    return [*times_said(comparison), as_line(comparison.circumstances)]


def table(comparison: Findings) -> Table:
    """Return the table: a column for each path."""
    return Table(list(rows(comparison)), PATHS)


def text(comparison: Findings) -> str:
    """Return the verdict, the values and the table as aligned plain text."""
    lines = [f"compare {comparison.name}: {verdict(comparison)}"]
    lines += [f"  {line}" for line in values(comparison)]
    lines += ["", *table(comparison).lines()]
    extra = notes(comparison)
    return "\n".join([*lines, "", *extra, *[""] * bool(extra), *foot(comparison)])


def html(comparison: Findings) -> str:
    """Return the same for a notebook."""
    good = comparison.within_rounding
    parts = [
        f"<p><b>compare {escape(comparison.name)}</b>: "
        f"<span style='color:{'#1a7f37' if good else '#cf222e'}'>{escape(verdict(comparison))}</span><br>",
        "<br>".join(f"<small>{escape(line)}</small>" for line in values(comparison)),
        f"</p>{table(comparison).html()}",
    ]
    extra = notes(comparison)
    if extra:
        lines = escape("\n".join(extra))
        parts.append(f"<details><summary>the view programs</summary><pre>{lines}</pre></details>")
    parts += [f"<p><small>{'<br>'.join(map(escape, foot(comparison)))}</small></p>"]
    return "".join(parts)


def print_rich(comparison: Findings) -> None:
    """Print the same by the package rich.  Raises `ImportError` if it is not installed."""
    drawn = table(comparison)
    console = rich_console()
    colour = "green" if comparison.within_rounding else "red"
    console.print(f"[bold]compare {comparison.name}[/bold]: [{colour}]{verdict(comparison)}[/{colour}]")
    for text in values(comparison):
        console.print(f"  {text}", markup=False, highlight=False)
    drawn.print()
    for text in [*notes(comparison), *foot(comparison)]:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


# ---------------------------------------------------------------- the picture

_COLOURS = {"replay": "#1f6feb", "geometry": "#e08a1e"}


def bars(comparison: Findings) -> list[tuple[str, list[float], list[str], bool]]:
    """Return (label, value of each path, the value as text, True if they differ); unknown values have no bars.

    Times differ where chance does not explain it.
    """
    reports = [comparison.paths[path] for path in PATHS]
    views = [r.views if r.programs else None for r in reports]
    wholes = [r.whole for r in reports]
    candidates: list[tuple[str, list[Any], Any]] = [
        ("nodes in the graph", [float(r.nodes.total()) for r in reports], number),
        ("view programs:\noperations", [c and c.operations for c in views], number),
        ("view programs:\nbytes accessed", [c and c.bytes_accessed for c in views], size),
        ("one program:\noperations", [c and c.operations for c in wholes], number),
        ("one program:\nbytes accessed", [c and c.bytes_accessed for c in wholes], size),
        ("one program:\ntemporary memory", [c and c.temporary_bytes for c in wholes], size),
        ("one program:\ncompile time", [r.times.get("compile") for r in reports], str),
        ("one program:\nrun time", [r.times.get("compiled") for r in reports], str),
        ("eager:\nrun time", [r.times.get("eager") for r in reports], str),
    ]
    chips = [r.on_chip for r in reports]
    where = comparison.target and comparison.target.name
    candidates += [
        (f"{where}:\nestimated time", [c and c.estimated_seconds for c in chips], seconds),
        (f"{where}:\nbytes accessed", [c and c.bytes_accessed for c in chips], size),
        (f"{where}:\ntemporary memory", [c and c.memory.get("temp") for c in chips], size),
    ]
    found = []
    for label, amounts, show in candidates:
        if all(v is not None for v in amounts):
            timed = show is str
            values = [v.median if timed else float(v) for v in amounts]
            differ = slower(*amounts) != 0 if timed else values[0] != values[1]
            found += [(label, values, [show(v) for v in amounts], differ)] * (max(values) > 0)
    return found


def _when(comparison: Findings) -> str:
    return as_line({name: text for name, text in comparison.circumstances.items() if name not in ("xgrad", "python")})


def plot(comparison: Findings, ax: Any = None) -> Any:
    """Draw horizontal bars, each pair relative to its larger one, with the values written beside them.

    A pair is pale where the paths are alike: times, where chance explains what they differ by.
    """
    drawn = bars(comparison)
    ax = axes(ax, 7, 0.62 * len(drawn) + 1.2)
    height = 0.38
    for place, path in enumerate(PATHS):
        at = [i + (place - 0.5) * height for i in range(len(drawn))]
        lengths = [amounts[place] / max(amounts) for _, amounts, *_ in drawn]
        painted = ax.barh(at, lengths, height=height * 0.92, color=_COLOURS[path], label=path)
        for y, length, bar, (_, _, texts, differ) in zip(at, lengths, painted, drawn):
            bar.set_alpha(1.0 if differ else 0.35)
            ax.text(length + 0.015, y, texts[place], va="center", fontsize=8, color="#444444")
    ax.set_yticks(range(len(drawn)), [label for label, *_ in drawn], fontsize=8.5)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.22)
    ax.set_xticks([])
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    equal = "equal, bit for bit" if comparison.equal else f"largest difference {comparison.max_difference:.2g}"
    ax.set_title(f"replay against geometry: values and gradients\n{equal}", fontsize=10.5, loc="left")
    legend = ax.legend(loc="upper center", bbox_to_anchor=(0.45, 0.0), ncols=2, frameon=False, fontsize=9)
    for handle in legend.legend_handles:
        handle.set_alpha(1.0)
    ax.set_xlabel(f"pale: alike, or different by no more than chance\n{_when(comparison)}", fontsize=7.5, labelpad=26)
    return ax
