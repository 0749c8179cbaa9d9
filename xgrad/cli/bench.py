"""`python -m xgrad bench`: measures xgrad's cost, as ratios to bare jitted kernels, eager jax.numpy and jax.jit.

Each ratio is the median over rounds that run both sides in turns (A B A B), printed with its quartiles; below 1, xgrad
takes less.  It prints no times, because they differ between machines.  The command takes a minute or two.
"""

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from . import rich_table
from .arguments import at_least


def add_arguments(parser: argparse.ArgumentParser, rounds: int = 7) -> None:
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows or groups, also as patterns such as 'view*'")
    parser.add_argument("--list", action="store_true", help="print the names of all rows, and measure nothing")
    parser.add_argument("--rounds", type=at_least(1), default=rounds, help="A B pairs (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers, round by round")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the table, as PNG, SVG or PDF")
    rich_table.add_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table of the rows that need only jax; return 1 if a row failed to run, else 0."""
    return _report().run(arguments)


def _report() -> Any:
    """Return the module of the benchmarks: a wheel has them within the package, a clone beside it."""
    if importlib.util.find_spec("xgrad.benchmarks") is not None:
        return importlib.import_module("xgrad.benchmarks.report")
    sys.path.insert(0, str(Path(__file__).parents[2]))
    return importlib.import_module("benchmarks.report")
