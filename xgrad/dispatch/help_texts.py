"""The docstrings of public functions as `help` and `?` show them: help.z, made by scripts/make_help.py.

A docstring of the source says what a function does.  In help.z it is joined to what follows from the declaration:
shapes and dtypes, errors, what backward saves, an example with its result, the source.  To make these texts takes
minutes, since functions are traced and examples run; they are read when the first one is shown.  Until then a function
has its docstring of the source, as a string that stands for the long one: a function's `__doc__` is a plain attribute,
and `pydoc` and `inspect` take nothing but a string, and call its `expandtabs`.

The file is compressed.  Its first part has two lines for each table: its name and names of functions, and the numbers
of their texts.
"""

import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from .tables import FUNCTIONS, METHODS

FILE = Path(__file__).with_name("help.z")


class HelpText(str):
    """A function's docstring in the source.  `help`, `?`, `inspect.getdoc`, `str` and `print` show the long text."""

    __slots__ = ("name",)
    name: tuple[str, str]  # of the table, and of the function in it

    def __str__(self) -> str:
        return _texts().get(self.name) or str.__str__(self)

    def __repr__(self) -> str:
        return repr(str(self))

    def __format__(self, spec: str, /) -> str:
        return format(str(self), spec)

    def expandtabs(self, tabsize: int = 8) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return str(self).expandtabs(tabsize)


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
