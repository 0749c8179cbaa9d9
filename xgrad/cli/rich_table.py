"""show: draws a command's table with the package rich, for its option --rich; a terminal shows each row as it comes."""

import argparse
from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from .arguments import needs

Cell = tuple[str, str]  # a text, and its style


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rich", action="store_true", help="print with the package rich")


def show(parser: argparse.ArgumentParser, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Draw a table; an empty row is a line across.  Exits with code 2 if rich is not installed.

    Columns after the first two are numbers: they stand at the right.
    """
    needs(parser, "demo", "rich")
    from rich.console import Console  # an optional library
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=any(columns))
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place > 1 else "left", no_wrap=place > 1)
    console = Console()
    live = Live(table, console=console, auto_refresh=False, vertical_overflow="visible")
    with live if console.is_terminal else nullcontext():
        for row in rows:
            if row:
                table.add_row(*(Text(text, style) for text, style in row))
            else:
                table.add_section()
            if console.is_terminal:
                live.refresh()
    if not console.is_terminal:
        console.print(table)
