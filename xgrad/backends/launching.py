"""Launching: runs an `xgrad.Backend`'s compiled programs with its faults, jaxpr passes, rounding, random bits, fusion.

`Runtime` has a `Launching` if its backend declares `faults`, `passes`, `products`, `accumulate`, `random`, `fuse` or
`runtime_starts=False`, and else runs programs as they are.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ..execution.donation import run_writing
from ..execution.programs.programs import Immediate
from ..execution.scalars import one
from ..execution.segments import cut_at
from .bits import Bits
from .faults import Injector, Launched, Taking, taken
from .products import Products
from .rewriting import Passes
from .without import lacking


class Launching:
    """Runs the programs of one backend's `Runtime`, with the faults and changes that it declares."""

    def __init__(self, runtime: Any) -> None:
        backend = runtime.backend
        self.runtime = runtime
        self.injector: Injector | None = None if backend.faults is None else Injector(runtime, backend.faults)
        formats = backend.products, backend.accumulate
        last: list[Any] = [] if backend.random is None else [Bits(backend.name, backend.random)]
        last += [] if formats == (None, None) else [Products(*formats)]
        self.passes: Passes | None = Passes(backend.name, backend.passes, last) if backend.passes or last else None
        self.verify: bool = backend.verify_passes and bool(backend.passes)
        self.fuse: Any = (
            lacking(backend.name, backend.fuse, "fuse") if isinstance(backend.fuse, tuple) else backend.fuse
        )
        self._wholes: WeakKeyDictionary[Any, _Whole] = WeakKeyDictionary()  # by the queue's program
        # True if queues of other backends cannot share its compiled programs.
        self.shapes: bool = self.passes is not None or self.fuse is not None or runtime.constants is not None

    def transfer(self, count: int = 1) -> None:
        """Make transfers over the host's link."""
        if self.injector is not None:
            self.injector.transfer(count)

    def run(self, program: Any, values: Sequence[Any]) -> Any:
        """Launch a program, and return its results."""
        launched = self._launched(program.name)
        if self.passes is None or isinstance(program, Immediate):
            out = program.run(*values)
        else:
            out = self.passes.jitted(program)(*values)
            if self.verify:
                self.passes.compare(program, values, out, self.runtime.line())
        return self._flipped(launched, out, program.name)

    def write(self, program: Any, writing: Any, made: list[Any], inside: list[Any], values: tuple[Any, ...]) -> None:
        """Launch a program that takes the memory of the array in `inside`, and put its result into `made`."""
        launched = self._launched(program.name, True)
        if launched is not None and launched.failure is not None:
            writing = Taking(launched.failure)
        elif self.passes is not None:
            writing = self.passes.written(writing)
        run_writing(writing, made, inside, values)
        made[:] = self._flipped(launched, made, program.name)

    def fused(self, fused: Any, values: list[Any], out: list[Any], spare: list[Any]) -> None:
        """Launch the programs of a queue, as `fused.run` does: each of its parts is one."""
        parts = [fused] if fused.segments is None else [part.program for part in fused.segments.parts]
        names = [f"{len(part.programs)} operations" for part in parts]
        writes = bool(fused.donated) and fused.ran
        launched = [self._launched(name, writes) for name in names]
        for each in launched:
            if each is not None and each.failure is not None:
                taken(each.failure, [values[i] for i in fused.donated])
        if self.verify and self.passes is not None:
            whole = self._wholes.setdefault(fused, _Whole(fused))
            found: list[Any] = []
            fused.run(values, found, spare)  # not into `out`, which is given out
            self.passes.compare(whole, values, found, self.runtime.line())
            out.extend(found)
        else:
            fused.run(values, out, spare)
        for each, name in zip(launched, names):
            out[:] = self._flipped(each, out, name)

    def shape(self, fused: Any, kinds: tuple[Any, ...]) -> Any:
        """Return the parts of a queue's program, None: it is one; rewrite them by the passes."""
        segments = None
        if self.fuse is not None and len(fused.programs) > 1:
            segments = cut_at(fused, kinds, bounds(self.fuse, fused.programs, fused.needed(fused.live)))
        for part in [fused] if segments is None else segments.programs:
            if self.passes is not None:
                part.rewrite(self.passes.through)
            if self.runtime.constants is not None:
                shapes = kinds if segments is None else (*part.structs,)
                self.runtime.constants.compiled((part.codes, part.live, part.donated, shapes), part.programs)
        return segments

    def _launched(self, what: str, writes: bool = False) -> Launched | None:
        return None if self.injector is None else self.injector.launch(what, writes)

    def _flipped(self, launched: Launched | None, out: Any, what: str) -> Any:
        if launched is None or self.injector is None:
            return out
        return self.injector.flipped(launched.number, out, what)


class _Whole:
    """A queue's program without passes, as one program of its inputs."""

    def __init__(self, fused: Any) -> None:
        self.name = f"{len(fused.programs)} operations"
        inner = fused.function(fused.live)
        self.function: Any = lambda *values: inner(one(), *values)


def bounds(fuse: int | frozenset[str], programs: Sequence[Any], needed: set[int]) -> list[int]:
    """Return the entries at which a queue is cut: after each n of those needed, or around the operators named."""
    cuts, count, before = [0], 0, False
    for n in sorted(needed):
        named = not isinstance(fuse, int) and programs[n].operator in fuse
        full = count >= fuse if isinstance(fuse, int) else named or before
        if full and count:
            cuts.append(n)
            count = 0
        count, before = count + 1, named
    return [*cuts, len(programs)]
