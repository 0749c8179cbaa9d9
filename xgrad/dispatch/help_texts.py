"""The docstrings of public functions as `help` and `?` show them: help.txt, made by scripts/make_help.py.

A docstring of the source says what a function does.  In help.txt it is joined to what follows from the declaration:
shapes and dtypes, errors, what backward saves, an example with its result, the source.  To make these texts takes
minutes, since functions are traced and examples run; to read them at import takes 4 ms, in 260.  (They can't be read
later: a function's `__doc__` is a plain attribute, and `pydoc` and `inspect` take nothing but a string.)

The file's first part has two lines for each table: its name and names of functions, and the numbers of their texts.
"""

import sys
from pathlib import Path
from typing import Any

from .tables import FUNCTIONS, METHODS

FILE = Path(__file__).with_name("help.txt")
_written: list[tuple[Any, str | None]] = []  # functions, and their docstrings in the source


def attach_texts() -> None:
    """Give the functions of the tables their texts; once, when all are declared.  `python -OO` has no docstrings."""
    if sys.flags.optimize > 1 or not FILE.exists():
        return
    head, *parts = FILE.read_bytes().split(b"\f")  # before each text stands its title
    texts = [part.decode() for part in parts[1::2]]
    lines = iter(head.decode().splitlines()[1:])
    tables = {"Tensor": METHODS, **FUNCTIONS}
    for line, numbers in zip(lines, lines, strict=True):
        place, *names = line.split(" ")
        table = tables["" if place == "xgrad" else place]
        for name, number in zip(names, map(int, numbers.split(" ")), strict=True):
            if (function := table.get(name)) is not None:  # the file may be older than the declarations
                _written.append((function, function.__doc__))
                function.__doc__ = texts[number]


def written(function: Any) -> str:
    """Return a function's docstring as it stands in the source."""
    return dict(_written).get(function, function.__doc__) or ""
