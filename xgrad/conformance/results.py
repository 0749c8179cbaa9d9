"""Results: holds the rows of a conformance run (`python -m xgrad conform`), with its device and versions."""

from collections import Counter
from typing import Any

from .records import COMPILED, COMPILES, ENDS, FAILED, RIGHT, STATES, WRONG, Row

_TOLD = (RIGHT, WRONG, COMPILES)  # in a summary, even if there are none


def states_of(facts: dict[str, Any]) -> tuple[str, ...]:
    """Return the states of a run's cells, the worst last."""
    return COMPILED if "compiled for" in facts else STATES


class Results:
    """Rows of operators, views and the rest, with a cell for each dtype.

    `facts`: device, versions, dtypes and selection.  `complete`: no row is missing.
    """

    def __init__(self, facts: dict[str, Any], rows: list[Row], complete: bool = True) -> None:
        self.facts: dict[str, Any] = facts
        self.rows: list[Row] = rows
        self.complete: bool = complete

    @property
    def states(self) -> tuple[str, ...]:
        """The states that a cell can have, the worst last."""
        return states_of(self.facts)

    @property
    def counts(self) -> Counter[str]:
        """The number of cells by state."""
        return Counter(cell.state for row in self.rows for cell in row.cells.values())

    @property
    def ok(self) -> bool:
        """True if no value is wrong, nothing failed, no compiler ended.  What is refused does not count as a
        failure."""
        return not (self.counts[WRONG] or self.counts[FAILED] or self.counts[ENDS])

    def of(self, state: str) -> list[tuple[Row, str]]:
        """Return (row, dtype) of the cells in a state: "right", "refused", "failed", "wrong", "gathers", ..."""
        return [(row, dtype) for row in self.rows for dtype, cell in row.cells.items() if cell.state == state]

    @property
    def summary(self) -> str:
        """One line: how many cells there are of each state."""
        counts = self.counts
        parts = [f"{counts[state]} {state}" for state in reversed(self.states) if counts[state] or state in _TOLD]
        host = sum(cell.host for row in self.rows for cell in row.cells.values())
        parts += [f"{host} by the host"] if host else []
        end = "" if self.complete else "; not complete: an interrupted run goes on with resume"
        return f"{len(self.rows)} row{'s' * (len(self.rows) != 1)} on {self.facts['device']}: {', '.join(parts)}{end}"
