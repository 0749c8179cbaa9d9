"""Fused: joins queued operations of an `xgrad.lazy` block in one jitted function; the class Programs caches these."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from itertools import chain, starmap
from operator import call
from types import MappingProxyType
from typing import Any

import jax

from ..base.jax_compat import caches
from .codes import flat, operand_of
from .donation import await_results, besides, copied, has_room
from .metrics import recorder
from .programs.barriers import held
from .programs.chains import DEEP, in_chains
from .scalars import one
from .segments import Segments
from .source import lines


class Fused:
    """The jitted function of a queue's programs."""

    name: str = "lazy_program"
    replaced: Any = MappingProxyType({})  # {code of a result: code of the input whose memory it is to have}

    def __init__(self, programs: Any, codes: Any, live: tuple[int, ...], donated: tuple[int, ...]) -> None:
        self.segments: Segments | None = None  # they run in place of the whole
        self.programs: Any = programs
        self.codes: Any = codes
        self.live: tuple[int, ...] = live
        self.donated: tuple[int, ...] = donated
        self._ran: Any = None  # JAX's caches after the last run
        self.need: int = 0  # bytes that it needs besides its operands, if it takes some
        self.structs: list[Any] | None = None  # the operands' shapes and dtypes, once it runs
        self.lines: Any = ()  # where the programs were noted, the last time
        self.parts: dict[int, Any] = {}
        whole = self.function(self.live)
        self.jitted: Any = _jit(whole, donated)
        # On a platform with options for programs that read a part.
        self._part: Any = next((program for program in programs if program.options is not None), None)
        self._alone: Any = self._part and _jit(whole, donated, self._part.options)

    def function(self, wanted: tuple[int, ...], only: Any = None, told: Any = ()) -> Any:
        """Return the function of (unit, *inputs) that computes the `wanted` results.

        `only`: the entries that it has, if not all; the results of others are its last argument.  `told`: the lines
        that the entries' operators carry in their names.
        """
        needed = self.needed(wanted, only)
        order = sorted(needed)
        programs, codes = self.programs, self.codes
        sums = self._sums(needed, wanted)
        written = {root for root, _ in sums.values()} | {codes[n][0] for n in order if programs[n].role == "write"}
        merged = {adjoint for _, adjoint in sums.values()}

        # Each program is a jitted function in the whole: JAX traces it once for its operands' shapes, not each time.
        def lazy_program(unit: Any, *given: Any) -> list[Any]:
            found: dict[int, Any] = {} if only is None else dict(given[-1])

            def hold(part: Any) -> Any:
                return held(part, unit)

            def result(n: int) -> Any:
                program, operands_of = programs[n], codes[n]
                if n in sums:
                    root, adjoint = sums[n]
                    program, operands_of = programs[adjoint], (root, *codes[adjoint])
                operands = [operand_of(code, given, found) for code in operands_of]
                if n in sums or (program.role == "write" and program.into is not None):
                    return program.into(hold, *operands)
                out = program.run(*operands)
                return hold(out) if program.role == "read" and codes[n][0] in written else out

            for n in order:
                if n in merged:
                    continue
                with jax.named_scope(told[n]) if told else nullcontext():
                    out = result(n)
                if out.__class__ is tuple:
                    for i, o in enumerate(out):
                        found[(n << 8) + i] = o
                else:
                    found[n << 8] = out
            return [found[number] for number in wanted]

        lazy_program.__name__ = self.name
        return in_chains(lazy_program) if len(order) > DEEP else lazy_program

    def needed(self, wanted: tuple[int, ...], only: Any = None) -> set[int]:
        """Return the entries, of `only` if it is given, that the `wanted` results need."""
        needed, waiting = set(), [number >> 8 for number in wanted]
        while waiting:
            n = waiting.pop()
            if n not in needed and (only is None or n in only):
                needed.add(n)
                waiting += [code >> 8 for code in flat(self.codes[n]) if code >= 0]
        return needed

    def rewrite(self, through: Callable[..., Any]) -> None:
        """Jit what `through` makes of the function in place of it."""
        self.jitted, self._part, self._alone = _jit(through(self.function(self.live)), self.donated), None, None

    def _sums(self, needed: set[int], wanted: tuple[int, ...]) -> dict[int, tuple[int, int]]:
        """Return {sum: (operand, adjoint)} of the sums with an adjoint that nothing else uses: a write is enough."""
        uses = Counter(code for n in needed for code in flat(self.codes[n]))
        uses.update(wanted)
        sums: dict[int, tuple[int, int]] = {}
        for n in sorted(needed):
            if self.programs[n].role == "sum":
                a, b = self.codes[n]
                for array, part in ((a, b), (b, a)):
                    if part >= 0 and uses[part] == 1 and part >> 8 in needed:
                        program = self.programs[part >> 8]
                        if program.role == "adjoint" and program.into is not None:  # a write has a function `into` too
                            sums[n] = array, part >> 8
                            break
        return sums

    def run(self, values: list[Any], out: list[Any], spare: list[Any]) -> None:
        """Append lists to `out` that are the live results in their order: C code calls the last programs and stores
        what they give, without an interrupt.  An error leaves in `out` what the programs before it gave.
        """
        if self.structs is None:
            self.structs = [_struct(v) for v in values]
        first, donated = not self.ran, self.donated
        before, calls = [], [(self.chosen(values), one(), *values)]
        if self.segments is not None:
            if first and not any(getattr(value, "committed", False) for value in values):
                recorder.in_threads(self.segments.compile)
            before, calls = self.segments.run(values, self.live)
        if not donated or (not first and has_room(self.need, values[donated[0]].sharding)):
            out.extend(chain((before,), starmap(call, calls)))
        else:
            # JAX traces and compiles in first calls: Python runs in them, and may be interrupted or fail.
            spare.extend(copied([values[i] for i in donated]))
            out.extend([before, *starmap(call, calls)])
            await_results(out)
        if first and donated and self.segments is None:
            self.need = besides(self.chosen(values).lower(one(), *values).compile())  # JAX has both since the call
        self._ran = caches()

    @property
    def ran(self) -> bool:
        """True if it ran before: then no Python code of JAX's runs in its programs."""
        return self._ran is caches()

    @property
    def launches(self) -> int:
        """How many programs `run` launches."""
        return 1 if self.segments is None else len(self.segments.parts)

    @property
    def lists(self) -> int:
        """How many lists `run` appends."""
        return 2 if self.segments is None else 1 + len(self.segments.parts) - self.segments.last

    @property
    def reads(self) -> bool:
        """True if it reads a part of an array."""
        return any(program.role == "read" for program in self.programs)

    def chosen(self, values: list[Any]) -> Any:
        """Return the jitted function for these operands: on some platforms one with the compiler's options."""
        return self._alone if self._part is not None and self._part.is_there(values) else self.jitted

    def lowered(self) -> Any:
        """Return the program as a `jax.stages.Lowered`."""
        if self.structs is None:
            raise RuntimeError("lazy.as_text(): the last lazy program ran on several devices, as several programs")
        return (self._alone or self.jitted).lower(one(), *self.structs)

    def run_part(self, place: int, where: tuple[int, ...], values: list[Any], found: dict[int, Any]) -> None:
        """Add to `found` the results at one place that are alive, or that other places need."""
        part = self.parts.get(place)
        if part is None:
            own = {n for n, w in enumerate(where) if w == place}
            asked = {c for n, w in enumerate(where) if w != place for c in flat(self.codes[n]) if c >= 0}
            wanted = tuple(sorted({c for c in (*asked, *self.live) if c >> 8 in own}))
            part = self.parts[place] = wanted, own, _jit(self.function(wanted, own), ())
        wanted, own, jitted = part
        used = {-c - 1 for n in own for c in flat(self.codes[n]) if c < 0}
        given = [v if i in used else None for i, v in enumerate(values)]
        earlier = {c: found[c] for n in own for c in flat(self.codes[n]) if c >= 0 and c in found}
        found.update(zip(wanted, jitted(one(), *given, earlier)))


def _jit(whole: Any, donated: tuple[int, ...], options: Any = None) -> Any:
    return jax.jit(whole, donate_argnums=tuple([i + 1 for i in donated]), compiler_options=options)


def _struct(x: Any) -> Any:
    if not hasattr(x, "shape"):
        return x
    return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=getattr(x, "weak_type", False))


class Programs:
    """The compiled functions, by structure; the least recently used goes first."""

    MOST = 256

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()  # a signal handler may evaluate in the middle of it
        self.latest: Fused | None = None  # the one that ran last
        self.found: OrderedDict[Any, Fused] = OrderedDict()

    def find(self, key: Any, line: Any, cut: Callable[..., Segments | None] | None = None) -> Fused:
        """Return the function of a structure; `line` asks for it.

        `cut`: a function of it and of the operands' kinds that returns its parts, None for one program.
        """
        with self.lock:
            fused = self.found.get(key)
            if fused is not None:
                self.found.move_to_end(key)
                self.latest = fused
                return fused
            reason, same = self._reason(key)
        fused = Fused(*key[:4])
        segments = fused.segments = cut(fused, key[4]) if cut else None
        if segments is not None:
            reason = f"{reason}, in {len(segments.parts)} parts of {len(segments.programs)} programs"
        recorder.new(reason, lines(line), same)
        with self.lock:
            self.found[key] = self.latest = fused
            while len(self.found) > self.MOST:
                self.found.popitem(last=False)
        return fused

    def forget(self, fused: Fused) -> None:
        """Drop a function: the next evaluation of its structure compiles another one."""
        with self.lock:
            for key in [key for key, found in self.found.items() if found is fused]:
                del self.found[key]

    def _reason(self, key: Any) -> tuple[str, bool]:
        """Return why a structure has to be compiled, and True if a known one has the same operators."""
        names = tuple([program.name for program in key[0]])
        like = [other for other in self.found if tuple([program.name for program in other[0]]) == names]
        text = f"{len(names)} operations ({', '.join(names[:3])}{', ...' * (len(names) > 3)})"
        if not like:
            return f"{text} for the first time", False
        same = [other for other in like if other[:2] == key[:2] and other[4] == key[4]]
        if same:
            donated = any(other[2] == key[2] for other in same)
            return f"{text}, other {'operands are donated' if donated else 'results of them are alive'}", False
        for other in like:
            for a, b in zip(key[4], other[4]):
                if a != b:
                    return f"{text} with {a!r} in place of {b!r}", True
        return f"{text} with other operands or static arguments", True


programs: Programs = Programs()
