"""Chart: draws the timeline of an `xgrad.Backend`'s report: bars along the time, a row for each queue."""

from collections.abc import Sequence
from typing import Any

from ..base.table import seconds as shown
from .drawing import Drawing
from .layout import HEADING, LINE, PADDING, Layout, Rectangle
from .scene import Box, Scene
from .text_width import width

_WIDE, _HIGH, _ROW = 820.0, 24.0, 30.0
_KINDS = {"compute": "operator", "host": "block", "host to device": "view", "device to host": "write",
          "between chips": "result"}  # fmt: skip


class Chart(Drawing):
    """Rows of spans, each (queue, name, start, end, ...), with a name; `whole`: the seconds that the width shows.

    `told`: its lines of text.
    """

    def __init__(self, title: str, lanes: Sequence[tuple[str, Sequence[Any]]], whole: float, told: str) -> None:
        scene = Scene(title, foot=[f"0 to {shown(whole)}"])
        super().__init__(scene)
        self._told = told
        left = 2 * PADDING + max([width(name, LINE) for name, _ in lanes], default=0.0)
        places: list[Rectangle] = []
        for row, (name, spans) in enumerate(lanes):
            scene.add(Box(name, "port"))
            places.append(Rectangle(0.0, _ROW * row, left - PADDING / 2, _HIGH))
            for label, kind, start, end in _merged(spans, whole / _WIDE):
                wide = max((end - start) / (whole or 1.0) * _WIDE, 0.8)
                scene.add(Box(label if width(label, HEADING, True) < wide - 6 else "", kind))
                places.append(Rectangle(left + start / (whole or 1.0) * _WIDE, _ROW * row, wide, _HIGH))
        self._layout = Layout(scene, places, [], [None] * len(places), left + _WIDE, _ROW * len(lanes))

    def text(self) -> str:
        """Return the rows as lines of text."""
        return self._told

    def dot(self) -> str:
        """Raise `ValueError`: bars are no graph."""
        raise ValueError("a timeline is not a graph: it is saved as .svg, .html, .txt, or .json for Perfetto")


def _merged(spans: Sequence[Any], least: float) -> list[tuple[str, str, float, float]]:
    """Return (label, kind, start, end); what is too narrow to be seen is one with its neighbours."""
    found: list[tuple[int, Any, float, float]] = []
    for span in sorted(spans, key=lambda span: span.start):
        if found and span.end - found[-1][2] < 2 * least:
            count, first, start, end = found[-1]
            found[-1] = count + 1, first, start, max(end, span.end)
        else:
            found.append((1, span, span.start, span.end))
    return [
        (first.name if count == 1 else f"{count} × {first.name}, ...", _KINDS[first.queue], start, end)
        for count, first, start, end in found
    ]
