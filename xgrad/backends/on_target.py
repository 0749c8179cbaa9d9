"""OnTarget: asks a real chip's compiler what a backend's programs cost there, for `xgrad.Backend(target="tpu:v5e")`.

Each program is traced again for the chip's platform and compiled for the chip; the programs that ran stay as they are.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from ..base.table import Row, number, seconds, size
from ..chips import Answer
from ..views.platforms import forms
from .events import Events

_MOST = 6  # programs that are shown


class Compiled(NamedTuple):
    """A program that ran on a backend: its name, how often it runs, and what the target's compiler says of it."""

    name: str
    runs: int
    answer: Answer


def answered(
    target: Any, function: Any, structs: Sequence[Any], donate: tuple[int, ...] = (), reads: bool = False
) -> Answer:
    """Return what the compiler of a target says of a program; "refused" if it cannot be traced for the platform.

    `reads`: it reads a part of an operand, for which the platform may have options of the compiler.
    """
    try:
        options = forms(target.platform).options if reads else None
        return target.ask(function, *structs, donate=donate, options=options)
    except Exception as error:
        return Answer(target.name, "refused", f"{type(error).__name__}: {error}")


class OnTarget:
    """The answers of a target's compiler to all programs of a report.

    `target`; `missing`: what has to be installed first, in words, None if the compiler is here; `programs`: a list of
    `Compiled`, the heaviest first, empty if it is not.
    """

    def __init__(self, target: Any, events: Events, known: dict[Any, Answer]) -> None:
        self.target: Any = target
        self.missing: str | None = target.missing
        self.programs: list[Compiled] = []
        if self.missing is not None:
            return
        for key, (launch, count) in events.launches.items():
            if key not in known:
                with jax.ensure_compile_time_eval():
                    known[key] = answered(target, launch.jitted, launch.structs, launch.donate, launch.reads)
            self.programs.append(Compiled(launch.name, count, known[key]))
        self.programs.sort(key=lambda p: -p.runs * (p.answer.estimated_seconds or 0.0))

    @property
    def seconds(self) -> float | None:
        """The compiler's estimate of the time of all runs; None if it has none (a GPU's), or none was compiled."""
        found = [(p.runs, p.answer.estimated_seconds) for p in self.programs if p.answer.state == "compiles"]
        if self.missing is not None or any(each is None for _, each in found) or (self.programs and not found):
            return None
        return sum(count * (each or 0.0) for count, each in found)

    @property
    def compile_seconds(self) -> float:
        """How long the chip's compiler took."""
        return sum(p.answer.seconds for p in self.programs)

    @property
    def bytes_accessed(self) -> int | None:
        """The bytes of the chip's memory that all runs read and write; None if the compiler does not count them."""
        found = [(p.runs, p.answer.bytes_accessed) for p in self.programs if p.answer.state == "compiles"]
        return None if any(each is None for _, each in found) else int(sum(n * (each or 0.0) for n, each in found))

    @property
    def temporary_bytes(self) -> int:
        """The most bytes that a program takes beside its operands and results."""
        return max((p.answer.memory.get("temp", 0) for p in self.programs), default=0)

    @property
    def failures(self) -> list[Compiled]:
        """The programs that the chip's compiler does not compile."""
        return [p for p in self.programs if p.answer.state != "compiles"]

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as numbers, strings, lists and dictionaries."""
        return {
            "name": self.target.name, "missing": self.missing, "seconds": self.seconds,
            "bytes accessed": self.bytes_accessed, "temporary": self.temporary_bytes,
            "programs": [
                {"name": p.name, "count": p.runs, "state": p.answer.state, "said": p.answer.said,
                 "seconds": p.answer.estimated_seconds, "bytes accessed": p.answer.bytes_accessed}
                for p in self.programs
            ],
        }  # fmt: skip

    def rows(self, peak: int) -> list[Row]:
        """Return rows of a report; `peak`: the most bytes that were alive."""
        if self.missing is not None:
            return [Row(f"on {self.target.name}", (f"not asked: {self.missing}",))]
        lost = f", {len(self.failures)} of them not compiled" if self.failures else ""
        rows = [Row(f"on {self.target.name}", (f"{number(len(self.programs))} programs{lost}",))]
        for p in self.failures[:_MOST]:
            said = p.answer.said.strip().splitlines() or [""]
            rows.append(Row(p.name, (f"{p.answer.state}: {said[0]}",), 1))
        rows.append(Row("bytes accessed", (size(self.bytes_accessed),), 1))
        full = peak + self.temporary_bytes > self.target.memory
        room = f"{size(self.temporary_bytes)}, at most" + (", which does not fit beside the peak" if full else "")
        rows.append(Row("temporary memory", (room,), 1))
        for p in self.programs[:_MOST] if self.seconds is not None else ():
            if p.answer.state == "compiles":
                took = seconds(p.runs * (p.answer.estimated_seconds or 0.0))
                rows.append(Row(p.name, (f"{took}, {number(p.runs)} × {size(p.answer.bytes_accessed)}",), 1))
        return rows
