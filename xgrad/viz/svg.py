"""svg: writes a picture as SVG, readable without a style sheet, and themed by CSS variables where there is one.

Each shape has the light theme's colours as attributes, for programs that know no variables (Inkscape, LaTeX's
converters); classes put the variables in their place.  The dark theme follows the reader's system, JupyterLab, VS Code
or this project's site.  A drawing has no ids, so any number of them share a page.
"""

from html import escape

from .layout import HEADING, HEADING_ROOM, LABEL, LINE, LINE_ROOM, Layout
from .scene import Box
from .text_width import FAMILY, width

# name: light, dark
COLOURS = {
    "ink": ("#1f2933", "#e4e7eb"),
    "soft": ("#5b6770", "#a3b0bb"),
    "line": ("#7b8794", "#8e9ba8"),
    "operator": ("#e3f0fb", "#1d3a52"),
    "view": ("#e5f5ea", "#1f4030"),
    "write": ("#fde8cf", "#553818"),
    "leaf": ("#fff6cf", "#4a4315"),
    "result": ("#efe6fb", "#3c2c56"),
    "block": ("#f4f6f8", "#232c35"),
    "port": ("#ffffff", "#171e26"),
    "storage": ("#fde8cf", "#553818"),
    "tensor": ("#e3f0fb", "#1d3a52"),
    "stale": ("#fbe3e4", "#55262b"),
    "fusion": ("#e5f5ea", "#1f4030"),
    "hook": ("#b3261e", "#ff9c8f"),
    "mark": ("#d9480f", "#ff922b"),
}


def _variables(theme: int) -> str:
    return ";".join(f"--xv-{name}:{both[theme]}" for name, both in COLOURS.items())


_DARK = (
    '[data-jp-theme-light="false"] .xgrad-viz,.vscode-dark .xgrad-viz,'
    '[data-vscode-theme-kind="vscode-dark"] .xgrad-viz,[data-md-color-scheme="slate"] .xgrad-viz,'
    '.xgrad-viz[data-theme="dark"]'
)
_LIGHT = _DARK.replace('"false"', '"true"').replace("dark", "light").replace("slate", "default")
STYLE = (
    f".xgrad-viz{{{_variables(0)}}}svg.xgrad-viz{{max-width:none}}"  # a page shows the rest of a wide one by scrolling
    f"@media(prefers-color-scheme:dark){{.xgrad-viz{{{_variables(1)}}}}}"
    f"{_LIGHT}{{{_variables(0)}}}{_DARK}{{{_variables(1)}}}"
    + "".join(f".xgrad-viz .xv-{name}{{fill:var(--xv-{name})}}" for name in COLOURS if name != "line")
    + ".xgrad-viz .xv-box{stroke:var(--xv-line)}.xgrad-viz .xv-edge{stroke:var(--xv-line)}"
    ".xgrad-viz .xv-head{fill:var(--xv-line)}"
)


def svg(layout: Layout, standalone: bool = True) -> str:
    """Return a layout as an SVG element; `standalone`, for a file, with its style inside."""
    scene = layout.scene
    top = 24.0 if scene.title else 8.0
    foot = LINE_ROOM * len(scene.foot) + (6 if scene.foot else 0)
    texts = [width(line, LINE) for line in scene.foot] + ([width(scene.title, HEADING, True)] if scene.title else [])
    wide = max([layout.width, *texts]) + 16
    high = top + layout.height + foot + 8
    parts = [
        f'<svg class="xgrad-viz" xmlns="http://www.w3.org/2000/svg" width="{_n(wide)}" height="{_n(high)}" '
        f'viewBox="0 0 {_n(wide)} {_n(high)}" role="img" font-family="{FAMILY}">'
        f"<title>{escape(scene.title or 'xgrad.viz')}</title>"
    ]
    if standalone:
        parts.append(f"<style>{STYLE}</style>")
    if scene.title:
        parts.append(_text(scene.title, 8, 15, HEADING, "ink", bold=True))
    parts.append(f'<g transform="translate({_n(8 + (wide - 16 - layout.width) / 2)} {_n(top)})">')
    _draw(layout, parts)
    parts.append("</g>")
    for i, line in enumerate(scene.foot):
        parts.append(_text(line, 8, top + layout.height + 16 + LINE_ROOM * i, LINE, "soft"))
    parts.append("</svg>")
    return "".join(parts)


def _draw(layout: Layout, parts: list[str]) -> None:
    line = COLOURS["line"][0]
    for edge, curve in zip(layout.scene.edges, layout.curves):
        path = "".join(c + " ".join(f"{_n(x)} {_n(y)}" for x, y in points) for c, points in curve.path)
        dashed = ' stroke-dasharray="4 3"' if edge.dashed else ""
        parts.append(f'<path class="xv-edge" d="{path}" fill="none" stroke="{line}" stroke-width="1.2"{dashed}/>')
        x, y = curve.end
        if layout.scene.direction == "down":
            head = f"M{_n(x)} {_n(y)}l-3.5 -6h7z"
        else:
            head = f"M{_n(x)} {_n(y)}l-6 -3.5v7z"
        parts.append(f'<path class="xv-head" d="{head}" fill="{line}"/>')
        if edge.label and curve.label is not None:
            parts.append(_text(edge.label, *curve.label, LABEL, "soft"))
    for box, place, inner in zip(layout.scene.boxes, layout.boxes, layout.inner):
        members = f' data-n="{" ".join(map(str, box.members))}"' if box.members else ""
        parts.append(f'<g class="xv-node" transform="translate({_n(place.x)} {_n(place.y)})"{members}>')
        _box(box, place.width, place.height, parts)
        if inner is not None:
            down = HEADING_ROOM + 8 + LINE_ROOM * len(box.lines)
            parts.append(f'<g transform="translate({_n((place.width - inner.width) / 2)} {_n(down)})">')
            _draw(inner, parts)
            parts.append("</g>")
        parts.append("</g>")


def _box(box: Box, wide: float, high: float, parts: list[str]) -> None:
    kind = box.kind
    round_ = high / 2 if kind in ("leaf", "port", "result") and high < 40 else 6
    dashed = ' stroke-dasharray="5 3"' if kind in ("block", "port") else ""
    parts.append(
        f'<rect class="xv-box xv-{kind}" width="{_n(wide)}" height="{_n(high)}" rx="{_n(round_)}" '
        f'fill="{COLOURS[kind][0]}" stroke="{COLOURS["line"][0]}"{dashed}/>'
    )
    if kind == "port":
        parts.append(_text(box.heading, wide / 2, high / 2 + 3.7, LINE, "soft", middle=True))
        return
    parts.append(_text(box.heading, wide / 2, 17, HEADING, "ink", bold=True, middle=True))
    for i, (text, kind) in enumerate(box.lines):
        colour = "hook" if kind == "hook" else "ink" if kind == "plain" else "soft"
        parts.append(_text(text, wide / 2, HEADING_ROOM + 13 + LINE_ROOM * i, LINE, colour, middle=True))


def _text(text: str, x: float, y: float, size: float, colour: str, bold: bool = False, middle: bool = False) -> str:
    """One line of text, with the width that was measured for it."""
    if not text:
        return ""
    weight = ' font-weight="bold"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return (
        f'<text class="xv-{colour}" x="{_n(x)}" y="{_n(y)}" font-size="{size:g}" fill="{COLOURS[colour][0]}"{weight}'
        f'{anchor} textLength="{_n(width(text, size, bold))}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
    )


def _n(number: float) -> str:
    return f"{number:.1f}".rstrip("0").rstrip(".")
