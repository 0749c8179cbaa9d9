"""`python -m xgrad conform`: compare a device with the CPU in float64, operator by operator.

Every operator runs on its sample inputs (value, gradient, in-place form, out=); views and writes through them, memory,
transfers, random numbers, compiled backward, xgrad.compile and lazy are checked too.

Prints operator by dtype: right, wrong by how much, refused.  With --compile-for the compiler of a chip that is not here
compiles all of it, and the chip runs nothing: compiles, gathers, slow, refused, ends the compiler.  Exits with 1 if a
value is wrong, an operator fails by another error than a refusal, or a compiler ends.  The default selection takes some
minutes; --json FILE --resume goes on with a run that was interrupted.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..chips import target
from ..conformance import run as conform
from ..conformance.selection import DEFAULT, EVERY, GROUPS
from .arguments import at_least, place
from .compare import load

_QUIET = 5.0  # seconds between two lines of progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--device", type=place, help="such as cpu, gpu, tpu:1 (default: JAX's default device)")
    where.add_argument(
        "--compile-for", metavar="CHIP", help="compile for a chip that is not here, such as tpu:v5e, and run nothing"
    )
    where.add_argument("--backend", metavar="FILE.py:NAME", help="a backend that the file declares")
    parser.add_argument(
        "--operators", default="", metavar="PATTERN",
        help=f"names such as 'conv*,add', or groups: {', '.join(GROUPS)} (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--dtypes", default="", metavar="LIST", help=f"of {', '.join(EVERY)} (default: {','.join(DEFAULT)})"
    )
    parser.add_argument(
        "--accept", action="append", default=[], metavar="NAME=ERROR", type=_tolerance,
        help="an operator that is right within this part of its largest element, such as gelu=1%%; may be repeated",
    )  # fmt: skip
    parser.add_argument("--exhaustive", action="store_true", help="all samples of each operator, in all dtypes")
    parser.add_argument(
        "--limit", type=at_least(1), default=60, help="seconds of a chip's compiler for each program (default: 60)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results, as they come")
    parser.add_argument("--resume", action="store_true", help="go on with the run that --json FILE has")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page that needs no other file")
    parser.add_argument("--plain", action="store_true", help="print without the package rich, if that is installed")


def run(arguments: argparse.Namespace) -> int:
    """Print the table; return 1 if a value is wrong or a check failed, else 0."""
    parser: argparse.ArgumentParser = arguments.parser
    if arguments.resume and arguments.json is None:
        parser.error("--resume goes on with the run that a file has: name it, --json FILE")
    for file in filter(None, (arguments.json, arguments.html)):
        if not file.parent.is_dir():
            parser.error(f"the folder {file.parent} for {file.name} does not exist")
    device = arguments.device
    if arguments.backend is not None:
        device = load(arguments.backend, parser, "backend")[1]
    rich = not arguments.plain and find_spec("rich") is not None
    try:
        aim = arguments.compile_for and target(arguments.compile_for, limit=float(arguments.limit))
        with _progress(rich) as progress:
            report = conform(
                device, arguments.operators or (), _listed(arguments.dtypes), exhaustive=arguments.exhaustive,
                compile_for=aim, tolerances=dict(arguments.accept), file=arguments.json, resume=arguments.resume,
                progress=progress,
            )  # fmt: skip
    except (TypeError, ValueError, RuntimeError) as error:  # an operator's own are rows
        parser.error(str(error))
    except KeyboardInterrupt:
        if arguments.json is not None:
            print(f"interrupted: --json {arguments.json} --resume goes on", file=sys.stderr)
        return 130
    if arguments.html:
        arguments.html.write_text(report.as_html(), encoding="utf-8")
    report.print(rich=rich)
    return 0 if report.ok else 1


def _tolerance(text: str) -> tuple[str, float]:
    """Return what `NAME=ERROR` says.

    >>> _tolerance("gelu=1%"), _tolerance("conv*=0.05")
    (('gelu', 0.01), ('conv*', 0.05))
    """
    name, _, part = text.rpartition("=")
    try:
        return name, float(part.removesuffix("%")) / (100 if part.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=ERROR, such as gelu=1% or gelu=0.01") from None


def _listed(text: str) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None


@contextmanager
def _progress(rich: bool) -> Iterator[Callable[[int, int, str], Any]]:
    """Yield the function that shows how far the run is: a bar of rich's in a terminal, else a line at times."""
    if not (rich and sys.stderr.isatty()):
        yield _lines()
        return
    from rich import progress  # an optional library
    from rich.console import Console

    named = progress.TextColumn("{task.description}")
    columns = progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), named
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total, description=name)


def _lines() -> Callable[[int, int, str], None]:
    start = last = time.monotonic()

    def show(done: int, total: int, name: str) -> None:
        nonlocal last
        now = time.monotonic()
        if name and now - last > _QUIET:
            last = now
            print(f"{done} of {total} rows in {now - start:.0f} s: {name}", file=sys.stderr, flush=True)

    return show
