"""ChipReport: shows what a chip's compiler says of a program: memory, costly parts, collectives, lost donations."""

from dataclasses import asdict
from functools import cached_property
from typing import Any

from ..base.immutable import Immutable, fixed
from ..base.table import Row, Table, Tabled, axes, number, seconds, size
from .answers import Answer
from .programs import Asked
from .reading import Reading

_MOST = 10  # rows of a list
_TILE = 8 * 128 * 4  # bytes
_BYTES = {
    "argument": "arguments", "output": "results", "temp": "temporary", "alias": "results in donated arguments",
    "generated_code": "the program itself",
}  # fmt: skip


class ChipReport(Tabled, Reading, Immutable):
    """The answer of a target's compiler to one program.

    `fits`: it compiles, and the chip has room for it; `state`: "compiles", "does not fit", "refused", "ends the
    compiler" or "slow"; `answer`: bytes, operations, seconds, the compiler's words.  `parts` are the heaviest first,
    with lines and operators; `alive` is what is in memory at the peak; `padding`, `accesses` (gathers, whole copies),
    `exchanges` between devices, and `undonated` tensors are lists too.

    Prints as a table, and is HTML in a notebook; `as_dict()` has all of it for programs, `plot()` draws the heaviest
    parts, `as_text()` is the optimized program.  All is the compiler's estimate: nothing has run, no time was measured.
    """

    target: Any
    answer: Answer
    name: str
    _program: Asked

    def __init__(self, target: Any, answer: Answer, program: Asked) -> None:
        fixed(self, "__dict__", {"target": target, "answer": answer, "name": program.name, "_program": program})
        read = Reading(answer.hlo, program.names, dict(program.mesh))
        vars(self).update(vars(read))

    @property
    def fits(self) -> bool:
        return self.answer.state == "compiles"

    @property
    def state(self) -> str:
        return self.answer.state

    @cached_property
    def undonated(self) -> list[tuple[str, str]]:
        """The written tensors whose new values need memory of their own, and why."""
        names, lost = self._program.names, [i for i in self._program.donate if i not in self.aliased]
        found = [(names[i], why) for i, why in self._program.undonated]
        return found + [(names[i] if names else f"operand {i}", "no result can have its memory") for i in lost]

    def as_text(self) -> str:
        """Return the optimized program as the chip's compiler wrote it."""
        return self.answer.as_text()

    def cost_analysis(self) -> dict[str, float]:
        """Return the compiler's estimates."""
        return self.answer.cost_analysis()

    def memory_analysis(self) -> Any:
        """Return the bytes that the program takes on each device; None if it does not compile."""
        return self.answer.memory_analysis()

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as numbers, strings, lists and dictionaries."""
        found = asdict(self.answer) | {"target": self.target.name, "name": self.name, "fits": self.fits}
        found |= {"peak": self.answer.peak, "estimated seconds": self.answer.estimated_seconds}
        found |= {"cycles": self.cycles, "donated": len(self.aliased), "undonated": dict(self.undonated)}
        for name in ("parts", "alive", "padding", "accesses", "exchanges"):
            found[name] = [each._asdict() for each in getattr(self, name)]
        del found["hlo"]
        return found

    def rows(self) -> list[Row]:
        """Return the rows of the table: what, and how much."""
        answer, rows = self.answer, []

        def several(label: str, told: str, items: list[tuple[str, ...]]) -> None:
            if items:
                rows.append(Row(label, (told,)))
                rows.extend(Row(name, ("  ".join(filter(None, cells)),), 1) for name, *cells in items[:_MOST])
            if len(items) > _MOST:
                rows.append(Row(f"and {len(items) - _MOST} more", ("",), 1))

        if not self.fits:
            rows.append(Row(answer.state, (" ".join(answer.said.split()),)))
            operands = self._program.operands() if self.state == "does not fit" else []
            several("arguments", size(sum(n for _, n in operands)), [(name, size(n)) for name, n in operands])
            return rows
        each = f" of each of {self.target.devices} devices" if self._program.mesh else ""
        rows.append(Row("fits", (f"{size(answer.peak)} of {size(self.target.memory)}{each}",)))
        rows += [Row(_BYTES[name], (size(value),), 1) for name, value in answer.memory.items()]
        rows.append(Row("compiled in", (seconds(answer.seconds),)))
        if answer.cost:  # the compilers of GPUs give no estimates
            rows.append(Row("estimated time", (seconds(answer.estimated_seconds),)))
            rows.append(Row("arithmetic", (f"{number(answer.flops)} operations",)))
            rows.append(Row("memory traffic", (size(answer.bytes_accessed),)))
        heavy = [(f"{p.cycles / self.cycles:.0%}  {p.line}", p.operators, f"({p.times} times)" * (p.times > 1))
                 for p in self.parts if 200 * p.cycles > self.cycles]  # fmt: skip
        several("heaviest", f"of {number(self.cycles)} cycles", heavy)
        alive = [(b.name, size(b.padded), b.shape, b.line) for b in self.alive]
        several("alive at the peak", f"{len(alive)} arrays in main memory", alive)
        rows.append(Row("donated", (f"{len(self.aliased)} operands are written in place",)))
        several("not donated", "written, and not in place", self.undonated)
        padding = [(b.name, f"{size(b.bytes)} take {size(b.padded)}", b.shape, b.line)
                   for b in self.padding if b.padded - b.bytes >= _TILE]  # fmt: skip
        several("padding of tiles", f"{size(sum(b.padded - b.bytes for b in self.padding))} in all", padding)
        accesses = [(a.what, size(a.bytes), a.operators, a.line) for a in self.accesses]
        several("gathers and copies", size(sum(a.bytes for a in self.accesses)), accesses)
        exchanges = [(f"{c.what} along {c.axes}", f"{c.times} of {size(c.bytes)} in all") for c in self.exchanges]
        several("between devices", size(sum(c.bytes for c in self.exchanges)), exchanges)
        return rows

    def table(self) -> Table:
        """Return the table."""
        over = "".join(f", {name}={n}" for name, n in self._program.mesh)
        return Table(self.rows(), caption=f"{self.name} on {self.target.name}{over}", numbers=False)

    def plot(self, ax: Any = None) -> Any:
        """Draw the cycles of the heaviest parts as bars, into matplotlib axes `ax` or a new figure; returns them.

        Raises `ImportError` without matplotlib.
        """
        ax = axes(ax, 7, 3)
        shown = self.parts[:_MOST][::-1]
        ax.barh(range(len(shown)), [part.cycles for part in shown])
        ax.set_yticks(range(len(shown)), [f"{part.operators}  {part.line}" for part in shown])
        ax.set_xlabel("estimated cycles")
        ax.set_title(f"{self.name} on {self.target.name}: {seconds(self.answer.estimated_seconds)}")
        return ax
