"""Constants: makes a separate program for each set of views' start indices, with these as constants, not operands.

It is for `xgrad.Backend(runtime_starts=False)`.  On other devices views that differ in their starts alone share one
program, which has the starts as operands.  Here each set of starts has its own program, a `Bound`; the backend's
reports count the programs that were compiled only because of other starts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..execution.programs.programs import Program


class Bound(Program):
    """A program of views with its starts as constants."""

    __slots__ = ("line", "unbound", "values")

    def __init__(self, program: Program, values: tuple[Any, ...], line: str) -> None:
        super().__init__(_with(program.function, program.starts, values, 0), keep_unused=True)
        self.unbound, self.values, self.line = program, values, line  # the line that asked first
        self.role, self.label, self.operator = program.role, program.label, program.operator
        if program.into is not None:
            self.into = _with(program.into, program.starts, values, 1)

    def writing(self, writing: Any) -> Any:
        """Return the program that writes in place with the same constants."""
        return writing.through(lambda function: _with(function, self.unbound.starts, self.values, 0))


def _with(
    function: Callable[..., Any], where: slice | None, values: tuple[Any, ...], before: int
) -> Callable[..., Any]:
    """Return a function of the operands without starts; `before`: the arguments in front of a program's operands."""
    first = None if where is None or where.start < 0 else where.start + before

    def bound(*operands: Any) -> Any:
        at = len(operands) if first is None else first
        return function(*operands[:at], *values, *operands[at:])

    bound.__name__ = getattr(function, "__name__", "bound")
    return bound


class Constants:
    """The programs of one backend whose starts are constants."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._programs: dict[Any, Bound] = {}  # by program and starts
        self._writings: dict[Any, Any] = {}
        self._compiled: dict[Any, set[Any]] = {}  # the Bound programs that were compiled, by what they have in common

    def bound(self, program: Any, operands: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return a program without operands that are starts, and its operands."""
        where = program.starts
        if where is None:
            return program, operands
        starts: Any = jax.tree.map(np.int32, tuple(operands[where]))
        found = self._programs.get((program, starts))
        if found is None:
            found = self._programs[program, starts] = Bound(program, starts, self._runtime.line())
        rest = [*operands]
        del rest[where]
        return found, rest

    def writing(self, program: Any, writing: Any) -> Any:
        """Return the program that writes in place, for the program that `bound` returned."""
        if program.__class__ is not Bound:
            return writing
        found = self._writings.get((program, writing))
        if found is None:
            found = self._writings[program, writing] = program.writing(writing)
        return found

    def compiled(self, key: Any, programs: Sequence[Any]) -> bool:
        """Count a program that is compiled now; return True if it is one more of `key` because of other starts.

        `programs`: those that it is made of.
        """
        own = {program for program in programs if program.__class__ is Bound}
        if not own:
            return False
        key = key, tuple([getattr(program, "unbound", program) for program in programs])
        known = self._compiled.get(key)
        if known is None:
            self._compiled[key] = own
            return False
        other = [program for program in programs if program in own]
        new = next((program for program in other if program not in known), other[0])
        known |= own
        for events in self._runtime.reports:
            events.starts[new.name, new.line] += 1
        return True
