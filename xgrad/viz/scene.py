"""Scene: describes a picture of xgrad.viz before its layout, as boxes, edges, and boxes with a scene inside.

Every picture of xgrad.viz is a scene.  `layout.py` gives it positions, `svg.py`, `dot.py` and `text.py` write it.
Invariant: edges run between boxes of their own scene, and form no cycle.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

KINDS = ("result", "operator", "view", "write", "leaf", "block", "port", "storage", "tensor", "stale", "fusion")


@dataclass(slots=True)
class Box:
    """A box with a title, lines of text below it, and perhaps a scene inside."""

    title: str
    kind: str = "operator"
    name: str = ""  # of the user's variable
    lines: list[tuple[str, str]] = field(default_factory=list)  # (text, "plain", "saved", "hook" or "note")
    inner: "Scene | None" = None
    key: Hashable = None  # equal for boxes that differ in nothing but their places and names
    members: list[int] = field(default_factory=list)  # the numbers of the nodes that the box stands for

    @property
    def heading(self) -> str:
        """The title, with the variable's name if there is one."""
        return f"{self.name}: {self.title}" if self.name and self.title else self.name or self.title


@dataclass(slots=True)
class Edge:
    """An arrow from a box to another one, by their numbers in the scene."""

    source: int
    target: int
    label: str = ""
    dashed: bool = False


@dataclass(slots=True)
class Scene:
    """Boxes and edges, with a title, lines below the picture, and the direction of its arrows."""

    title: str = ""
    boxes: list[Box] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    foot: list[str] = field(default_factory=list)
    direction: str = "down"  # or "right"

    def add(self, box: Box) -> int:
        """Add a box, and return its number."""
        self.boxes.append(box)
        return len(self.boxes) - 1

    def turn(self, direction: str) -> None:
        """Let arrows run "down" or "right", also in the scenes inside.  Raises `ValueError` for another direction."""
        if direction not in ("down", "right"):
            raise ValueError(f'the direction of a picture is "down" or "right", not {direction!r}')
        self.direction = direction
        for box in self.boxes:
            if box.inner is not None:
                box.inner.turn(direction)

    def outgoing(self) -> list[list[Edge]]:
        """Return the edges that leave each box, in their order."""
        found: list[list[Edge]] = [[] for _ in self.boxes]
        for edge in self.edges:
            found[edge.source].append(edge)
        return found

    def incoming(self) -> list[list[Edge]]:
        """Return the edges that arrive at each box, in their order."""
        found: list[list[Edge]] = [[] for _ in self.boxes]
        for edge in self.edges:
            found[edge.target].append(edge)
        return found
