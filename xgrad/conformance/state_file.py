"""StateFile: writes a conformance run's rows to a JSON file, so that an interrupted `xgrad conform` can go on.

    {"format": 1, "device": "cpu", ...,  the facts
     "complete": false,
     "running": ["operators", "mul", "float32"],  the cell that was being made
     "ended": [...],                     the cells in which earlier runs ended
     "summary": {...},
     "rows": [...]}                      a line each

A process that dies (XLA ends it where a check of its own fails) leaves `running`: the next run says of that cell that
it ended the process, and goes on behind it.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from .records import Row
from .report import FORMAT, Report
from .results import states_of

Place = tuple[str, str, str]  # group, row, dtype

_OPTIONAL = ("compiled for", "accepted")  # facts that not every run has


class StateFile:
    """The file of one run; without a path nothing is written."""

    def __init__(self, path: Path | None, facts: dict[str, Any]) -> None:
        self.path: Path | None = path
        self.facts: dict[str, Any] = facts
        self.rows: list[Row] = []
        self.ended: list[Place] = []
        self._lines: list[str] = []
        self._counts: Counter[str] = Counter()

    def resume(self) -> None:
        """Take over the rows of the file, if there is one.

        Raises `ValueError` for the file of another device, version or selection, and for a file of another kind.
        """
        if self.path is None or not self.path.exists():
            return
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            before = {name: found.get(name) for name in ("format", *_OPTIONAL, *self.facts)}
            rows = [Row.of_dict(row) for row in found["rows"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.path} is not a file of xgrad's conformance: {error!r}") from error
        for name, value in {"format": FORMAT, **dict.fromkeys(_OPTIONAL), **json.loads(json.dumps(self.facts))}.items():
            if before[name] != value:
                raise ValueError(
                    f"{self.path} cannot be resumed: its {name} is {before[name]!r}, and now it is {value!r}"
                )
        for row in rows:
            self.add(row, write=False)
        running = found.get("running")
        self.ended = [tuple(place) for place in [*found.get("ended", []), *([running] if running else [])]]

    def add(self, row: Row, write: bool = True) -> None:
        self.rows.append(row)
        self._lines.append(json.dumps(row.as_dict(), ensure_ascii=False))
        self._counts.update(cell.state for cell in row.cells.values())
        if write:
            self.write()

    def write(self, running: Place | None = None, complete: bool = False) -> None:
        """Write the file, in one step: an interrupt leaves the file before, or the file after."""
        if self.path is None:
            return
        state = {
            "format": FORMAT, **self.facts, "complete": complete, "running": running, "ended": self.ended,
            "summary": {state: self._counts[state] for state in states_of(self.facts)},
        }  # fmt: skip
        body = ",\n".join(self._lines)
        text = json.dumps(state, indent=1, ensure_ascii=False)[:-2] + f',\n "rows": [\n{body}\n ]\n}}\n'
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, self.path)

    def report(self, complete: bool) -> Report:
        return Report(self.facts, self.rows, complete)
