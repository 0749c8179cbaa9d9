"""What a chip's optimized program says: the heaviest fusions, what is alive at the peak, padding, gathers, collectives.

The text is the compiler's schedule: instructions run in its order.  `S(1)` in a type is the chip's fast memory, which
counts for nothing here; `T(8,128)` are the tiles in which the last two dimensions of an array lie.
"""

import re
from collections import Counter
from itertools import combinations
from math import prod
from typing import NamedTuple

import numpy as np

from ..viz.hlo import Instruction, computations_of, nbytes, operator_of, shapes

_ARRAY = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\](?:\{([\d,]*)(?::(?:T\((\d+(?:,\d+)*)\))?([^}]*))?\})?")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_LINE = re.compile(r"[^/]*(?:\.py|\]):\d+")  # as execution/source.py writes them
_SHARES = ("bitcast", "tuple", "get-tuple-element")  # their results lie in their operands' memory, as those of -done
_SILENT = ("parameter", "constant", "broadcast", "bitcast")  # what they are called says nothing
_COLLECTIVES = re.compile(r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?")
_LARGE = 1 << 16  # bytes: smaller copies of operands cost next to nothing


class Fusion(NamedTuple):
    """A part of a program that runs as one: its cycles by the compiler's estimate, and where it comes from."""

    cycles: int
    line: str
    operators: str
    name: str


class Buffer(NamedTuple):
    """An array in the chip's main memory: its name, or what makes it, the line, its bytes without and with tiles."""

    name: str
    line: str
    shape: str
    bytes: int
    padded: int


class Access(NamedTuple):
    """A gather, a scatter, or a copy of an operand as a whole."""

    what: str
    line: str
    operators: str
    bytes: int


class Collective(NamedTuple):
    """What devices exchange along axes of the mesh: the number of exchanges, and the bytes of each device's results."""

    what: str
    axes: str
    count: int
    bytes: int


def padded(kind: str) -> int:
    """Return the bytes that the arrays of a type take in the chip's main memory, in their tiles.

    >>> padded("f32[100,3]{1,0:T(8,128)}"), padded("f32[100,3]{1,0:T(8,128)S(1)}")
    (53248, 0)
    """
    total = 0
    for name, bits, dims, order, tile, space in _ARRAY.findall(kind):
        sizes = [int(n) for n in dims.split(",") if n]
        if "S(" in space or name == "token":
            continue
        laid = [sizes[int(i)] for i in reversed(order.split(","))] if order else sizes
        for i, n in enumerate(reversed(tile.split(",") if tile else [])):
            if i < len(laid):
                laid[-1 - i] = -(-laid[-1 - i] // int(n)) * int(n)
        total += (prod(laid) * int(bits or 8) + 7) // 8
    return total


class Reading:
    """An optimized program, to be asked for facts.  `names` are those of its operands, `mesh` the sizes of its axes."""

    def __init__(self, text: str, names: tuple[str, ...] = (), mesh: dict[str, int] | None = None) -> None:
        self._computations = dict(computations_of(text))
        self._entry: list[Instruction] = next((c for n, c in self._computations.items() if n.startswith("ENTRY ")), [])
        self._known = {each.name: (place, each) for place, each in enumerate(self._entry)}
        self._mesh = mesh or {}
        operands = {}  # by the number of a parameter: what is unused is none
        self._labels: dict[str, str] = {}
        for each in self._entry:
            if each.opcode == "parameter":
                given, number = re.search(r"\[(\d+)\]$", each.operator), int(each.rest[1 : each.rest.index(")")])
                operand = operands[number] = int(given[1]) if given else number
                self._labels[each.name] = names[operand] if operand < len(names) else each.operator or each.name
        found = re.search(r"input_output_alias=\{ (.*?) \}, \w", text)
        aliases = re.findall(r"\{(\d*)\}: \((\d+)", found[1] if found else "")
        # The operands in whose memory results lie, and the numbers of these results.
        self.aliased: set[int] = {operands.get(int(number), int(number)) for _, number in aliases}
        self._replacing = {int(result or 0) for result, _ in aliases}

    # -- time ---------------------------------------------------------------------------------------------------------

    def fusions(self) -> list[Fusion]:
        """Return all parts with an estimate, the heaviest first; those in a loop's body count once."""
        found = []
        for instructions in self._computations.values():
            for each in instructions:
                if cycles := _CYCLES.search(each.rest):
                    found.append(Fusion(int(cycles[1]), *self._origin(each), each.name))
        return sorted(found, key=lambda fusion: -fusion.cycles)

    def _origin(self, each: Instruction) -> tuple[str, str]:
        """Return line and operators of an instruction: its own, and of what is fused in it."""
        inside = [i for i in self._computations.get(each.calls, ()) if i.operator and i.opcode not in _SILENT]
        lines = Counter(line for i in inside if (line := _line_of(i))).most_common(1)
        operators = list(dict.fromkeys(map(operator_of, inside or [each])))
        shown = ", ".join(operators[:4]) + (", ..." if len(operators) > 4 else "")
        return _line_of(each) or (lines[0][0] if lines else ""), shown

    # -- memory -------------------------------------------------------------------------------------------------------

    def alive(self) -> list[Buffer]:
        """Return what is in the chip's main memory when most of it is in use, the largest first."""
        source: dict[str, set[str]] = {}  # the instructions in whose memory a result lies
        last: dict[str, int] = {}
        for place, each in enumerate(self._entry):
            below = {s for operand in each.operands for s in source.get(operand, ())}
            shared = below if _shares(each) or each.opcode.endswith("-start") else set()
            source[each.name] = shared if _shares(each) else shared | {each.name}
            last.update(dict.fromkeys(below | {each.name}, place))
        root = next((each for each in self._entry if each.is_root), None)
        results = () if root is None else root.operands if root.opcode == "tuple" else (root.name,)
        replacing = {s for i, name in enumerate(results) if i in self._replacing for s in source[name]}
        last.update({s: len(self._entry) for name in results for s in source[name]})
        sizes = {name: self._size(each) for name, (_, each) in self._known.items() if not _shares(each)}
        sizes |= dict.fromkeys(replacing - self._labels.keys(), 0)
        first = {name: 0 if name in self._labels else self._known[name][0] for name in sizes}
        last |= dict.fromkeys(self._labels, len(self._entry))  # operands stay
        changes: Counter[int] = Counter()
        for name, size in sizes.items():
            changes[first[name]] += size
            changes[last[name] + 1] -= size
        total = most = peak = 0
        for place in sorted(changes):
            total += changes[place]
            most, peak = max((most, peak), (total, place), key=lambda at: at[0])
        there = [name for name, size in sizes.items() if size and first[name] <= peak <= last[name]]
        return sorted(map(self._buffer, there), key=lambda buffer: -buffer.padded)

    def padding(self) -> list[Buffer]:
        """Return the arrays in main memory that tiles make larger, the largest waste first."""
        found = [
            self._buffer(name) for name, (_, each) in self._known.items() if not _shares(each) and padded(each.type)
        ]
        return sorted((b for b in found if b.padded > b.bytes), key=lambda b: b.bytes - b.padded)

    def _size(self, each: Instruction) -> int:
        """Return the bytes of an instruction's own result in main memory: what -start gives has its operands too."""
        begins = each.opcode.endswith("-start")
        given = [self._known[o][1] for o in each.operands if o in self._known] if begins else []
        return max(0, padded(each.type) - sum(padded(operand.type) for operand in given))

    def _buffer(self, name: str) -> Buffer:
        each, line, label = self._known[name][1], "", self._labels.get(name)
        if label is None:
            line, label = self._origin(each)
        return Buffer(label, line, shapes(each.type), nbytes(each.type), self._size(each))

    # -- accesses -----------------------------------------------------------------------------------------------------

    def accesses(self) -> list[Access]:
        """Return gathers and scatters, with the size of their slices, and copies of large operands as a whole."""
        found = []
        for instructions in self._computations.values():
            for each in instructions:
                if each.opcode == "gather" and (sizes := re.search(r"slice_sizes=\{([\d,]*)\}", each.rest)):
                    elements = prod(int(n) for n in sizes[1].split(",") if n)
                    what = f"gather of {nbytes(each.type) and _count(each.type) // elements:,} slices of {elements:,}"
                    found.append(Access(what, *self._origin(each), nbytes(each.type)))
                elif each.opcode == "scatter":
                    found.append(Access("scatter", *self._origin(each), nbytes(each.type)))
        users: dict[str, list[Instruction]] = {}
        for each in self._entry:
            for operand in each.operands:
                users.setdefault(operand, []).append(each)
        for each in self._entry:
            label = next((self._labels[o] for o in each.operands if o in self._labels), None)
            size = nbytes(each.type) // (2 if each.opcode == "copy-start" else 1)
            if label is None or each.opcode not in ("copy", "copy-start") or size < _LARGE:
                continue
            used = [user for done in users.get(each.name, []) for user in users.get(done.name, [])]
            if each.opcode == "copy":
                found.append(Access(f"copy of the whole of {label}", *self._origin(each), size))
            elif used and all(
                4 * nbytes(user.type) < size and _reads_a_part(user, self._computations) for user in used
            ):
                found.append(Access(f"all of {label} is fetched, and a part read", *self._origin(used[0]), size))
        return sorted(found, key=lambda access: -access.bytes)

    # -- meshes -------------------------------------------------------------------------------------------------------

    def collectives(self) -> list[Collective]:
        """Return the exchanges between devices, together by kind and axes of the mesh."""
        count: Counter[tuple[str, str]] = Counter()
        moved: Counter[tuple[str, str]] = Counter()
        for instructions in self._computations.values():
            for each in instructions:
                if kind := _COLLECTIVES.fullmatch(each.opcode):
                    key = kind[1], self._axes(each.rest)
                    count[key] += 1
                    moved[key] += nbytes(each.type)
        return [Collective(*key, count[key], moved[key]) for key, _ in moved.most_common()]

    def _axes(self, text: str) -> str:
        """Return the axes of the mesh along which devices exchange."""
        devices = np.arange(prod(self._mesh.values())).reshape(tuple(self._mesh.values()))
        if pairs := re.search(r"source_target_pairs=\{(.*?)\}\}", text):
            ends = [[int(n) for n in pair.split(",")] for pair in re.findall(r"\{?(\d+,\d+)", pairs[1])]
            places = (
                np.array([np.unravel_index(end, devices.shape) for end in np.transpose(ends)]) if self._mesh else None
            )
            moved = [] if places is None else [n for n, a, b in zip(self._mesh, *places) if (a != b).any()]
            return ", ".join(moved) or "?"
        groups = _groups(text)
        for many in range(1, len(self._mesh) + 1):
            for chosen in combinations(range(len(self._mesh)), many):
                size = prod(devices.shape[i] for i in chosen)
                own = np.moveaxis(devices, chosen, range(-many, 0)).reshape(-1, size)
                if groups == {frozenset(group) for group in own.tolist()}:
                    return ", ".join(name for i, name in enumerate(self._mesh) if i in chosen)
        return "?"


def _groups(text: str) -> set[frozenset[int]]:
    """Return the groups of devices: {{0,1},{2,3}}, or [2,2]<=[2,2]T(1,0): these sizes, of so many counted, transposed."""
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
        sizes, counted, order = ([int(n) for n in part.split(",")] if part else None for part in found.groups())
        devices = np.arange(prod(counted or ())).reshape(counted or ())
        return {frozenset(group) for group in devices.transpose(order).reshape(sizes).tolist()}
    found = re.search(r"replica_groups=\{(\{.*?\})\}", text)
    return {frozenset(map(int, group.split(","))) for group in re.findall(r"\{([\d,]+)\}", found[1] if found else "")}


def _shares(each: Instruction) -> bool:
    return each.opcode in _SHARES or each.opcode.endswith("-done")


def _line_of(each: Instruction) -> str:
    return next((part for part in each.operator.split("/") if _LINE.fullmatch(part)), "")


def _count(kind: str) -> int:
    return prod(int(n) for n in re.findall(r"\[([\d,]*)\]", kind)[0].split(",") if n)


def _reads_a_part(each: Instruction, computations: dict[str, list[Instruction]]) -> bool:
    return any(i.opcode in ("dynamic-slice", "slice") for i in computations.get(each.calls, [each]))
