"""folded: replaces a run of equal blocks in a picture by one box, "× 12", with one of the blocks inside, for xgrad.viz.

Boxes are in the order in which backward runs them, so a layer's are next to each other, and a stack of layers is a run
in which box i equals box i + p.  Two boxes are equal if they have the same key, and their edges lead to boxes p apart,
or to one box that both use.  Leaves (weights) belong to the block that uses them, if no other does.
"""

import re
from dataclasses import replace

import numpy as np

from .scene import Box, Edge, Scene
from .text_width import shortened

_LEAST = 24  # boxes; a smaller scene is drawn as it is
_PERIOD = 1500  # boxes of a block, at most
_ROUNDS = 12
_PHASES = 64  # places to cut that are tried


def folded(scene: Scene, fold: bool | None = None) -> Scene:
    """Return the scene with its equal blocks folded: if it is large (None), always, or never."""
    if fold is False or (fold is None and len(scene.boxes) < _LEAST):
        return scene
    for _ in range(_ROUNDS):
        found = _best(scene)
        if found is None:
            break
        scene = _fold(scene, *found)
    return _merge_leaves(scene)


def _is_leaf(box: Box) -> bool:
    return box.kind == "leaf"


def _best(scene: Scene) -> tuple[list[int], int, int, int] | None:
    """Return the boxes without leaves, and start, length and number of the blocks whose folding removes most boxes."""
    order = [i for i, box in enumerate(scene.boxes) if not _is_leaf(box)]
    place = {v: i for i, v in enumerate(order)}
    codes = _codes(scene, order)
    count, best, most = len(order), None, 0
    targets = _targets(scene, order, place)
    for period in range(1, min(count // 2, _PERIOD) + 1):
        if (count // period - 1) * period <= most:
            continue
        equal = codes[period:] == codes[:-period]
        if np.count_nonzero(equal) <= most:
            continue
        for column in targets:
            a, b = column[:-period], column[period:]
            equal = equal & ((b - a == period) | (a == b))
        for start, length in _runs(equal):
            repeats = (length + period) // period
            removed = period * (repeats - 1)
            if removed > most and (repeats > 2 or period > 7):
                best, most = (start, length, period), removed
    if best is None:
        return None
    start, length, period = best
    start, repeats = _phase(scene, order, targets, start, length, period)
    return order, start, period, repeats


def _codes(scene: Scene, order: list[int]) -> np.ndarray:
    """Number the boxes by what they say, and by the labels and leaves of their edges."""
    outgoing = scene.outgoing()
    keys: dict = {}
    codes = np.zeros(len(order), np.int64)
    for i, v in enumerate(order):
        box = scene.boxes[v]
        edges = tuple((e.label, e.dashed, scene.boxes[e.target].key if _is_leaf(scene.boxes[e.target]) else None)
                      for e in outgoing[v])  # fmt: skip
        key = (*_says(box), edges)
        codes[i] = keys.setdefault(key, len(keys))
    return codes


def _targets(scene: Scene, order: list[int], place: dict[int, int]) -> list[np.ndarray]:
    """Return the places of the targets of the boxes' first edge, second edge, ...; -1 for a leaf or no edge."""
    outgoing = scene.outgoing()
    most = max((len(outgoing[v]) for v in order), default=0)
    table = np.full((most, len(order)), -1, np.int64)
    for i, v in enumerate(order):
        for k, edge in enumerate(outgoing[v]):
            table[k, i] = place.get(edge.target, -1)
    return list(table)


def _runs(equal: np.ndarray) -> list[tuple[int, int]]:
    """Return (start, length) of each run of True."""
    padded = np.concatenate([[False], equal, [False]]).astype(np.int8)
    turns = np.flatnonzero(np.diff(padded))
    return [(int(a), int(b - a)) for a, b in zip(turns[::2], turns[1::2])]


def _phase(
    scene: Scene, order: list[int], targets: list[np.ndarray], start: int, length: int, period: int
) -> tuple[int, int]:
    """Return where the first block begins, and how many there are: cut where the fewest edges cross."""
    end = start + length + period
    crossing = np.zeros(end + 2, np.int64)
    for column in targets:
        for i, t in enumerate(column[:end]):
            if t > i:
                crossing[i + 1] += 1
                crossing[min(t, end) + 1] -= 1
    crossing = np.cumsum(crossing)
    choices = []
    for first in range(start, min(start + period, end)):
        repeats = (end - first) // period
        if repeats > 1:
            choices.append((int(crossing[first + period]), first, repeats))
    fewest = min(choices)[0]
    most = (start, 0)
    for cut, first, repeats in choices[:_PHASES]:
        if cut == fewest:
            repeats += _is_last(scene, order, first + repeats * period, period)
            if repeats > most[1]:
                most = first, repeats
    return most if most[1] else min(choices)[1:]


def _is_last(scene: Scene, order: list[int], start: int, period: int) -> bool:
    """Return True if a block is equal to the one before it but for the edges that leave it, as the first layer's is."""
    if start + period > len(order):
        return False
    sides = []
    for first in (start - period, start):
        place = {v: i for i, v in enumerate(order[first : first + period])}
        inside: list[list] = [[] for _ in place]
        for edge in scene.edges:
            if edge.source in place:
                target = scene.boxes[edge.target]
                to = target.key if _is_leaf(target) else place.get(edge.target)
                if to is not None:
                    inside[place[edge.source]].append((edge.label, edge.dashed, to))
        boxes = [scene.boxes[v] for v in place]
        sides.append([(_says(box), edges) for box, edges in zip(boxes, inside, strict=True)])
    return sides[0] == sides[1]


def _says(box: Box) -> tuple:
    return box.kind, box.title, tuple(box.lines) if box.key is None else box.key


def _fold(scene: Scene, order: list[int], start: int, period: int, repeats: int) -> Scene:
    """Return the scene with `repeats` blocks of `period` boxes as one box."""
    block_of = {order[start + i]: i // period for i in range(period * repeats)}
    users: dict[int, set[int | None]] = {}
    for edge in scene.edges:
        if _is_leaf(scene.boxes[edge.target]):
            users.setdefault(edge.target, set()).add(block_of.get(edge.source))
    for leaf, by in users.items():
        (only, *others) = by
        if only is not None and not others:
            block_of[leaf] = only
    blocks: list[list[int]] = [[] for _ in range(repeats)]
    for i in range(period * repeats):
        blocks[i // period].append(order[start + i])
    outgoing = scene.outgoing()
    same = [_with_leaves(scene, block, outgoing, block_of) for block in blocks]
    box = _box(scene, same, repeats, period, block_of)
    made = Scene(scene.title, foot=scene.foot, direction=scene.direction)
    number: dict[int, int] = {}
    before = [v for v in range(order[start]) if v not in block_of]  # the order of the boxes stays
    after = [v for v in range(order[start], len(scene.boxes)) if v not in block_of]
    number.update((v, made.add(scene.boxes[v])) for v in before)
    place = made.add(box)
    number.update((v, made.add(scene.boxes[v])) for v in after)
    number.update(dict.fromkeys(block_of, place))
    seen = set()
    for edge in scene.edges:
        a, b = number[edge.source], number[edge.target]
        if a != b and (place not in (a, b) or (a, b, edge.label) not in seen):
            seen.add((a, b, edge.label))
            made.edges.append(replace(edge, source=a, target=b))
    return made


def _merge_leaves(scene: Scene) -> Scene:
    """Make one box of equal leaves that only folded blocks use, and in the same way: a program's weights."""
    ways: dict[int, set[tuple[int, int, str]]] = {}
    for edge in scene.edges:
        for leaf, other, side in ((edge.source, edge.target, 0), (edge.target, edge.source, 1)):
            if _is_leaf(scene.boxes[leaf]):
                ways.setdefault(leaf, set()).add((side, other, edge.label))
    groups: dict[tuple, list[int]] = {}
    for leaf, edges in ways.items():
        if all(scene.boxes[other].kind == "block" for _, other, _ in edges):
            groups.setdefault((_says(scene.boxes[leaf]), frozenset(edges)), []).append(leaf)
    first = {leaf: group[0] for group in groups.values() if len(group) > 2 for leaf in group}
    if not first:
        return scene
    made, number = Scene(scene.title, foot=scene.foot, direction=scene.direction), {}
    for v, box in enumerate(scene.boxes):
        if first.get(v, v) == v:
            group = [scene.boxes[leaf] for leaf in first if first[leaf] == v]
            number[v] = made.add(box if not group else _merged(group))
    seen = set()
    for edge in scene.edges:
        a, b = (number[first.get(v, v)] for v in (edge.source, edge.target))
        if not {edge.source, edge.target} & first.keys() or (a, b, edge.label) not in seen:
            seen.add((a, b, edge.label))
            made.edges.append(replace(edge, source=a, target=b))
    return made


def _merged(group: list[Box]) -> Box:
    members = [n for box in group for n in box.members]
    lines = [*group[0].lines, (f"× {len(group)}", "note")]
    return replace(group[0], name=pattern([box.name for box in group]), lines=lines, members=members)


def _with_leaves(scene: Scene, block: list[int], outgoing: list[list[Edge]], block_of: dict[int, int]) -> list[int]:
    """Return a block's boxes and its own leaves, in an order that is the same for equal blocks."""
    found = dict.fromkeys(block)
    for v in block:
        for edge in outgoing[v]:
            if _is_leaf(scene.boxes[edge.target]) and edge.target in block_of:
                found[edge.target] = None
    return list(found)


def _box(scene: Scene, same: list[list[int]], repeats: int, period: int, block_of: dict[int, int]) -> Box:
    inner = Scene(direction=scene.direction)
    number: dict[int, int] = {}
    # Boxes of the first block, each for its like in the others.  Blocks may differ in the order of shared leaves.
    columns = list(zip(*same, strict=False))
    for column in columns:
        boxes = [scene.boxes[v] for v in column]
        members = [n for box in boxes for n in box.members]
        number[column[0]] = inner.add(replace(boxes[0], name=pattern([box.name for box in boxes]), members=members))
    names = _leaf_names(scene, same)
    ports: dict[tuple, int] = {}

    def port(key: tuple, title: str) -> int:
        if key not in ports:
            ports[key] = inner.add(Box(shortened(title, 28), "port"))
        return ports[key]

    leaving = [edge for edge in scene.edges if edge.source in number and block_of.get(edge.target, 0) > 0]
    by_target = len({edge.target for edge in leaving}) <= len({edge.source for edge in leaving})
    for edge in scene.edges:
        a, b = number.get(edge.source), number.get(edge.target)
        if a is not None and b is not None:
            inner.edges.append(replace(edge, source=a, target=b))
        elif b is not None and not _is_leaf(scene.boxes[edge.target]):
            entry = port(("in", edge.source), names.get(edge.source, "in"))
            inner.edges.append(replace(edge, source=entry, target=b))
        elif a is not None:
            if edge.target in block_of:  # of the next block
                way = port(("out", edge.target if by_target else edge.source), "out")
                if not by_target and any(e.source == a and e.target == way for e in inner.edges):
                    continue
            else:
                way = port(("to", edge.target), scene.boxes[edge.target].heading)
            inner.edges.append(replace(edge, source=a, target=way))
    members = [n for block in same for v in block for n in scene.boxes[v].members]
    key = ("block", repeats, tuple((b.kind, b.title, b.key) for b in inner.boxes))
    what = f"{period} equal nodes" if period > 1 else "equal nodes"
    return Box(f"× {repeats}", "block", lines=[(f"{repeats} × {what}", "note")] if period > 1 else [], inner=inner,
               key=key, members=members)  # fmt: skip


def _leaf_names(scene: Scene, same: list[list[int]]) -> dict[int, str]:
    """Return the names of the leaves that the first block reads (a program's inputs), with their like in the others."""
    place = {v: (k, i) for k, block in enumerate(same) for i, v in enumerate(block)}
    reads: dict[tuple[int, str], list[list[int]]] = {}
    for edge in scene.edges:
        if _is_leaf(scene.boxes[edge.source]) and edge.target in place:
            k, i = place[edge.target]
            reads.setdefault((i, edge.label), [[] for _ in same])[k].append(edge.source)
    found = {}
    for blocks in reads.values():
        for column in zip(*blocks):
            found[column[0]] = pattern([scene.boxes[leaf].heading for leaf in column])
    return found


def pattern(names: list[str]) -> str:
    """Return one name for the names of a folded box's leaves.

    >>> pattern(["layers.2.weight", "layers.1.weight", "layers.0.weight"])
    'layers.{0…2}.weight'
    >>> pattern(["w", "v"])
    'w, v'
    """
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        return names[0]
    parts = [re.split(r"(\d+)", name) for name in names]
    if len({len(part) for part in parts}) == 1:
        different = [i for i, column in enumerate(zip(*parts)) if len(set(column)) > 1]
        if len(different) == 1 and different[0] % 2:
            at = different[0]
            numbers = sorted(int(part[at]) for part in parts)
            head, tail = "".join(parts[0][:at]), "".join(parts[0][at + 1 :])
            return f"{head}{{{numbers[0]}…{numbers[-1]}}}{tail}"
    if not all(names):
        return ""
    return ", ".join(names) if len(names) < 3 else f"{names[0]}, …, {names[-1]}"
