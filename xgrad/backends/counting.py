"""Counting: base class of `Runtime` (runtime.py) that counts a backend's programs and transfers, for its reports."""

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from ..execution.pending import spread
from ..execution.scalars import one
from ..execution.shapes import kind_of
from ..execution.source import lines, outside
from .clock import CHIPS, Clock
from .events import Events, Launch
from .shards import resharded, spread_of


class Counting:
    """The base class of `Runtime` with the methods that count."""

    backend: Any
    views: Any
    place: Any
    several: bool
    rounds: bool
    stale: bool
    copying: bool
    clock: Clock | None
    constants: Any
    launching: Any
    reports: tuple[Events, ...]
    _ran: set[Any]
    _shapes: Counter[str]
    _avals: Any

    def count(self, program: Any, operands: Any) -> None:
        """Count a program that is asked for, in the reports that are open."""
        stale, self.stale = self.stale, False
        if self._is_free(program):
            return
        if self.clock is not None:
            self.clock.asked += 1
        for events in self.reports:
            events.operators[program.name] += 1
            if program.role == "read":
                moved = sum(aval.size * aval.dtype.itemsize for aval in self._avals(program, operands))
                (events.refreshes if stale else events.reads).add(moved)
            elif program.role in ("write", "adjoint"):
                found = events.writes if program.role == "write" else events.adjoints
                found.add(getattr(operands[0], "nbytes", 0))

    def noted(self, program: Any) -> None:
        """Count an operator that a queue notes, and that is counted as asked for already."""
        if self._is_free(program):
            return
        if self.clock is not None:
            self.clock.noted += 1
        for events in self.reports:
            events.noted += 1

    def _resharded(self, array: Any, value: Any, layout: Any) -> None:
        """Count what the devices send one another so that an array gets a sharding; None: whole, on the first one."""
        moved = resharded(value, SingleDeviceSharding(self.place.behind[0]) if layout is None else layout)
        for events in self.reports:
            events.between.add(moved)
        if self.clock is not None:
            self.clock.transfer(CHIPS, (array,), moved, "resharding")

    def _is_free(self, program: Any) -> bool:
        """Return True for the reading of a view in place: by a device that has strides, or a view that is free."""
        return program.role == "read" and (
            self.backend.strides or (self.views is not None and getattr(program, "unbound", program) in self.views.free)
        )

    def _launch(self, program: Any, values: list[Any], operands: Any, writing: Any = None) -> None:
        """Count a program that runs now; an eager backend compiles it for each choice of shapes.

        `values`: the arrays behind `operands`.  `writing`: the `Writing` that runs in its place, in the memory of the
        first one.
        """
        spared = (0,) if self.copying else ()
        self.copying = False
        if self._is_free(program):
            return
        shard = spread_of((*values,)) if self.several else None
        shardings = None if shard is None else tuple(map(sharding, values))
        key = program, kinds(values) if program.lazy else (), shardings
        new, why = key not in self._ran, "for other shapes, dtypes or arguments"
        if new:
            self._ran.add(key)
            self._shapes[program.name] += 1
            if self.constants is not None and self.constants.compiled(key[1:], [program]):
                why = "for other starts"
            elif self._shapes[program.name] == 1:
                why = "for the first time"
        if not self.reports or not program.lazy:
            return
        structs, reads, donate = jax.tree.map(struct, values), program.role == "read", (0,) if writing else ()
        passes, jitted = None if self.launching is None else self.launching.passes, program.run
        if passes is not None:
            jitted, writing = passes.jitted(program), writing and passes.written(writing)
        several = shard is not None
        launch = Launch(
            program.name, jitted, structs, False, several, donate, reads, writing, spared, rounds=self.rounds
        )
        key = (*key, donate, spared)
        for events in self.reports:
            events.launch(key, launch)
            if new:
                events.programs.append(f"{program.name} {why}, at {here()}")
        if self.clock is not None:
            self.clock.launch(key, program.name, operands, new, operands[0] if writing else None)

    def launched(self, fused: Any, reasons: list[str], given: Any, queue: Any) -> None:
        """Count a program of a queue that ran, and why it was compiled.

        `given`: the clock's numbers of its inputs.
        """
        for part in [fused] if fused.segments is None else [each.program for each in fused.segments.parts]:
            donate, count = tuple([i + 1 for i in part.donated]), len(part.programs)
            name = f"{count} operations" if count > 1 else part.programs[0].name
            copied = tuple([i + 1 for i in queue.spared]) if part is fused else ()
            names = tuple([program.name for program in part.programs])
            launch = Launch(
                name, part.jitted, [one(), *part.structs], count > 1,
                donate=donate, reads=part.reads, spared=copied, parts=names, rounds=self.rounds,
            )  # fmt: skip
            key = part, copied
            for events in self.reports:
                events.launch(key, launch)
            if self.clock is not None:
                self.clock.fused(key, name, given, queue, bool(reasons))
        for events in self.reports:
            events.programs += reasons


def here() -> str:
    """Return the user's line."""
    return lines(outside(sys._getframe(1)))


def kinds(operands: Iterable[Any]) -> tuple[Any, ...]:
    """Return the kinds of operands, by which programs are compiled."""
    return tuple([_kind(x) for x in operands])


def _kind(x: Any) -> Any:
    if x.__class__ is tuple:
        return kinds(x)
    return None if x is None else kind_of(x)


def struct(x: Any) -> Any:
    """Return the shape, dtype and sharding of an operand; a number as it is."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding(x)) if hasattr(x, "shape") else x


def sharding(x: Any) -> Any:
    """Return the sharding of an operand on several devices; None for any other."""
    return x.sharding if spread(x) else None
