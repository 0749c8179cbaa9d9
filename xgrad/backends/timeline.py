"""Timeline: shows when an `xgrad.Backend`'s programs and transfers would run, as a table, picture or Perfetto trace."""

import os
from typing import Any

from ..autograd.profiler.events import write_trace
from ..base.table import Row, Table, Tabled, number, seconds, size
from ..viz.chart import Chart
from .clock import COMPUTE, HOST, QUEUES, Span

_WIDE = 48  # characters of a bar


class Timeline(Tabled):
    """When the host, the programs and the transfers of a report begin and end, in simulated seconds.

    `spans`: a list of (queue, name, start, end, stream, bytes).  `seconds`: when all is done.
    `busy`: {queue: seconds}.  `exposed`: {queue: the seconds of it in which no program runs}.
    `moves`: what a fast memory moved.  `memory`: bytes that a target's program takes on each chip.
    Prints as a table with bars, and is a picture in a notebook; `save(path)` writes that (`.svg`, `.html`, `.txt`),
    or a trace for Perfetto (`.json`).
    """

    def __init__(self, name: str, spans: list[Span], end: float, moves: Any = None, memory: int | None = None) -> None:
        self._name = name
        self.spans: list[Span] = spans
        self.seconds: float = end
        self.memory: int | None = memory
        found = {queue: _union([s for s in self.spans if s.queue == queue]) for queue in QUEUES}
        compute = found[COMPUTE]
        self.busy: dict[str, float] = {queue: _length(parts) for queue, parts in found.items() if parts}
        self.exposed: dict[str, float] = {
            queue: _length(_union_of([*parts, *compute])) - _length(compute)
            for queue, parts in found.items() if parts and queue != COMPUTE
        }  # fmt: skip
        self.moves: dict[str, dict[str, int]] = {} if moves is None else {
            "in": {"count": moves.into.count, "bytes": moves.into.bytes},
            "out": {"count": moves.out.count, "bytes": moves.out.bytes},
        }  # fmt: skip

    def lanes(self) -> list[tuple[str, list[Span]]]:
        """Return the spans of each queue, of each stream apart, with its name."""
        found: dict[tuple[str, int], list[Span]] = {}
        for span in self.spans:
            found.setdefault((span.queue, span.stream), []).append(span)
        order = sorted(found, key=lambda lane: ((HOST, *QUEUES).index(lane[0]), lane[1]))
        return [(f"{queue}, stream {stream}" if stream else queue, found[queue, stream]) for queue, stream in order]

    def as_dict(self) -> dict[str, Any]:
        """Return the sums: seconds, busy and exposed queues, moves of a fast memory."""
        found = {"seconds": self.seconds, "busy": self.busy, "exposed": self.exposed, "moves": self.moves}
        return found if self.memory is None else found | {"memory": self.memory}

    def rows(self) -> list[Row]:
        """Return rows of a report."""
        rows = [Row("simulated, with overlap", (seconds(self.seconds),))]
        rows += [
            Row(f"exposed: {queue}", (seconds(value),), 1)
            for queue, value in self.exposed.items() if value and queue != HOST
        ]  # fmt: skip
        where = {"in": "into", "out": "out of"}
        for name, moved in self.moves.items():
            told = f"{number(moved['count'])}, {size(moved['bytes'])}"
            rows.append(Row(f"moved {where[name]} the fast memory", (told,), 1))
        return rows

    def table(self) -> Table:
        """Return a bar for each queue, and how long it is busy."""
        rows = [
            Row(name, (_bar(spans, self.seconds), seconds(_length(_union(spans))), number(len(spans))))
            for name, spans in self.lanes()
        ]
        columns = (f"0 to {seconds(self.seconds)}", "busy", "spans")
        if self.memory is not None:
            rows.append(Row("memory of each chip", (size(self.memory), "", "")))
        return Table(rows, columns, f"{self._name}: simulated time", numbers=False)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a Chrome trace, which Perfetto (ui.perfetto.dev) shows: a row for each queue and stream."""
        told: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": f"{self._name}, simulated"}}
        ]
        for lane, (name, spans) in enumerate(self.lanes()):
            place = {"pid": 0, "tid": lane}
            told.append({"ph": "M", "name": "thread_name", "args": {"name": name}, **place})
            told.append({"ph": "M", "name": "thread_sort_index", "args": {"sort_index": lane}, **place})
            told += [
                {
                    "ph": "X", "cat": s.queue, "name": s.name, "ts": s.start * 1e6, "dur": (s.end - s.start) * 1e6,
                    "args": {"bytes": s.bytes} if s.bytes else {}, **place,
                }
                for s in spans
            ]  # fmt: skip
        write_trace(path, told)

    def drawing(self) -> Chart:
        """Return the picture, an `xgrad.viz.Drawing`."""
        return Chart(f"{self._name}: {seconds(self.seconds)}, simulated", self.lanes(), self.seconds, str(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file: `.json` for Perfetto, or a picture.  Raises `ValueError` for another ending."""
        if os.fspath(path).lower().endswith(".json"):
            self.export_chrome_trace(path)
        else:
            self.drawing().save(path)

    def _repr_html_(self) -> str:
        return self.drawing().html()


def _union(spans: list[Span]) -> list[tuple[float, float]]:
    return _union_of([(span.start, span.end) for span in spans])


def _union_of(parts: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return intervals without overlap that cover the same time."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(parts):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _length(parts: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in parts)


def _bar(spans: list[Span], whole: float) -> str:
    """Return a line of characters: full where a queue is busy for most of one's time, half where for some."""
    step = whole / _WIDE or 1.0
    filled = [0.0] * _WIDE
    for start, end in _union(spans):
        for i in range(min(int(start / step), _WIDE - 1), min(int(end / step), _WIDE - 1) + 1):
            filled[i] += max(min(end, (i + 1) * step) - max(start, i * step), 0.0)
    return "".join("█" if f > 0.5 * step else "▒" if f > 0 else "·" for f in filled)
