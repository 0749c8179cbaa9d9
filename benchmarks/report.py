"""The table of rows: measured, printed, written and drawn, for `python -m benchmarks` and `python -m xgrad bench`."""

import argparse
import json
from collections.abc import Iterator
from fnmatch import fnmatchcase

import jax

import xgrad
from xgrad.cli import rich_table
from xgrad.cli.arguments import needs

from . import ratios
from .ratios import Result, Row
from .rows import ROWS

_FORMATS = (".png", ".svg", ".pdf")


def run(arguments: argparse.Namespace) -> int:
    """Print the table of the rows that need only jax; return 1 if a row failed to run, else 0."""
    return 1 if any(result.failed for result in report(ROWS, arguments)) else 0


def report(rows: list[Row], arguments: argparse.Namespace) -> list[Result]:
    """Measure the rows that the arguments choose; print, write and draw the results."""
    parser: argparse.ArgumentParser = arguments.parser
    chosen = choose(rows, arguments.rows, parser)
    if arguments.list:
        for row in chosen:
            print(f"{row.name:20} {row.group:10} {row.what} / {row.against}")
        return []
    if arguments.rich:
        needs(parser, "demo", "rich")
    if arguments.plot:
        needs(parser, "viz", "matplotlib")
        if arguments.plot.suffix not in _FORMATS:
            parser.error(f"argument --plot: {arguments.plot} ends in none of {', '.join(_FORMATS)}")
    for file in filter(None, (arguments.json, arguments.plot)):
        if not file.parent.is_dir():
            parser.error(f"the folder {file.parent} for {file.name} does not exist")

    xgrad.disable_compile_cache()  # a first call that a row measures must compile
    facts = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rounds": arguments.rounds}
    title = f"xgrad on {facts['device']}, jax {facts['jax']}: medians and quartiles of {arguments.rounds} ratios"
    print(f"{title}\n")
    results: list[Result] = []

    def measured() -> Iterator[Result]:
        for row in chosen:
            results.append(ratios.measure(row, arguments.rounds))
            yield results[-1]

    if arguments.rich:
        rich_table.show(parser, ratios.COLUMNS, ratios.styled(measured()))
    else:
        for line in ratios.table(measured(), chosen):
            print(line, flush=True)
    if arguments.json:
        everything = {**facts, "rows": [result.as_dict() for result in results]}
        arguments.json.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if arguments.plot:
        ratios.draw(results, title, arguments.plot)
        print(f"\npicture: {arguments.plot}")
    return results


def choose(rows: list[Row], names: list[str], parser: argparse.ArgumentParser) -> list[Row]:
    """Return the rows whose name or group matches one of `names`; all rows if `names` is empty."""
    for name in names:
        if not any(fnmatchcase(key, name) for row in rows for key in (row.name, row.group)):
            known = dict.fromkeys([*(row.group for row in rows), *(row.name for row in rows)])
            parser.error(f"no row or group has the name {name!r}; there are: {', '.join(known)}")
    return [
        row for row in rows if not names or any(fnmatchcase(key, n) for n in names for key in (row.name, row.group))
    ]
