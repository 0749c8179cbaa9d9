"""Reading: finds costly parts, peak memory, padding and collectives in the HLO text of a program compiled for a chip.

The text is the compiler's schedule: instructions run in its order.  `S(1)` in a type is the chip's fast memory, which
counts for nothing here; `T(8,128)` are the tiles in which the last two dimensions of an array lie.
"""

import re
from collections import Counter
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from ..viz.hlo import Instruction, computations_of, nbytes, operator_of, shapes

_ARRAY = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\](?:\{([\d,]*)(?::(?:T\((\d+(?:,\d+)*)\))?([^}]*))?\})?")
CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_LINE = re.compile(r"[^/]*(?:\.py|\]):\d+")  # as execution/source.py writes them
_SHARES = re.compile(r"bitcast|tuple|get-tuple-element|.*-done")  # their results lie in their operands' memory
_SILENT = ("parameter", "constant", "broadcast", "bitcast")  # what they are called says nothing
COLLECTIVE = re.compile(r"(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?")
# Groups of devices, where the first group says enough: {{0,1},{2,3}}; [2,2]<=[2,2]T(1,0), a range in a new order; or
# mesh['a'=2,'b'=2] {'b'}, the devices that differ along b.
_GROUPS = re.compile(
    r"(?:replica_groups|source_target_pairs)="
    r"(?:\{\{([\d,]+)\}|\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?|mesh\[([^\]]*)\] \{([^}]*)\})"
)
_LARGE = 1 << 16  # bytes: smaller copies of operands cost next to nothing


class Part(NamedTuple):
    """A part of a program that runs as one, once or several times: the compiler's estimate of cycles, and its
    source."""

    cycles: int
    line: str
    operators: str
    times: int


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


class Exchange(NamedTuple):
    """An exchange of the devices along axes of the mesh: how often, and the bytes of each device's results."""

    what: str
    axes: str
    times: int
    bytes: int


def padded(kind: str) -> int:
    """Return the bytes that the arrays of a type take in the chip's main memory, in their tiles.

    >>> padded("f32[100,3]{1,0:T(8,128)}"), padded("f32[100,3]{1,0:T(8,128)S(1)}")
    (53248, 0)
    """
    total = 0
    for name, bits, dims, order, tile, space in _ARRAY.findall(kind):
        sizes = _numbers(dims)
        if "S(" in space or name == "token":
            continue
        laid = [sizes[i] for i in reversed(_numbers(order))] if order else sizes
        for i, n in enumerate(reversed(_numbers(tile)[-len(laid) :] if laid else ())):
            laid[-1 - i] = -(-laid[-1 - i] // n) * n
        total += (prod(laid) * int(bits or 8) + 7) // 8
    return total


class Reading:
    """An optimized program.  `names` are the names of its operands, `mesh` the sizes of the mesh's axes by name."""

    def __init__(self, text: str, names: tuple[str, ...] = (), mesh: dict[str, int] | None = None) -> None:
        self._computations = dict(computations_of(text))
        self._entry: list[Instruction] = next((c for n, c in self._computations.items() if n.startswith("ENTRY ")), [])
        self._known = {each.name: each for each in self._entry}
        self._mesh = mesh or {}
        self._labels: dict[str, str] = {}
        operands = {}  # by the number of a parameter: an operand that is not used has none
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

    @cached_property
    def parts(self) -> list[Part]:
        """The fusions and other kernels, those that do the same together, the heaviest first; a loop's count once."""
        found: dict[tuple[str, str], list[int]] = {}
        for each in self._instructions():
            if cycles := CYCLES.search(each.rest):
                found.setdefault(self._origin(each), []).append(int(cycles[1]))
        return sorted((Part(sum(c), *origin, len(c)) for origin, c in found.items()), reverse=True)

    @property
    def cycles(self) -> int:
        """The cycles of all parts."""
        return sum(part.cycles for part in self.parts)

    def _instructions(self) -> list[Instruction]:
        return [each for instructions in self._computations.values() for each in instructions]

    def _origin(self, each: Instruction) -> tuple[str, str]:
        """Return line and operators of an instruction: its own, and of what is fused in it."""
        inside = [i for i in self._computations.get(each.calls, ()) if i.operator and i.opcode not in _SILENT]
        lines = Counter(line for i in inside if (line := _line_of(i))).most_common(1)
        operators = list(dict.fromkeys(map(operator_of, inside or [each])))
        shown = ", ".join(operators[:4]) + (", ..." if len(operators) > 4 else "")
        return _line_of(each) or (lines[0][0] if lines else ""), shown

    # -- memory -------------------------------------------------------------------------------------------------------

    @cached_property
    def alive(self) -> list[Buffer]:
        """Return what is in the chip's main memory when most of it is in use, the largest first."""
        source: dict[str, set[tuple[str, int]]] = {}  # the arrays in whose memory a result lies: (instruction, number)
        first: dict[tuple[str, int], int] = {}
        last: dict[tuple[str, int], int] = {}
        for place, each in enumerate(self._entry):
            below = {s for operand in each.operands for s in source.get(operand, ())}
            own = {(each.name, i): 0 if each.name in self._labels else place for i in range(len(self._arrays(each)))}
            if each.opcode == "get-tuple-element":
                number = int(each.rest.partition("index=")[2].partition(",")[0])
                below = {s for s in below if s[1] == number} or below
            source[each.name] = below | {*own} if each.opcode.endswith("-start") else {*own} or below
            first |= own
            last |= dict.fromkeys(below | own.keys(), place)
        root = next((each for each in self._entry if each.is_root), None)
        results = () if root is None else root.operands if root.opcode == "tuple" else (root.name,)
        last |= dict.fromkeys(
            [*((n, 0) for n in self._labels), *(s for n in results for s in source[n])], len(self._entry)
        )
        replacing = {s for i, name in enumerate(results) if i in self._replacing for s in source[name]}
        sizes = {
            s: 0 if s in replacing and s[0] not in self._labels else self._arrays(self._known[s[0]])[s[1]][1]
            for s in first
        }  # fmt: skip
        changes: Counter[int] = Counter()
        for s, size in sizes.items():
            changes[first[s]] += size
            changes[last[s] + 1] -= size
        places = sorted(changes)
        peak = max(zip(np.cumsum([changes[place] for place in places]), places), default=(0, 0))[1]
        there = [self._buffer(*s) for s, size in sizes.items() if size and first[s] <= peak <= last[s]]
        return sorted(there, key=lambda buffer: -buffer.padded)

    @cached_property
    def padding(self) -> list[Buffer]:
        """The arrays in main memory that tiles make larger, the largest waste first."""
        found = [self._buffer(name, i) for name, each in self._known.items() for i in range(len(self._arrays(each)))]
        return sorted((b for b in found if b.padded > b.bytes), key=lambda b: b.bytes - b.padded)

    def _arrays(self, each: Instruction) -> list[tuple[str, int]]:
        """Return type and bytes of the arrays that an instruction makes; what -start gives has its operands too."""
        if _SHARES.fullmatch(each.opcode):
            return []
        if each.opcode.endswith("-start"):
            given = sum(padded(self._known[o].type) for o in each.operands if o in self._known)
            return [(each.type[1:].partition(", ")[0], max(0, padded(each.type) - given))]
        return [(found[0], padded(found[0])) for found in _ARRAY.finditer(each.type)]

    def _buffer(self, name: str, number: int) -> Buffer:
        each = self._known[name]
        line, label = ("", self._labels[name]) if name in self._labels else self._origin(each)
        kind, size = self._arrays(each)[number]
        return Buffer(label, line, shapes(kind), nbytes(kind), size)

    # -- what is moved ------------------------------------------------------------------------------------------------

    @cached_property
    def accesses(self) -> list[Access]:
        """Gathers and scatters, and large operands that are copied, or fetched for a part, as a whole."""
        found = []
        users: dict[str, list[Instruction]] = {}
        for each in self._instructions():
            size = nbytes(each.type)
            for operand in each.operands:
                users.setdefault(operand, []).append(each)
            if each.opcode == "gather" and (sizes := re.search(r"slice_sizes=\{([\d,]*)\}", each.rest)):
                many, of = prod(_numbers(_ARRAY.findall(each.type)[0][2])), prod(_numbers(sizes[1]))
                found.append(Access(f"gather of {many // of:,} slices of {of:,}", *self._origin(each), size))
            elif each.opcode == "scatter":
                found.append(Access("scatter", *self._origin(each), size))
            elif each.opcode == "copy" and size >= _LARGE and (names := self._labels.keys() & each.operands):
                found.append(Access(f"copy of the whole of {self._labels[names.pop()]}", *self._origin(each), size))
        for name, label in self._labels.items():
            size = nbytes(self._known[name].type)
            for start in users.get(name, ()) if size >= _LARGE else ():
                used = [user for done in users.get(start.name, ()) for user in users.get(done.name, ())]
                if start.opcode == "copy-start" and used and all(self._takes_a_part(user, size) for user in used):
                    found.append(Access(f"all of {label} is fetched, a part read", *self._origin(used[0]), size))
        return sorted(found, key=lambda access: -access.bytes)

    def _takes_a_part(self, each: Instruction, size: int) -> bool:
        inside = self._computations.get(each.calls, [each])
        return 4 * nbytes(each.type) < size and any(i.opcode in ("dynamic-slice", "slice") for i in inside)

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """Return what devices exchange, added up by kind and axes of the mesh, the most bytes first."""
        found: dict[tuple[str, str], list[int]] = {}
        for each in self._instructions():
            if kind := COLLECTIVE.fullmatch(each.opcode):
                found.setdefault((kind[1], self._axes(each.rest)), []).append(nbytes(each.type))
        return sorted((Exchange(*key, len(b), sum(b)) for key, b in found.items()), key=lambda each: -each.bytes)

    def _axes(self, text: str) -> str:
        """Return the axes of the mesh along which the devices of a group differ."""
        listed = members(text)
        if not listed or not self._mesh:
            return ", ".join(self._mesh) or "all devices"
        places = np.unravel_index(listed, tuple(self._mesh.values()))
        return ", ".join(name for name, at in zip(self._mesh, places) if len({*at.tolist()}) > 1)


def members(text: str) -> list[int]:
    """Return the devices of the first group that a collective names; none if it names no groups: then it is of all.

    >>> members("replica_groups={{0,1},{2,3}}, to_apply=%add"), members("replica_groups=[2,2]<=[2,2]T(1,0)")
    ([0, 1], [0, 2])
    """
    groups = _GROUPS.search(text)
    if groups is None:
        return []
    listed, sizes, counted, order = (_numbers(part or "") for part in groups.groups()[:4])
    if sizes:
        return np.arange(prod(counted)).reshape(counted).transpose(order or None).reshape(sizes)[0].tolist()
    if groups[5] is not None:
        axes = dict(re.findall(r"'(\w+)'=(\d+)", groups[5]))
        at = tuple(slice(None) if f"'{name}'" in groups[6] else 0 for name in axes)
        return np.arange(prod(map(int, axes.values()))).reshape([*map(int, axes.values())])[at].ravel().tolist()
    return listed


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n]


def _line_of(each: Instruction) -> str:
    return next((part for part in each.operator.split("/") if _LINE.fullmatch(part)), "")
