"""The results of `xgrad conform` as data: a Row (an operator, a view, ...) has a Cell for each dtype, which has Checks.

    Row "mul" ─┬─ Cell float32  ─┬─ Check forward   right, 0.5 roundings
               │                 └─ Check gradient  right, 0.9 roundings
               └─ Cell bfloat16 ─── ...

A dtype that an operator does not take has no cell.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

RIGHT, REFUSED, FAILED, WRONG = "right", "refused", "failed", "wrong"
STATES = (RIGHT, REFUSED, FAILED, WRONG)
# Of programs that are compiled for a chip that is not here, and do not run.
COMPILES, GATHERS, SLOW, ENDS = "compiles", "gathers", "slow", "ends the compiler"
COMPILED = (COMPILES, GATHERS, SLOW, REFUSED, ENDS, FAILED)
_ORDER = (RIGHT, *COMPILED, WRONG)  # a cell has the last of its checks' states in this order


@dataclass(frozen=True, slots=True)
class Check:
    """One check found this: a state; the largest error, in roundings of the dtype; and why, if it is not right.

    Of a program that was compiled for a chip that is not here, `why` has its bytes and seconds too.
    """

    name: str
    state: str = RIGHT
    error: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """The checks of one row in one dtype.  `host`: the host computed a part of it, in place of an `xgrad.Backend`."""

    checks: tuple[Check, ...]
    host: bool = False

    @property
    def state(self) -> str:
        """The worst of the checks' states."""
        return max((c.state for c in self.checks), key=_ORDER.index, default=RIGHT)

    @property
    def error(self) -> float | None:
        """The largest error of the checks that have the cell's state, in roundings."""
        return max((c.error for c in self.checks if c.state == self.state and c.error is not None), default=None)

    @property
    def why(self) -> str:
        """The reasons of the checks that have the cell's state; a reason that several have is given once."""
        found: dict[str, list[str]] = {}
        for c in self.checks:
            if c.state == self.state and c.why:
                found.setdefault(c.why.removeprefix(f"{c.name}: "), []).append(c.name)
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in found.items())


@dataclass(frozen=True, slots=True)
class Row:
    """An operator, a view, or another thing that is checked, with a cell for each dtype that it takes."""

    group: str
    name: str
    cells: dict[str, Cell] = field(default_factory=dict)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        cells = {
            dtype: {"state": cell.state, **({"host": True} if cell.host else {}), "checks": [*map(_brief, cell.checks)]}
            for dtype, cell in self.cells.items()
        }
        return {"group": self.group, "name": self.name, "seconds": round(self.seconds, 3), "cells": cells}

    @classmethod
    def of_dict(cls, found: dict[str, Any]) -> "Row":
        """Return the row that `as_dict` wrote."""
        cells = {
            dtype: Cell(
                tuple([Check(**{**c, "error": _number(c.get("error"))}) for c in cell["checks"]]),
                cell.get("host", False),
            )
            for dtype, cell in found["cells"].items()
        }
        return cls(found["group"], found["name"], cells, found["seconds"])


def _brief(check: Check) -> dict[str, Any]:
    """Return what a check says; JSON has no infinity, so that is a text."""
    found = {name: value for name, value in asdict(check).items() if value not in (None, "")}
    if check.error is not None:
        found["error"] = round(check.error, 4) if check.error < float("inf") else "inf"
    return found


def _number(error: Any) -> float | None:
    return None if error is None else float(error)


def merged(checks: list[Check]) -> tuple[Check, ...]:
    """Return one check for each name, the worst of those that have it."""
    found: dict[str, Check] = {}
    for check in checks:
        before = found.get(check.name)
        if before is None or _badness(check) > _badness(before):
            found[check.name] = check
    return tuple(found.values())


def _badness(check: Check) -> tuple[int, float]:
    return _ORDER.index(check.state), -1.0 if check.error is None else check.error
