"""Finds the collectives (all-reduce, ...) in a compiled program, and when they run, for `xgrad.Backend`'s estimates.

The text of a chip's program is its schedule: a collective between `-start` and `-done` has the time of what stands
between them.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from ..chips.reading import COLLECTIVE, CYCLES, members
from ..viz.hlo import Instruction, computations_of, nbytes
from .clock import CHIPS, COMPUTE, Span

_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_BODY = re.compile(r"\b(?:body|to_apply|calls)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\b(?:branch_computations|true_computation|false_computation)=(\{[^}]*\}|[^,]*)")


class Collective(NamedTuple):
    """An exchange between the devices of a program: its kind, the bytes of its result, and how many take part."""

    kind: str
    bytes: int
    devices: int

    @property
    def sent(self) -> float:
        """The bytes that each device sends, around a ring."""
        n = max(self.devices, 1)
        match self.kind:
            case "all-reduce":
                return 2 * (n - 1) / n * self.bytes
            case "reduce-scatter":
                return (n - 1) * self.bytes  # the result is a part
            case "collective-permute":
                return self.bytes
        return (n - 1) / n * self.bytes

    @property
    def steps(self) -> int:
        """How often it passes a link, one after the other."""
        return {"all-reduce": 2 * (self.devices - 1), "collective-permute": 1}.get(self.kind, self.devices - 1)


def collective_of(each: Instruction, devices: int) -> Collective | None:
    """Return the collective that an instruction is or starts; of all `devices` if it names no groups."""
    found = COLLECTIVE.fullmatch(each.opcode)
    if found is None:
        return None
    many, size = len(members(each.rest)) or devices, float(nbytes(each.type))
    if each.opcode == "all-gather-start":  # its type is of operands and results
        size *= many / (many + 1)
    elif each.opcode.endswith("-start") and found[1] != "all-reduce":
        size /= 2
    return Collective(found[1], int(size), many)


def collectives(text: str, devices: int) -> list[Collective]:
    """Return the collectives in the text of a compiled program for so many devices.

    >>> text = "ENTRY %main (x: f32[8]) -> f32[8] {\\n  %r = f32[64]{0} all-reduce(%x), replica_groups={{0,1}}\\n}"
    >>> collectives(text, 4)
    [Collective(kind='all-reduce', bytes=256, devices=2)]
    """
    instructions = [each for _, inside in computations_of(text) for each in inside]
    return [found for each in instructions if (found := collective_of(each, devices)) is not None]


class Schedule:
    """The spans of one run of a chip's program: what it computes, and what it sends and receives meanwhile.

    `second`: of a cycle.  `between`: a function of bytes and steps, the seconds on the links.  Of a conditional it has
    the branch with the most cycles.
    """

    def __init__(self, text: str, devices: int, second: float, between: Callable[[float, int], float]) -> None:
        self._computations = dict(computations_of(text))
        self._devices, self._second, self._between = devices, second, between
        self._now = self._link = 0.0
        self._open: dict[str, float] = {}  # by the name of a `-start`: when it is done
        self.spans: list[Span] = []
        for name in self._computations:
            if name.startswith("ENTRY "):
                self._run(name)
        self.end: float = max(self._now, self._link)

    def _run(self, name: str) -> None:
        for each in self._computations.get(name, ()):
            called = _BODY.search(each.rest)
            if each.opcode == "conditional":
                branches = re.findall(r"[\w.\-]+", " ".join(_BRANCHES.findall(each.rest)))
                self._run(max(branches, key=self._cycles))
            elif each.opcode in ("while", "call") and called is not None:
                trips = _TRIPS.search(each.rest)
                for _ in range(int(trips[1]) if trips else 1):
                    self._run(called[1])
            elif each.opcode.endswith(("-done", "-update")):
                until = max([self._open.pop(name, 0.0) for name in each.operands], default=0.0)
                if each.opcode.endswith("-update"):
                    self._open[each.name] = until
                self._now = max(self._now, until)
            else:
                self._one(each, called[1] if called else "")

    def _cycles(self, name: str) -> int:
        found = [CYCLES.search(each.rest) for each in self._computations.get(name, ())]
        return sum(int(cycles[1]) for cycles in found if cycles is not None)

    def _one(self, each: Instruction, called: str) -> None:
        cycles = CYCLES.search(each.rest)
        start, kind = self._now, each.opcode
        if cycles is not None:
            self._now += int(cycles[1]) * self._second
            last = self.spans[-1] if self.spans else None
            if last is not None and (last.queue, last.end) == (COMPUTE, start):
                self.spans[-1] = last._replace(end=self._now)
            else:
                self.spans.append(Span(COMPUTE, kind, start, self._now))
        inside = self._computations.get(called, []) if cycles is not None or kind == "async-start" else []
        found = [c for i in (each, *inside) if (c := collective_of(i, self._devices)) is not None]
        for c in found:
            begin = max(start, self._link)
            self._link = begin + self._between(c.sent, c.steps)
            self.spans.append(Span(CHIPS, c.kind, begin, self._link, 0, c.bytes))
        if found and kind.endswith("-start"):
            self._open[each.name] = self._link
        elif found:
            self._now = max(self._now, self._link)
