"""Table: lays out labelled rows of cells as aligned text, as HTML or for the package rich, for xgrad's reports.

The reports are in comparison/, conformance/, backends/, chips/, viz/.  `number`, `seconds` and `size` turn numbers into
text.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

_RULE = "-"


class Row(NamedTuple):
    """A label and its cells; a heading has no cells, and a row of depth 1 is a part of the one above it.

    `styles`: rich's style of each cell, none where it is empty.
    """

    label: str
    cells: tuple[str, ...] = ()
    depth: int = 0
    styles: tuple[str, ...] = ()


class Table(NamedTuple):
    """Rows, with a name above each column of cells; without names the table has no heading.

    `numbers`: True if cells stand at the right of their columns.
    """

    rows: Sequence[Row]
    columns: Sequence[str] = ()
    caption: str = ""
    numbers: bool = True

    def lines(self) -> list[str]:
        """Return the table as aligned lines of plain text, without the caption."""
        label = max([len(row.label) + 2 * row.depth for row in self.rows], default=0)
        count = max([len(row.cells) for row in self.rows], default=0)
        heads = list(self.columns) or [""] * count
        widths = [
            max([len(head), *(len(row.cells[i]) for row in self.rows if row.cells)]) for i, head in enumerate(heads)
        ]
        aligned = ">" if self.numbers else "<"

        def line(name: str, cells: Sequence[str]) -> str:
            return f"{name:<{label}}" + "".join(f"  {cell:{aligned}{w}}" for cell, w in zip(cells, widths))

        body = [line("  " * row.depth + row.label, row.cells).rstrip() for row in self.rows]
        if not self.columns:
            return body
        heading = line("", self.columns)
        return [heading, _RULE * len(heading), *body]

    def html(self) -> str:
        """Return the table as an HTML element."""
        side = "right" if self.numbers else "left"
        wide = 1 + max([len(self.columns), *(len(row.cells) for row in self.rows)])
        parts = ["<table>", f"<caption>{escape(self.caption)}</caption>" if self.caption else ""]
        if self.columns:
            heads = "".join(f"<th style='text-align: {side}'>{escape(name)}</th>" for name in self.columns)
            parts.append(f"<thead><tr><th></th>{heads}</tr></thead>")
        for row in self.rows:
            span = "" if row.cells else f" colspan='{wide}'"
            style = f"text-align: left; padding-left: {0.5 + 1.5 * row.depth}em"
            weight = "; font-weight: normal" if row.depth else ""
            cells = "".join(f"<td style='text-align: {side}'>{escape(cell)}</td>" for cell in row.cells)
            parts.append(f"<tr><th style='{style}{weight}'{span}>{escape(row.label)}</th>{cells}</tr>")
        return "".join([*parts, "</table>"])

    def print(self) -> None:
        """Print the table by the package rich.  Raises `ImportError` if it is not installed."""
        console = rich_console()
        from rich.table import Table as Drawn  # an optional library
        from rich.text import Text

        drawn = Drawn(title=self.caption or None, show_header=bool(self.columns))
        drawn.add_column("")
        for name in self.columns or [""] * max(len(row.cells) for row in self.rows):
            side = "right" if self.numbers else "left"
            drawn.add_column(Text(name.replace(", ", ",\n")), justify=side, no_wrap=self.numbers)
        for row in self.rows:
            if not row.cells:
                drawn.add_section()
            cells = [Text(cell, style) for cell, style in zip(row.cells, row.styles or [""] * len(row.cells))]
            drawn.add_row(Text("  " * row.depth + row.label, "" if row.depth else "bold"), *cells)
        if self.numbers:  # wider than a terminal: rich would cut numbers
            console.width = max(console.width, console.measure(drawn).maximum)
        console.print(drawn)


class Tabled:
    """An object that shows as its `table()`: as text below the caption, in colours, and as HTML in a notebook."""

    def table(self) -> Table:
        raise NotImplementedError

    def __str__(self) -> str:
        table = self.table()
        return "\n".join([table.caption, *table.lines()])

    __repr__ = __str__

    def print(self) -> None:
        """Print the table in colours.  Raises `ImportError` if the package rich is not installed."""
        self.table().print()

    def _repr_html_(self) -> str:
        return self.table().html()


def rich_console() -> Any:
    """Return a console of the package rich.  Raises `ImportError` if it is not installed."""
    try:
        from rich.console import Console  # an optional library
    except ImportError as error:
        raise ImportError('rich is not installed: pip install rich, or print without "rich=True"') from error
    return Console()


def axes(ax: Any, width: float, height: float) -> Any:
    """Return matplotlib axes: `ax`, or a new figure's if it is None.  Raises `ImportError` without matplotlib."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt  # an optional library
    except ImportError as error:
        raise ImportError('plot() needs matplotlib: pip install "xgrad[viz]"') from error
    return plt.subplots(figsize=(width, height), layout="constrained")[1]


# -- numbers ----------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Return a count with thousands separated; a dash for None.

    >>> number(12345), number(None)
    ('12,345', '-')
    """
    return "-" if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Return a time in the unit that suits it.

    >>> seconds(0.00123), seconds(2.5e-5), seconds(12)
    ('1.23 ms', '25 µs', '12 s')
    """
    if value is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1 or unit == "µs":
            return f"{value * factor:.3g} {unit}"
    raise AssertionError


def size(value: float | None) -> str:
    """Return a number of bytes in the unit that suits it.

    >>> size(1536), size(0)
    ('1.5 KiB', '0 B')
    """
    if value is None:
        return "-"
    if value < 1024:
        return f"{value:.0f} B"
    value, unit = value / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if value >= 1024:
            value, unit = value / 1024, larger
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
