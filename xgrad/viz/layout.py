"""layout: places the boxes, edges and labels of a picture in layers (Sugiyama, Tagawa and Toda 1981).

    ranks.py        each box gets a row; each edge leads to a later one
    here            an edge over several rows gets a point in each of them, its label one of its own
    ordering.py     the order within a row, with few crossings
    coordinates.py  the places within a row

*Along* is the direction of the edges, *across* the direction of a row: y and x of a scene that runs down, x and y of
one that runs right.  Invariants: no two boxes or labels overlap; an edge ends at its boxes' sides, and bends only
between rows, so it crosses no box.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from .coordinates import coordinates, move
from .ordering import ordered
from .ranks import ranks
from .scene import Box, Edge, Scene
from .text_width import width

HEADING, LINE, LABEL = 12.5, 10.5, 10.0  # sizes of text
HEADING_ROOM, LINE_ROOM = 17.0, 13.5  # heights of lines
PADDING = 9.0
_GAP = 16.0  # between two boxes of a row
_TURN = 16.0  # between two rows
_ARROW = 6.0
_POINTS = 12_000  # of long edges; the longest of more than these run around the boxes


class Rectangle(NamedTuple):
    """A box's place: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float


class Curve(NamedTuple):
    """An edge's place: (command, points) of a path, and where its label begins."""

    path: list[tuple[str, tuple[tuple[float, float], ...]]]
    label: tuple[float, float] | None

    @property
    def start(self) -> tuple[float, float]:
        return self.path[0][1][0]

    @property
    def end(self) -> tuple[float, float]:
        return self.path[-1][1][-1]


@dataclass(slots=True)
class Layout:
    """A scene with a place for each of its boxes, edges and labels."""

    scene: Scene
    boxes: list[Rectangle]
    curves: list[Curve]
    inner: list["Layout | None"]
    width: float
    height: float


def layout(scene: Scene) -> Layout:
    """Return places for all that a scene has.  Raises `ValueError` if its edges form a cycle."""
    inner = [None if box.inner is None else layout(box.inner) for box in scene.boxes]
    sizes = [size_of(box, within) for box, within in zip(scene.boxes, inner)]
    if not scene.boxes:
        return Layout(scene, [], [], [], 0.0, 0.0)
    return _Layers(scene, sizes).placed(inner)


def size_of(box: Box, inner: Layout | None = None) -> tuple[float, float]:
    """Return the width and height that a box needs for its text, and for the scene inside."""
    if box.kind == "port":
        return width(box.heading, LINE) + 2 * PADDING, LINE_ROOM + 5
    wide = max([width(box.heading, HEADING, True), *(width(text, LINE) for text, _ in box.lines)])
    high = HEADING_ROOM + LINE_ROOM * len(box.lines) + 8
    if inner is not None:
        wide, high = max(wide, inner.width), high + inner.height + 6
    return wide + 2 * PADDING, high


@dataclass(slots=True)
class _Layers:
    scene: Scene
    sizes: list[tuple[float, float]]
    before: list[float] = field(default_factory=list)  # room across, of boxes, then of points
    after: list[float] = field(default_factory=list)
    deep: list[float] = field(default_factory=list)  # room along
    row: list[int] = field(default_factory=list)
    chains: list[list[int]] = field(default_factory=list)  # of each edge: its boxes and the points between
    labels: list[int | None] = field(default_factory=list)  # of each edge: the point that has its label

    def placed(self, inner: list[Layout | None]) -> Layout:
        scene, down = self.scene, self.scene.direction == "down"
        edges = scene.edges
        step = 2 if any(edge.label for edge in edges) else 1
        self.row = [step * r for r in ranks(len(scene.boxes), [(e.source, e.target) for e in edges])]
        for w, h in self.sizes:
            across, along = (w, h) if down else (h, w)
            self.before.append(across / 2)
            self.after.append(across / 2)
            self.deep.append(along)
        most = self._longest(edges)
        for edge in edges:
            self._chain(edge, down, most)
        above, below = self._neighbours()
        rows: list[list[int]] = [[] for _ in range(max(self.row) + 1)]
        for v in self._first_order(above, below):
            rows[self.row[v]].append(v)
        rows = ordered(rows, above, below)
        gap = _GAP if down else _GAP * 0.75
        gaps = [[self.after[a] + self.before[b] + gap for a, b in pairwise(row)] for row in rows]
        x = coordinates(rows, above, below, gaps, self.chains)
        self._between_ports(rows, gaps, x)
        starts, ends = self._along(rows, x, below)
        return self._drawn(inner, x, starts, ends)

    def _between_ports(self, rows: list[list[int]], gaps: list[list[float]], x: list[float]) -> None:
        """Move the one point of a short edge between its ends, so that the edge need not bend twice."""
        out, into = self._ports(x)
        wanted = {v: (x[v], 1e6) for v in range(len(self.scene.boxes))}
        for chain in self.chains:
            wanted.update({v: (x[v], 1e3) for v in chain[1:-1]})
        for i, chain in enumerate(self.chains):
            if len(chain) == 3:
                wanted[chain[1]] = (out[i] + into[i]) / 2, 1.0
        move(rows, x, gaps, wanted)

    def _longest(self, edges: list[Edge]) -> int:
        """Return the number of rows that an edge may cross by points, so that there are not too many of them."""
        spans = sorted(self.row[edge.target] - self.row[edge.source] for edge in edges)
        points = 0
        for span in spans:
            points += span - 1
            if points > _POINTS:
                return span - 1
        return spans[-1] if spans else 0

    def _chain(self, edge: Edge, down: bool, most: int) -> None:
        first, last = self.row[edge.source], self.row[edge.target]
        chain: list[int] = [edge.source]
        label = None
        if last - first <= most:
            for r in range(first + 1, last):
                v = len(self.row)
                named = bool(edge.label) and label is None
                wide = width(edge.label, LABEL) if named else 0.0
                if named:
                    label = v
                before, after, deep = (3.0, wide + 7, 12.0) if down else (15.0, 3.0, wide + 8)
                self.before.append(before if named else 2.0)
                self.after.append(after if named else 2.0)
                self.deep.append(deep if named else 0.0)
                self.row.append(r)
                chain.append(v)
        chain.append(edge.target)
        self.chains.append(chain)
        self.labels.append(label)

    def _neighbours(self) -> tuple[list[list[int]], list[list[int]]]:
        above: list[list[int]] = [[] for _ in self.row]
        below: list[list[int]] = [[] for _ in self.row]
        for chain in self.chains:
            for v, w in pairwise(chain):
                if self.row[w] == self.row[v] + 1:  # an edge that runs around the boxes asks for no place in rows
                    below[v].append(w)
                    above[w].append(v)
        return above, below

    def _first_order(self, above: list[list[int]], below: list[list[int]]) -> list[int]:
        """Return all vertices, depth first: neighbours of one vertex stand next to each other."""
        seen: set[int] = set()
        order = []
        for root in range(len(self.row)):
            stack = [root] if not above[root] else []
            while stack:
                v = stack.pop()
                if v not in seen:
                    seen.add(v)
                    order.append(v)
                    stack += reversed(below[v])
        return order

    def _along(self, rows: list[list[int]], x: list[float], below: list[list[int]]) -> tuple[list[float], list[float]]:
        """Return where each row begins and ends.  Edges that go far across get more room to turn."""
        starts, ends, at = [], [], 0.0
        for row in rows:
            starts.append(at)
            at += max(self.deep[v] for v in row) if row else 0.0
            ends.append(at)
            far = max((abs(x[v] - x[w]) for v in row for w in below[v]), default=0.0)
            at += _TURN + min(40.0, far * 0.06)
        return starts, ends

    def _is_straight(self, a: float, here: float, b: float, at: float, starts: list[float], v: int) -> bool:
        """Return whether one curve from a to b passes the label's point v steeply enough to stay clear of the label."""
        far = starts[self.row[v] + 1] - at
        return abs(here - (a + b) / 2) < 1 and abs(a - b) * 1.5 * self.deep[v] / 2 < 3.5 * far

    # -- lines ----------------------------------------------------------------------------------------------------

    def _ports(self, x: list[float]) -> tuple[list[float], list[float]]:
        """Return where each edge leaves its source and arrives at its target: in the order of their other ends."""
        edges = self.scene.edges
        leaving: list[list[int]] = [[] for _ in self.scene.boxes]
        arriving: list[list[int]] = [[] for _ in self.scene.boxes]
        for i, edge in enumerate(edges):
            leaving[edge.source].append(i)
            arriving[edge.target].append(i)
        out, into = [0.0] * len(edges), [0.0] * len(edges)
        for places, lists, near in ((out, leaving, 1), (into, arriving, -2)):
            for box, numbers in enumerate(lists):
                numbers.sort(key=lambda i: (x[self.chains[i][near]], x[self.chains[i][-near - 1]]))
                room = self.before[box] * 2 - 12
                step = min(22.0, room / max(len(numbers) - 1, 1))
                for n, i in enumerate(numbers):
                    places[i] = x[box] + (n - (len(numbers) - 1) / 2) * step
        return out, into

    def _drawn(self, inner: list[Layout | None], x: list[float], starts: list[float], ends: list[float]) -> Layout:
        scene, down = self.scene, self.scene.direction == "down"
        middle = [(a + b) / 2 for a, b in zip(starts, ends)]
        boxes = []
        for v in range(len(scene.boxes)):
            row = self.row[v]
            first = 3 * self.deep[v] < ends[row] - starts[row]  # beside a frame: near the boxes before it
            at = starts[row] if first else middle[row] - self.deep[v] / 2
            boxes.append((x[v] - self.before[v], at, 2 * self.before[v], self.deep[v]))
        out, into = self._ports(x)
        beyond = max(x[v] + self.after[v] for v in range(len(x))) + _GAP
        curves = []
        for i, edge in enumerate(scene.edges):
            chain, label = self.chains[i], self.labels[i]
            at = boxes[edge.source][1] + boxes[edge.source][3]
            path: list[tuple[str, tuple]] = [("M", ((out[i], at),))]
            here, turn = out[i], ends[self.row[edge.source]]
            if len(chain) == 2 and self.row[edge.target] > self.row[edge.source] + 1:
                path += [("L", ((here, turn),)), ("L", ((here, turn + 5),)), ("L", ((beyond, turn + 5),))]
                here, turn = beyond, starts[self.row[edge.target]] - _ARROW - 5
                path += [("L", ((here, turn),)), ("L", ((into[i], turn),))]
                beyond += 4
            else:
                for v in chain[1:]:
                    if len(chain) == 3 and v != edge.target and self._is_straight(out[i], x[v], into[i], at, starts, v):
                        continue
                    there = into[i] if v == edge.target else x[v]
                    begin = starts[self.row[v]] - (_ARROW if v == edge.target else 0)
                    if turn > path[-1][1][-1][1]:
                        path.append(("L", ((here, turn),)))
                    half = (turn + begin) / 2
                    path.append(("C", ((here, half), (there, half), (there, begin))))
                    here, turn = there, ends[self.row[v]]
            path.append(("L", ((into[i], boxes[edge.target][1]),)))
            spot = None
            if label is not None:
                spot = x[label], middle[self.row[label]]
            curves.append((path, spot))
        low = min(x[v] - self.before[v] for v in range(len(x)))

        def turned(point: tuple[float, float]) -> tuple[float, float]:
            across, along = point[0] - low, point[1]
            return (round(across, 1), round(along, 1)) if down else (round(along, 1), round(across, 1))

        placed = []
        for across, along, wide, deep in boxes:
            px, py = turned((across, along))
            placed.append(Rectangle(px, py, *((wide, deep) if down else (deep, wide))))
        found = []
        for path, spot in curves:
            lines = [(command, tuple(map(turned, points))) for command, points in path]
            text = None
            if spot is not None:
                sx, sy = turned(spot)
                deep = self.deep[self.labels[len(found)] or 0]
                text = (sx + 5, sy + 3.5) if down else (sx - deep / 2 + 4, sy - 4)
            found.append(Curve(lines, text))
        size = turned((beyond - _GAP, ends[-1]))
        return Layout(scene, placed, found, inner, *size)
