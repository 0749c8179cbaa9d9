"""HelpText: lets `help` and `?` show long docstrings of public functions, from help.z (scripts/make_help.py).

A docstring of the source says what a function does.  In help.z it is joined to what follows from the declaration:
shapes and dtypes, errors, what backward saves, an example with its result, the source.  To make these texts takes
minutes, since functions are traced and examples run; they are read when the first one is shown.  Until then a function
has its docstring of the source, as a string that stands for the long one: a function's `__doc__` is a plain attribute,
and `pydoc` and `inspect` take nothing but a string, and call its `expandtabs`.

The file is compressed.  Its first part has two lines for each table: its name and names of functions, and the numbers
of their texts.
"""

import inspect
import sys
import zlib
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from .operator import Operator
from .tables import FUNCTIONS, METHODS

FILE = Path(__file__).with_name("help.z")


class HelpText(str):
    """A function's docstring in the source.  `help`, `?`, `inspect.getdoc`, `str` and `print` show the long text."""

    __slots__ = ("name",)
    name: tuple[str, str]  # of the table, and of the function in it

    def __str__(self) -> str:
        place, name = self.name
        table = METHODS if place == "Tensor" else FUNCTIONS[place]
        return (_texts().get(self.name) or str.__str__(self)) + _of_backends(table.get(name))

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str, /) -> str:
        return format(str(self), spec)

    def expandtabs(self, tabsize: int = 8) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return str(self).expandtabs(tabsize)


def _of_backends(function: Any) -> str:
    """Return a paragraph for authors of backends: how a lowering is called, or the operators that may run."""
    found = operators_of(function)
    if getattr(function, "operator", None) is None or len(found) != 1:
        names = ", ".join(f"`{name}`" for name in sorted(found) if not name.startswith("_"))
        own = found.get(getattr(function, "__name__", ""))  # the operator of its name, which does the work
        return names and f"\nAmong its operators: {names}.\n" + (_call_of(own) if own is not None else "")
    (op,) = found.values()
    return _call_of(op)


def _call_of(op: Operator) -> str:
    arguments = [*op.parameters] if op.variadic is None else [*op.parameters, f"*{op.variadic}"]
    statics = [f"{name}={op.defaults[name]!r}" if name in op.defaults else name for name in op.static_names]
    star = ["*"] * (bool(statics) and op.variadic is None)
    called = f"f({', '.join([*arguments, *star, *statics])})"
    return f"\nLowering: `xgrad.Backend(lowerings={{{op.name!r}: f}})` calls `{called}` with JAX's arrays.\n"


def operators_of(function: Any, seen: tuple[Any, ...] = ()) -> dict[str, Operator]:
    """Return the operators, by name, that a function of `ops` names, or functions of `ops` that it names."""
    op = getattr(function, "operator", function)
    if isinstance(op, Operator):
        return {op.name: op}
    if function.__class__ is not FunctionType:
        return {}
    function = inspect.unwrap(function)
    if function in seen or "ops" not in Path(function.__code__.co_filename).parts:
        return {}
    seen = (*seen, function)
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    named += [cell.cell_contents for cell in function.__closure__ or ()]
    return {name: op for value in named for name, op in operators_of(value, seen).items()}


def attach_texts() -> None:
    """Give the functions of the tables their texts; once, when all are declared.  `python -OO` has no docstrings."""
    if sys.flags.optimize > 1:
        return
    for place, table in (*FUNCTIONS.items(), ("Tensor", METHODS)):
        for name, function in table.items():
            if hasattr(function, "__code__") and function.__doc__.__class__ is not HelpText:
                function.__doc__ = text = HelpText(function.__doc__ or "")
                text.name = place, name


def contents() -> str:
    """Return the whole file; empty if it is not there."""
    return zlib.decompress(FILE.read_bytes()).decode() if FILE.exists() else ""


@cache
def _texts() -> dict[tuple[str, str], str]:
    head, *parts = contents().split("\f")  # before each text stands its title
    lines = iter(head.splitlines()[1:])
    return {
        ("" if place == "xgrad" else place, name): parts[2 * int(number) + 1]
        for (place, *names), numbers in ((line.split(" "), next(lines)) for line in lines)
        for name, number in zip(names, numbers.split(" "), strict=True)
    }


def written(function: Any) -> str:
    """Return a function's docstring as it stands in the source."""
    return str.__str__(function.__doc__ or "")
