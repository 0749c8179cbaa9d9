"""`python -m xgrad compare`: runs your function with both ways to record views, and prints what differs.

A view that was written gets the `grad_fn` of its own steps ("replay"), or of one as_strided ("geometry").  With
--backends the function runs on several backends instead: FILE.py:a,b names backends that the file declares with
xgrad.Backend, "cpu" or "gpu:0" a device.  With --target the compiler of a chip that is not here says what both ways
cost there.
FILE.py:function names your function.  Its inputs are the result of the file's own `inputs()`, if there is one; else
random float32 tensors that require grad: of the shapes that --shapes gives, or one of shape 4,4 for each parameter.
"""

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xgrad

from ..base.devices import placement_of
from . import rich_table
from .arguments import at_least, needs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("function", metavar="FILE.py:function", help="the function to run")
    parser.add_argument("--shapes", type=shapes, help='of the inputs, such as "4,4;4": a 4x4 matrix and a vector of 4')
    parser.add_argument("--repeats", type=at_least(1), default=8, help="runs that are timed (default: 8)")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of random inputs (default: 0)")
    parser.add_argument("--backends", action="append", metavar="FILE.py:a,b", help="compare these; may be repeated")
    parser.add_argument("--target", metavar="CHIP", help="ask this chip's compiler too, such as tpu:v5e")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the comparison into this file")
    rich_table.add_argument(parser)


def shapes(text: str) -> list[tuple[int, ...]]:
    """Return the shapes that `text` lists, parted by semicolons; an empty one is a scalar's.

    >>> shapes("4,4;4;")
    [(4, 4), (4,), ()]
    """
    try:
        found = [tuple(int(n) for n in shape.split(",") if n.strip()) for shape in text.split(";")]
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r} is not a list of shapes such as "4,4;4"') from None
    if any(n < 0 for shape in found for n in shape):
        raise argparse.ArgumentTypeError(f"{text!r} has a negative size")
    return found


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; return 1 if paths or backends disagree by more than rounding, or one refuses; else 0."""
    parser: argparse.ArgumentParser = arguments.parser
    module, function = load(arguments.function, parser)
    if arguments.rich:
        needs(parser, "demo", "rich")
    if arguments.plot:
        needs(parser, "viz", "matplotlib")
    if arguments.plot and arguments.backends:
        parser.error("argument --plot: it draws the two tracking paths, not --backends")
    if arguments.target and arguments.backends:
        parser.error("argument --target: a backend has its own, xgrad.Backend('v5e', target='tpu:v5e')")
    try:
        aim = arguments.target and xgrad.target(arguments.target)
        if aim:
            aim.require()
    except (ValueError, xgrad.errors.TargetError) as error:
        parser.error(str(error))
    backends = backends_of(arguments.backends, parser) if arguments.backends else None
    inputs = inputs_of(module, function, arguments)
    print(f"{arguments.function}: compiling ...", file=sys.stderr)
    try:
        comparison = xgrad.compare(function, *inputs, backends=backends, target=aim, repeats=arguments.repeats)
    except Exception as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        print(f"{arguments.function} failed {notes}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    comparison.print(rich=arguments.rich)
    if arguments.plot:
        import matplotlib as mpl  # an optional library

        mpl.use("agg")
        try:
            comparison.plot().figure.savefig(arguments.plot, dpi=120)
        except (OSError, ValueError) as error:  # no such folder; no such format
            parser.error(f"argument --plot: {arguments.plot}: {error}")
        print(f"picture: {arguments.plot}")
    return 0 if comparison.within_rounding else 1


def backends_of(specs: list[str], parser: argparse.ArgumentParser) -> list[Any]:
    """Return the backends that `specs` name: FILE.py:a,b, or devices, parted by commas."""
    found: list[Any] = []
    for spec in specs:
        file, colon, names = spec.rpartition(":")
        if colon and file.endswith(".py"):
            found += [load(f"{file}:{name.strip()}", parser, "backend")[1] for name in names.split(",")]
        else:
            found += [device.strip() for device in spec.split(",")]
    for backend in found:
        try:
            placement_of(backend)
        except (RuntimeError, TypeError) as error:
            parser.error(f"argument --backends: {error}")
    if len(found) < 2:
        parser.error(f"argument --backends: name two or more to compare, not only {specs[0]!r}")
    return found


def load(spec: str, parser: argparse.ArgumentParser, what: str = "function") -> tuple[Any, Any]:
    """Return the module of the user's file, and what `spec` names in it: a function, or a declared backend."""
    file, colon, name = spec.rpartition(":")
    if not colon or not file or not name:
        parser.error(f"expected FILE.py:{what}, but got {spec!r}")
    path = Path(file)
    if not path.is_file():
        parser.error(f"the file {file} does not exist")
    made = importlib.util.spec_from_file_location(path.stem, path)
    if made is None or made.loader is None:
        parser.error(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(made)
    sys.modules.setdefault(path.stem, module)  # dataclasses and pickles of the file look themselves up there
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        made.loader.exec_module(module)
    except Exception as error:
        parser.error(f"{file} cannot be loaded: {type(error).__name__}: {error}")
    function = getattr(module, name, None)
    if function is None:
        names = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        has = f"; it has: {', '.join(names) or 'none'}" if what == "function" else ""
        parser.error(f"{file} has no {what} {name!r}{has}")
    if what == "function" and not callable(function):
        parser.error(f"{name} in {file} is not a function, but a {type(function).__name__}")
    return module, function


def inputs_of(module: Any, function: Callable[..., Any], arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Return the function's inputs: what the file's `inputs()` returns, or random tensors."""
    parser: argparse.ArgumentParser = arguments.parser
    given = getattr(module, "inputs", None)
    xgrad.manual_seed(arguments.seed)
    if arguments.shapes is None and callable(given):
        try:
            values = given()
        except Exception as error:
            parser.error(f"inputs() of the file failed: {type(error).__name__}: {error}")
        return tuple(values) if isinstance(values, (tuple, list)) else (values,)
    required = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    chosen = arguments.shapes if arguments.shapes is not None else [(4, 4)] * len(required)
    try:
        inspect.signature(function).bind(*chosen)
    except TypeError as error:
        parser.error(f"argument --shapes: {len(chosen)} inputs do not fit {function.__name__}(): {error}")
    return tuple(xgrad.randn(shape).requires_grad_() for shape in chosen)
