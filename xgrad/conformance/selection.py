"""Selects what `xgrad conform` checks: patterns choose operators, views, ..., and options the dtypes and samples.

By default each operator is checked in float32 on all of its samples, and in bfloat16, int32, bool and complex64 on the
first sample that fits.  With `exhaustive`, it is checked on all samples in all dtypes.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

import numpy as np

from ..base import dtypes
from . import views
from .execution import Place, refusal
from .memory import MEMORY, ONLY_FLOATING
from .modes import MODES, trained
from .operator_rows import OperatorRow, operators
from .random_numbers import DRAWS, drawn
from .records import Cell, Check, merged
from .transfers import TRANSFERS

DEFAULT = ("float32", "bfloat16", "int32", "bool", "complex64")
EVERY = (*DEFAULT, "float16", "float64", "complex128", "int8", "int16", "int64", "uint8")
GROUPS = ("operators", "views", "memory", "transfers", "random numbers", "execution")


class Job(NamedTuple):
    """A row that is to be made: `cell(dtype)` is None where there is nothing to check."""

    group: str
    name: str
    cell: Callable[[np.dtype], Cell | None]


def names() -> list[tuple[str, str]]:
    """Return (group, name) of all rows, in order."""
    tables = (operators(), views.VIEWS, MEMORY, TRANSFERS, DRAWS, MODES)
    return [(group, name) for group, table in zip(GROUPS, tables, strict=True) for name in table]


def chosen(patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Return (group, name) of the rows whose name or group one of the patterns matches; all for none.

    A name matches without its leading underscores too.  Raises `ValueError` for a pattern that matches nothing.
    """
    found = set()
    for pattern in patterns or ("*",):
        matching = {
            (group, name)
            for group, name in names()
            if any(fnmatchcase(text, pattern) for text in (group, name, name.lstrip("_")))
        }
        if not matching:
            raise ValueError(f"no operator, view or group matches {pattern!r}; the groups are: {', '.join(GROUPS)}")
        found |= matching
    return [row for row in names() if row in found]


def dtypes_of(names: Sequence[str] | None, exhaustive: bool) -> tuple[np.dtype, ...]:
    """Return the columns.  Raises `ValueError` for a name that is none of them."""
    columns = names or (EVERY if exhaustive else DEFAULT)
    unknown = [str(n) for n in columns if _name(n) not in EVERY]
    if unknown:
        raise ValueError(f"no dtype {', '.join(unknown)}; there are: {', '.join(EVERY)}")
    return tuple(dict.fromkeys(np.dtype(_name(n)) for n in columns))


def _name(dtype: object) -> str:
    return dtype if isinstance(dtype, str) else np.dtype(dtype).name  # pyright: ignore[reportArgumentType, reportCallIssue]


def jobs(rows: list[tuple[str, str]], place: Place, exhaustive: bool) -> list[Job]:
    """Return the jobs that make these rows."""
    every = frozenset(map(np.dtype, EVERY if exhaustive else ("float32",)))
    table = operators()
    found = []
    for group, name in rows:
        if group == "operators":
            op = table[name]  # without a program, each step of each sample is compiled
            found.append(Job(group, name, OperatorRow(op, place, every if op.jit or exhaustive else frozenset()).cell))
        elif group == "views":
            found.append(Job(group, name, lambda dtype, name=name: views.cell(name, dtype, place)))
        else:
            found.append(Job(group, name, partial(_listed, group, name, place)))
    return found


def _listed(group: str, name: str, place: Place, dtype: np.dtype) -> Cell | None:
    """Return the cell of the smaller groups, whose checks come as a list."""
    if group == "memory":
        if name in ONLY_FLOATING and dtype not in dtypes.INEXACT:
            return None
        run: Callable[[], list[Check]] = partial(MEMORY[name], place, dtype)
    elif group == "transfers":
        run = partial(TRANSFERS[name], place, dtype)
    elif group == "random numbers":
        if dtype.kind not in DRAWS[name][1]:
            return None
        run = partial(drawn, name, place, dtype)
    else:
        if dtype not in dtypes.INEXACT:
            return None
        run = partial(trained, name, place, dtype)
    try:
        return Cell(merged(run()))
    except Exception as error:
        return Cell((refusal(name, error),))
