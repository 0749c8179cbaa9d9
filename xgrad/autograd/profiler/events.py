"""FunctionEvent, EventList: the events of `xgrad.autograd.profiler`, shown as averages, a table or a Chrome trace.

Invariant: events are in the order in which they began, and an event's children lie within it in time.  Times are in
microseconds.  (PyTorch: torch/autograd/profiler_util.py.)
"""

import gzip
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple


class Interval(NamedTuple):
    """Begin and end, in microseconds since the profiler was entered."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Return the time between them."""
        return self.end - self.start


def _shown(us: float) -> str:
    """Return a time as people read it: 3.355ms."""
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


class _Times:
    """The properties that an event and an average share."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    input_shapes: list[Any]

    @property
    def cpu_time(self) -> float:
        """The average of a call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_total_str(self) -> str:
        return _shown(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return _shown(self.self_cpu_time_total)

    @property
    def cpu_time_str(self) -> str:
        return _shown(self.cpu_time)


class FunctionEvent(_Times):
    """One run of an operator ("forward"), a node ("backward"), or a block that the user named ("range")."""

    count = 1
    id: int
    name: str
    kind: str
    thread: int
    sequence_nr: int
    input_shapes: list[Any]

    def __init__(
        self, id: int, name: str, thread: int, start_us: float, end_us: float, *, kind: str = "forward",
        input_shapes: Any = None, sequence_nr: int = -1, node_id: int = -1, is_user_annotation: bool = False,
        parent: "FunctionEvent | None" = None, **measured: Any,
    ) -> None:  # fmt: skip
        """Make an event of its name, thread and time.

        `measured`: PyTorch's further arguments (`stack`, `device_index`, `cpu_memory_usage`, ...), stored as they are.
        """
        vars(self).update(measured)
        self.id, self.name, self.thread, self.node_id = id, name, thread, node_id
        self.kind: str = "range" if is_user_annotation else kind
        self.sequence_nr, self.input_shapes = sequence_nr, input_shapes or []
        self.cpu_parent: FunctionEvent | None = parent
        self.cpu_children: list[FunctionEvent] = []
        self.time_range: Interval = Interval(start_us, end_us)
        self.args = ""
        if parent is not None:
            parent.cpu_children.append(self)

    @property
    def key(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.name

    @property
    def is_user_annotation(self) -> bool:
        """True if the event is a block that the user named."""
        return self.kind == "range"

    @property
    def cpu_time_total(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The host's time in the event."""
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The host's time in the event and in none of its children."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    def __repr__(self) -> str:
        start, end = self.time_range
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} start_us={start:.3f} "
            f"end_us={end:.3f} cpu_children={[c.id for c in self.cpu_children]} thread={self.thread} "
            f"input_shapes={self.input_shapes} seq_nr={self.sequence_nr}>"
        )


class FunctionEventAvg(_Times):
    """Events of one name, added up."""

    key: str
    input_shapes: list[Any]
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    is_user_annotation: bool

    def __init__(self, key: str, input_shapes: list[Any] | None = None) -> None:
        self.key, self.input_shapes = key, input_shapes or []
        self.count, self.cpu_time_total, self.self_cpu_time_total = 0, 0.0, 0.0
        self.is_user_annotation = False

    def add(self, other: Any) -> "FunctionEventAvg":
        """Add an event, or a sum of events."""
        self.count += other.count
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.is_user_annotation = self.is_user_annotation or other.is_user_annotation
        return self

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} count={self.count} input_shapes={self.input_shapes}>"
        )


class EventList(list[Any]):
    """A list of events, or of averages."""

    def _populate_cpu_children(self) -> None:
        """Set parents and children by time, of events of one thread and node: the inner lies within the outer."""
        open_: dict[tuple, list[FunctionEvent]] = {}
        for event in sorted(self, key=lambda e: (e.time_range.start, -e.time_range.end)):
            outer = open_.setdefault((event.thread, event.node_id), [])
            while outer and not (event.time_range.end <= outer[-1].time_range.end > event.time_range.start):
                outer.pop()
            if outer and event.cpu_parent is not outer[-1]:
                event.cpu_parent = outer[-1]
                outer[-1].cpu_children.append(event)
            outer.append(event)

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> "EventList":
        """Return one `FunctionEventAvg` for each name (and choice of input shapes), in order of first events.

        Stacks and overloads are not recorded: to group by them changes nothing.
        """
        found: dict[tuple, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shapes else []
            key = (event.key, str(shapes), event.is_user_annotation)
            if key not in found:
                found[key] = FunctionEventAvg(event.key, shapes)
            found[key].add(event)
        return EventList(found.values())

    def total_average(self) -> FunctionEventAvg:
        """Return the sum of all events, as "Total"."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time in all events, in microseconds; nested events count once."""
        return sum(event.self_cpu_time_total for event in self)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """Return the entries as lines of a table, "" without entries.

        `sort_by`: the attribute of the entries that lines are sorted by, largest first, such as "count", "cpu_time",
        "cpu_time_total", "self_cpu_time_total"; raises `AttributeError` for a name that entries lack.
        `row_limit`: the most lines, -1 for all.
        `top_level_events_only`: only events that are in no other.  No places in the source are recorded, and
        `max_src_column_width` has no effect.
        """
        if not self:
            return ""
        events: Sequence = sorted(self, key=lambda e: getattr(e, sort_by), reverse=True) if sort_by else self
        total = self.self_cpu_time_total
        if top_level_events_only:
            events = [e for e in events if getattr(e, "cpu_parent", None) is None]
        if row_limit >= 0:
            events = events[:row_limit]
        heads = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls"]
        rows = [
            [
                _cut(event.key, max_name_column_width),
                _share(event.self_cpu_time_total, total),
                event.self_cpu_time_total_str,
                _share(event.cpu_time_total, total),
                event.cpu_time_total_str,
                event.cpu_time_str,
                str(event.count),
            ]
            for event in events
        ]
        if any(event.input_shapes for event in events):
            heads.append("Input Shapes")
            for row, event in zip(rows, events):
                row.append(_cut(str(event.input_shapes), max_shapes_column_width))
        widths = [max(12, *(len(row[i]) for row in (heads, *rows))) for i in range(len(heads))]
        rule = "  ".join("-" * width for width in widths)
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in (heads, *rows)]
        top = [] if header is None else ["=" * len(rule), header]
        return "\n".join([*top, rule, lines[0], rule, *lines[1:], rule, f"Self CPU time total: {_shown(total)}", ""])

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a Chrome trace (compressed if its name ends in .gz): events, and arrows from operators to nodes."""
        process = os.getpid()
        told: list[dict[str, Any]] = []
        makers: dict[int, FunctionEvent] = {}
        for event in self:
            args: dict[str, Any] = {"External id": event.id}
            if event.sequence_nr >= 0:
                args["Sequence number"] = event.sequence_nr
            if event.input_shapes:
                args["Input Dims"] = event.input_shapes
            if event.args:
                args["Input"] = event.args
            place = {"pid": process, "tid": event.thread, "ts": event.time_range.start}
            kind = "user_annotation" if event.is_user_annotation else "cpu_op"
            told.append(
                {"ph": "X", "cat": kind, "name": event.name, "dur": event.cpu_time_total, "args": args, **place}
            )
            if event.kind == "forward" and event.sequence_nr >= 0:
                makers[event.sequence_nr] = event
            elif event.kind == "backward" and event.sequence_nr in makers:
                maker = makers[event.sequence_nr]
                arrow = {"cat": "fwdbwd", "name": "fwdbwd", "id": event.id, "pid": process}
                told.append({"ph": "s", "tid": maker.thread, "ts": maker.time_range.start, **arrow})
                told.append({"ph": "f", "bp": "e", "tid": event.thread, "ts": event.time_range.start, **arrow})
        write_trace(path, told)

    def __str__(self) -> str:
        return self.table()


def write_trace(path: str | os.PathLike[str], events: list[dict[str, Any]]) -> None:
    """Write a Chrome trace, which Perfetto shows, of events in its form; compressed if the name ends with .gz."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "wt", encoding="utf-8") as file:
        json.dump({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": events}, file)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else f"{text[: max(width - 3, 0)]}..."
