"""Drawing: the result of each function of xgrad.viz, shown in a notebook or as text in a terminal, or saved."""

import os
from html import escape

from .dot import dot
from .layout import Layout, layout
from .scene import Scene
from .svg import STYLE, svg
from .text import text

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{margin:16px;background:#fff}}@media(prefers-color-scheme:dark){{body{{background:#171e26}}}}</style></head>
<body>{body}</body></html>
"""


class Drawing:
    """A picture.  A notebook shows it, `print` writes it as text, `save` stores it, `dot()` gives it to graphviz.

    >>> import xgrad
    >>> x = xgrad.ones(2, requires_grad=True)
    >>> print(xgrad.viz.graph((x * x).sum()))
    output  []
    SumBackward0
    [2] → MulBackward0  saves self [2] 8 B  saves other [2] 8 B
    ├─ x  [2]  AccumulateGrad  #1
    └─ x  #1, above
    3 nodes, 8 B saved, 8 B of it by leaves
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._layout: Layout | None = None

    @property
    def layout(self) -> Layout:
        """The places of boxes and edges."""
        if self._layout is None:
            self._layout = layout(self.scene)
        return self._layout

    def svg(self) -> str:
        """Return the picture as SVG."""
        return svg(self.layout)

    def dot(self) -> str:
        """Return the graph in the language of graphviz."""
        return dot(self.scene)

    def text(self) -> str:
        """Return the graph as lines of text."""
        return text(self.scene)

    def html(self) -> str:
        """Return the picture as HTML for a page; it follows the page's theme."""
        picture = svg(self.layout, standalone=False)
        return f'<div class="xgrad-viz" style="overflow:auto"><style>{STYLE}</style>{picture}</div>'

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file: `.svg`, `.dot`, `.html` or `.txt`.  Raises `ValueError` for another ending."""
        kind = os.path.splitext(os.fspath(path))[1].lower()
        match kind:
            case ".svg":
                content = self.svg()
            case ".dot" | ".gv":
                content = self.dot()
            case ".html":
                content = _PAGE.format(title=escape(self.scene.title or "xgrad.viz"), body=self.html())
            case ".txt":
                content = f"{self.text()}\n"
            case _:
                raise ValueError(f"a picture is saved as .svg, .dot, .html or .txt, but got {os.fspath(path)!r}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)

    def _repr_html_(self) -> str:
        return self.html()

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.scene.boxes)} boxes; print() shows it, .save() stores it>"
