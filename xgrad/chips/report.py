"""Report: what a chip's compiler says of a program, in words: does it fit, what is slow, what is donated, what is moved."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from ..table import Row, Table, number, seconds, size
from .answers import Answer
from .programs import Asked
from .reading import Access, Buffer, Collective, Fusion, Reading

_MOST = 10  # rows of a list


@dataclass(frozen=True, repr=False)
class ChipReport:
    """What the compiler of a target says of one program.

    `fits`: it compiles, and the chip has room for it.  Prints as a table, is HTML in a notebook; `as_dict()` has
    all of it as numbers and strings, `plot()` draws the heaviest fusions, `as_text()` is the optimized program.  An
    estimate is the compiler's: no value was computed, and no time measured.
    """

    target: Any
    answer: Answer
    program: Asked

    @property
    def fits(self) -> bool:
        return self.answer.compiles

    @property
    def state(self) -> str:
        """One of "compiles", "does not fit", "refused", "ends the compiler", "slow"."""
        return self.answer.state

    @cached_property
    def _reading(self) -> Reading:
        return Reading(self.answer.hlo, self.program.names, dict(self.program.mesh))

    @cached_property
    def fusions(self) -> list[Fusion]:
        """The parts of the program, the heaviest first, with lines and operators."""
        return self._reading.fusions()

    @cached_property
    def alive(self) -> list[Buffer]:
        """What is in the chip's main memory when most of it is in use, the largest first."""
        return self._reading.alive()

    @cached_property
    def padding(self) -> list[Buffer]:
        """The arrays that the chip's tiles make larger, the largest waste first."""
        return self._reading.padding()

    @cached_property
    def accesses(self) -> list[Access]:
        """Gathers, scatters, and copies of whole operands."""
        return self._reading.accesses()

    @cached_property
    def collectives(self) -> list[Collective]:
        """What devices exchange, by axes of the mesh."""
        return self._reading.collectives()

    @cached_property
    def undonated(self) -> list[tuple[str, str]]:
        """The written tensors whose new values need memory of their own, and why."""
        found = [(self.program.names[i], why) for i, why in self.program.undonated]
        lost = [i for i in self.program.donate if i not in self._reading.aliased]
        return found + [(self.program.names[i], "the compiler found no result that can have its memory") for i in lost]

    def as_text(self) -> str:
        """Return the optimized program as the chip's compiler wrote it."""
        return self.answer.as_text()

    def cost_analysis(self) -> dict[str, float]:
        """Return the compiler's estimates."""
        return self.answer.cost_analysis()

    def memory_analysis(self) -> Any:
        """Return the bytes that the program takes; None if it does not compile."""
        return self.answer.memory_analysis()

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as numbers, strings, lists and dictionaries."""
        found = asdict(self.answer) | {"target": self.target.name, "name": self.program.name, "fits": self.fits}
        found.pop("hlo")
        if not self.fits:
            return found
        lists = {name: getattr(self, name) for name in ("fusions", "alive", "padding", "accesses", "collectives")}
        return found | {
            "estimated seconds": self.answer.estimated_seconds,
            "peak": self._peak,
            "donated": len(self._reading.aliased),
            "undonated": dict(self.undonated),
            **{name: [each._asdict() for each in items] for name, items in lists.items()},
        }

    @property
    def _peak(self) -> int | None:
        memory = self.answer.memory_analysis()
        return None if memory is None else memory.peak

    def rows(self) -> list[Row]:
        """Return the rows of the table: what, and how much."""
        answer, memory = self.answer, self.answer.memory_analysis()
        rows: list[Row] = []

        def row(label: str, text: str, depth: int = 0) -> None:
            rows.append(Row(label, (text,), depth))

        def several(label: str, told: str, items: list[tuple[str, str]]) -> None:
            if items:
                row(label, told)
                for name, text in items[:_MOST]:
                    row(name, text, 1)
                if len(items) > _MOST:
                    row(f"and {len(items) - _MOST} more", "", 1)

        if not self.fits:
            row(answer.state, " ".join(answer.said.split()))
            return rows
        if memory is not None:
            each = f" of each of {self.target.devices} devices" if self.program.mesh else ""
            row("fits", f"{size(memory.peak)} of {size(self.target.memory)}{each}")
            for label, bytes in zip(("arguments", "results", "temporary", "results in donated arguments"), memory):
                row(label, size(bytes), 1)
        row("compiled in", seconds(answer.seconds))
        row("estimated time", seconds(answer.estimated_seconds))
        row("arithmetic", f"{number(answer.flops)} operations")
        row("memory traffic", size(answer.bytes_accessed))
        cycles = sum(fusion.cycles for fusion in self.fusions) or 1
        several("heaviest", f"of {number(cycles)} cycles in {len(self.fusions)} parts", [
            (f"{f.cycles / cycles:.0%}  {f.line}", f.operators) for f in self.fusions
        ])  # fmt: skip
        alive = [(b.name, f"{size(b.padded)}  {b.shape}  {b.line}".rstrip()) for b in self.alive]
        several("alive at the peak", f"{len(alive)} arrays in main memory", alive)
        row("donated", f"{len(self._reading.aliased)} operands are written in place")
        several("not donated", f"{len(self.undonated)} operands are written and not in place", self.undonated)
        waste = sum(b.padded - b.bytes for b in self.padding)
        wasted = [
            (b.name, f"{size(b.bytes)} take {size(b.padded)}  {b.shape}  {b.line}".rstrip()) for b in self.padding
        ]
        several("padding of tiles", f"{size(waste)} in all", wasted)
        accesses = [(a.what, f"{size(a.bytes)}  {a.operators}  {a.line}".rstrip()) for a in self.accesses]
        several("gathers and copies", f"{len(accesses)}", accesses)
        exchanged = [(f"{c.what} along {c.axes}", f"{c.count}, {size(c.bytes)}") for c in self.collectives]
        several("between devices", size(sum(c.bytes for c in self.collectives)), exchanged)
        return rows

    def table(self) -> Table:
        """Return the table."""
        over = "".join(f", {name}={n}" for name, n in self.program.mesh)
        return Table(self.rows(), caption=f"{self.program.name} on {self.target.name}{over}", numbers=False)

    def __str__(self) -> str:
        table = self.table()
        return "\n".join([table.caption, *table.lines()])

    __repr__ = __str__

    def print(self) -> None:
        """Print the table in colours.  Raises `ImportError` if the package rich is not installed."""
        self.table().print()

    def _repr_html_(self) -> str:
        return self.table().html()

    def plot(self, ax: Any = None) -> Any:
        """Draw the cycles of the heaviest parts as bars, into matplotlib axes `ax` or a new figure; returns them.

        Raises `ImportError` without matplotlib.
        """
        if ax is None:
            import matplotlib.pyplot as plt  # an optional library

            _, ax = plt.subplots(figsize=(7, 3), layout="constrained")
        shown = self.fusions[:_MOST][::-1]
        ax.barh(range(len(shown)), [fusion.cycles for fusion in shown])
        ax.set_yticks(range(len(shown)), [f"{fusion.operators}  {fusion.line}" for fusion in shown])
        ax.set_xlabel("estimated cycles")
        ax.set_title(f"{self.program.name} on {self.target.name}: {seconds(self.answer.estimated_seconds)}")
        return ax
