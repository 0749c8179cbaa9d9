"""Report: shows a device's conformance results (`python -m xgrad conform`) as a table, as JSON and as an HTML page."""

from typing import Any

from . import page, table
from .results import Results

FORMAT = 1


class Report(Results):
    """The conformance of a device: what `run` found.  Prints as a table, also in a notebook."""

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "format": FORMAT, **self.facts, "complete": self.complete,
            "summary": {state: self.counts[state] for state in self.states},
            "rows": [row.as_dict() for row in self.rows],
        }  # fmt: skip

    def __str__(self) -> str:
        return table.text(self)

    __repr__ = __str__

    def print(self, rich: bool = False) -> None:
        """Print the table; with `rich=True` by the package rich, in colours."""
        if rich:
            table.print_rich(self)
        else:
            print(self)

    def _repr_html_(self) -> str:
        return page.fragment(self)

    def as_html(self) -> str:
        """Return a whole page, which needs no other file."""
        return page.whole(self)
