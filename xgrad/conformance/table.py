"""Writes a device's conformance report (`python -m xgrad conform`) as text: a table, and why cells are not right."""

from collections.abc import Iterator

from ..base.table import Row, Table, rich_console
from .measure import TOLERANCE, coarser
from .on_chip import LONG
from .records import COMPILES, ENDS, FAILED, GATHERS, REFUSED, RIGHT, SLOW, WRONG, Cell
from .results import Results

STYLES = {
    RIGHT: "green", REFUSED: "yellow", FAILED: "bold magenta", WRONG: "bold red",
    COMPILES: "green", GATHERS: "yellow", SLOW: "yellow", ENDS: "bold red",
}  # fmt: skip
ABSENT = "·"


def shown(cell: Cell | None) -> str:
    """Return a cell's text.

    >>> from xgrad.conformance.records import Check
    >>> shown(Cell((Check("forward", "right", 0.5), Check("gradient", "right", 1.25)))), shown(None)
    ('ok 1.2', '·')
    """
    if cell is None:
        return ABSENT
    error = "" if cell.error is None else f" {roundings(cell.error)}"
    loud = {RIGHT: f"ok{error}", WRONG: f"WRONG{error}", FAILED: "FAILED", COMPILES: "ok", ENDS: "ENDS"}
    text = loud.get(cell.state, cell.state)
    return f"{text} host" if cell.host else text


def roundings(error: float) -> str:
    """Return an error with two digits.

    >>> roundings(0.0), roundings(0.04), roundings(12.3), roundings(5123.0)
    ('0', '0.04', '12', '5.1e+03')
    """
    return "0" if not error else f"{error:.1g}" if error < 0.1 else f"{error:.2g}"


def head(report: Results) -> list[str]:
    """Return the lines above the table."""
    facts = report.facts
    return [
        f"xgrad {facts['xgrad']} on {facts['device']} ({facts['kind']}), jax {facts['jax']}",
        f"{'compiled, not run' if 'compiled for' in facts else 'against the CPU in float64'}; {facts['samples']}",
        *[
            f"accepted: {name} within {part:.3g} of the largest element"
            for name, part in facts.get("accepted", {}).items()
        ],
    ]


def legend(report: Results) -> str:
    """Return the line that explains the cells."""
    if "compiled for" in report.facts:
        return (
            "ok: compiles; gathers: element by element, or far more bytes than arguments and results have; "
            f"slow: over {LONG:g} s to compile; refused: by the compiler, or by xgrad in words; ENDS: the compiler's "
            f"process ends; FAILED: an error of xgrad's; {ABSENT}: not taken in this dtype, or no program"
        )
    dtypes = [d for d in report.facts["dtypes"] if d in TOLERANCE]
    allowed = ", ".join(f"{TOLERANCE[d]:.0f} in {d}" for d in dtypes)
    if formats := report.facts.get("products"):
        coarse = [f"{TOLERANCE[d] * coarser(d, *formats):.0f} in {d}" for d in dtypes if coarser(d, *formats) > 1]
        allowed += f"; with products {', '.join(coarse)}" if coarse else ""
    return (
        "ok, WRONG: with the largest error, in roundings of the dtype" + (f" (allowed: {allowed})" if allowed else "")
        + "; host: computed there, because the backend lacks it"
        f"; refused: the device says that it lacks this; FAILED: another error; {ABSENT}: not taken in this dtype"
    )  # fmt: skip


def reasons(report: Results) -> Iterator[tuple[str, str, str, str]]:
    """Yield (state, row, dtypes, why) of what is not right, the worst first; equal reasons of a row are one."""
    for state in reversed(report.states[1:]):
        for row in report.rows:
            told: dict[str, list[str]] = {}
            for dtype, cell in row.cells.items():
                if cell.state == state:
                    told.setdefault(cell.why, []).append(dtype)
            for why, columns in told.items():
                yield state, row.name, ", ".join(columns), why


def drawn(report: Results) -> Table:
    """Return the table: a heading for each group, a column for each dtype."""
    columns, rows, group = report.facts["dtypes"], [], None
    for row in report.rows:
        if row.group != group:
            group = row.group
            rows.append(Row(group))
        cells = [row.cells.get(name) for name in columns]
        styles = tuple([STYLES[cell.state] if cell else "dim" for cell in cells])
        rows.append(Row(row.name, tuple(map(shown, cells)), 1, styles))
    return Table(rows, columns)


def text(report: Results) -> str:
    """Return the report as aligned plain text."""
    lines = [*head(report), "", *drawn(report).lines(), "", legend(report), ""]
    lines += [f"{state:<8} {name} {dtypes}: {why}" for state, name, dtypes, why in reasons(report)]
    return "\n".join([*lines, report.summary])


def print_rich(report: Results) -> None:
    """Print the report by the package rich.  Raises `ImportError` if it is not installed."""
    console = rich_console()
    from rich.text import Text  # an optional library

    for line in head(report):
        console.print(Text(line))
    drawn(report).print()
    console.print(Text(legend(report), "dim"))
    for state, name, dtypes, why in reasons(report):
        console.print(Text.assemble((f"{state:<8} ", STYLES[state]), (f"{name} {dtypes}: ", "bold"), why))
    console.print(Text(report.summary, STYLES[RIGHT] if report.ok else STYLES[WRONG]))
