"""Chart: bars along the time, a row for each queue; the picture of a backend's timeline."""

from collections.abc import Sequence
from html import escape
from typing import Any

from ..base.table import seconds as shown
from .drawing import Drawing
from .layout import HEADING, LABEL
from .scene import Scene
from .svg import COLOURS, STYLE
from .svg import line_of_text as text_at
from .svg import number as n
from .text_width import FAMILY, shortened, width

_WIDE, _HIGH, _GAP = 820.0, 22.0, 6.0
_KINDS = {"compute": "operator", "host": "block", "host to device": "view", "device to host": "write",
          "between chips": "result"}  # fmt: skip


class Chart(Drawing):
    """Rows of spans, each (queue, name, start, end, ...), with a name; `whole`: the seconds that the width shows."""

    def __init__(self, title: str, lanes: Sequence[tuple[str, Sequence[Any]]], whole: float, told: str) -> None:
        super().__init__(Scene(title))
        self._lanes, self._whole, self._told = lanes, whole or 1.0, told

    def svg(self, standalone: bool = True) -> str:
        """Return the picture as SVG."""
        left = 16 + max([width(name, LABEL) for name, _ in self._lanes], default=0.0)
        high = 34 + len(self._lanes) * (_HIGH + _GAP) + 22
        wide = left + _WIDE + 16
        parts = [
            f'<svg class="xgrad-viz" xmlns="http://www.w3.org/2000/svg" width="{n(wide)}" height="{n(high)}" '
            f'viewBox="0 0 {n(wide)} {n(high)}" role="img" font-family="{FAMILY}"><title>{escape(self.scene.title)}'
            f"</title>{f'<style>{STYLE}</style>' if standalone else ''}",
            text_at(self.scene.title, 8, 15, HEADING, "ink", bold=True),
        ]
        y = 30.0
        for name, spans in self._lanes:
            parts.append(text_at(name, 8, y + _HIGH / 2 + 4, LABEL, "soft"))
            parts += [self._bar(left, y, *part) for part in self._merged(spans)]
            y += _HIGH + _GAP
        for i in range(5):
            x = left + _WIDE * i / 4
            parts.append(f'<path class="xv-edge" d="M{n(x)} 26V{n(y)}" stroke="{COLOURS["line"][0]}" stroke-width="0.4"/>')
            parts.append(text_at(shown(self._whole * i / 4) if i else "0", x, y + 12, LABEL, "soft", middle=0 < i < 4)
                         if i < 4 else text_at(shown(self._whole), x - 40, y + 12, LABEL, "soft"))  # fmt: skip
        return "".join([*parts, "</svg>"])

    def _merged(self, spans: Sequence[Any]) -> list[tuple[str, str, float, float, int]]:
        """Return (queue, name, start, end, count); what is too narrow to be seen is one with its neighbours."""
        found: list[tuple[str, str, float, float, int]] = []
        least = self._whole / _WIDE
        for span in sorted(spans, key=lambda span: span.start):
            if found and span.end - found[-1][2] < 2 * least:
                queue, name, start, end, count = found[-1]
                found[-1] = queue, name, start, max(end, span.end), count + 1
            else:
                found.append((span.queue, span.name, span.start, span.end, 1))
        return found

    def _bar(self, left: float, y: float, queue: str, name: str, start: float, end: float, count: int) -> str:
        scale, kind = _WIDE / self._whole, _KINDS[queue]
        wide = max((end - start) * scale, 0.8)
        label = name if count == 1 else f"{count} × {name}, ..."
        tip = f"<title>{escape(f'{label}: {shown(start)} to {shown(end)}')}</title>"
        inside = shortened(label)
        text = text_at(inside, wide / 2, 15, LABEL, "ink", middle=True) if width(inside, LABEL) < wide - 6 else ""
        return (
            f'<g class="xv-node" transform="translate({n(left + start * scale)} {n(y)})">{tip}<rect class="xv-box '
            f'xv-{kind}" width="{n(wide)}" height="{n(_HIGH)}" fill="{COLOURS[kind][0]}" '
            f'stroke="{COLOURS["line"][0]}" stroke-width="0.6"/>{text}</g>'
        )

    def html(self) -> str:
        """Return the picture as HTML for a page; it follows the page's theme."""
        return f'<div class="xgrad-viz" style="overflow:auto"><style>{STYLE}</style>{self.svg(standalone=False)}</div>'

    def text(self) -> str:
        """Return the rows as lines of text."""
        return self._told

    def dot(self) -> str:
        """Raise `ValueError`: bars are no graph."""
        raise ValueError("a timeline is not a graph: it is saved as .svg, .html, .txt, or .json for Perfetto")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._lanes)} rows; print() shows it, .save() stores it>"
