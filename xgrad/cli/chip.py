"""`python -m xgrad chip`: compile a function for a chip that is not here, and print what the chip's compiler says.

The report says if the program fits, what is heavy and by which line, what is alive, donated, padded and moved.

FILE.py:step names a function, plain or from xgrad.compile.  Its inputs are the result of the file's own `inputs()`, if
there is one, else random float32 tensors (--shapes).  A function without parameters that returns a step and its
arguments names these.  Nothing is run.  Exits with 1 if the program does not compile or does not fit, with 2 if the
compiler is not installed or the command line is wrong.
"""

import argparse
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from jax.sharding import PartitionSpec

from ..chips import target
from ..errors import TargetError
from . import rich_table
from .arguments import at_least, needs
from .compare import inputs_of, load, shapes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("function", metavar="FILE.py:step", help="the function to compile")
    parser.add_argument("--target", default="tpu:v5e", help="such as tpu:v5e, tpu:v6e:2x2 (default: tpu:v5e)")
    parser.add_argument("--shapes", type=shapes, help='of the inputs, such as "4,4;4": a 4x4 matrix and a vector of 4')
    parser.add_argument("--seed", type=at_least(0), default=0, help="of random inputs (default: 0)")
    parser.add_argument("--mesh", type=_sizes, help="over several chips, such as data=4,model=4")
    parser.add_argument(
        "--shard", type=_spec, action="append", default=[], metavar="NAME=AXES",
        help="a tensor, or a pattern of names, by axes of its dimensions: 'x=data', '*.weight=-,model'",
    )  # fmt: skip
    parser.add_argument("--limit", type=at_least(1), default=600, help="seconds for the compiler (default: 600)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it")
    parser.add_argument("--hlo", type=Path, metavar="FILE", help="write the optimized program")
    rich_table.add_argument(parser)


def _sizes(text: str) -> dict[str, int]:
    """Return the axes of a mesh.

    >>> _sizes("data=4,model=2")
    {'data': 4, 'model': 2}
    """
    try:
        return {name: int(n) for name, n in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of axes such as data=4,model=4") from None


def _spec(text: str) -> tuple[str, PartitionSpec]:
    """Return a pattern and the axes of its dimensions.

    >>> _spec("*.weight=-,model") == ("*.weight", PartitionSpec(None, "model"))
    True
    """
    name, equals, axes = text.rpartition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a name with axes such as 'x=data' or '*.weight=-,model'")
    return name, PartitionSpec(*[None if axis in ("-", "") else axis for axis in axes.split(",")])


def run(arguments: argparse.Namespace) -> int:
    """Print the report; return 1 if the program does not compile or fit, 2 for a `TargetError`, else 0."""
    parser: argparse.ArgumentParser = arguments.parser
    try:
        where = target(arguments.target, arguments.mesh, dict(arguments.shard), arguments.limit)
    except ValueError as error:
        parser.error(f"argument --target: {error}")
    if where.missing is not None:
        parser.error(f"{where.name}: {where.missing}")
    if arguments.rich:
        needs(parser, "demo", "rich")
    module, step = load(arguments.function, parser)
    try:
        step, *args = _made(module, step, arguments)
        report = where.compile(step, *args)
    except Exception as error:
        print(f"{arguments.function} failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 2 if isinstance(error, TargetError) else 1
    for file, text in ((arguments.json, json.dumps(report.as_dict())), (arguments.hlo, report.as_text())):
        if file is not None:
            file.write_text(text)
    report.print() if arguments.rich else print(report)
    return 0 if report.fits else 1


def _made(module: Any, step: Any, arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Return a step and its arguments."""
    if arguments.shapes is None and not hasattr(module, "inputs") and not inspect.signature(step).parameters:
        made = step()
        if isinstance(made, tuple) and made and callable(made[0]):
            return made
    return step, *inputs_of(module, step, arguments)
