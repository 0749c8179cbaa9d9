"""Segments: cuts an `xgrad.lazy` block's program where its operations repeat, so that each part compiles once.

The operations that the block collects are the entries of a queue.  A part is one program, launched for each repetition.

    embed [layer layer layer layer] head, their backward [layer' layer' layer' layer'] ..., the optimizer's step
       one program, 4 times                  another one, 4 times

XLA's time grows with the operations of a program, and faster in deep ones.  A run of entries that repeat with a period
is cut into groups of whole periods, long enough that a launch costs little beside them, at the place of the period
where the fewest bytes pass from one to the next.  Equal groups are one program.  What XLA fuses into one loop, element
by element, stays together for many more operations.

Invariant: nothing that the queue was given is donated before the last segments, which use nothing of each other: C code
runs these without an interrupt, and an error or an interrupt before leaves everything as it was queued.  What
segments give each other is donated to its last user.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import jax
import numpy as np

from ..base.jax_compat import INNER, jaxprs
from .codes import flat, renamed
from .programs.ahead import compile_ahead
from .programs.chains import ends_chain
from .scalars import one
from .shapes import AT_ONCE, avals_of, structs_of

MIN_SAVED_ENTRIES = 64  # entries that need not be compiled, so that cutting pays
MAX_DISTANCE = 8  # entries: farther operands of entries that are alike may be at different distances
MAX_PERIOD = 1024  # entries of a period
OPERATIONS, BYTES = 256, 1 << 23  # a group has so many operations, or results of so many bytes and a product among them
LONG = 3  # as many operations: what one counts whose group has results of so many bytes, beside which a launch is short
_SMALL = frozenset({"write", "adjoint", "sum"})  # roles of programs that may work in their first operand's memory


class Segment(NamedTuple):
    """A part of a queue: its program, and the queue's codes of what it takes and gives."""

    program: Any  # a Fused of the part alone
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    free: tuple[int, ...]  # what no later segment uses


def repeats(signatures: Sequence[Any], longest: int) -> list[tuple[int, int, int]]:
    """Return (start, end, period) of each run of hashable values that repeats at least once: the longest runs first."""
    numbers: dict[Any, int] = {}
    ids = np.array([numbers.setdefault(signature, len(numbers)) for signature in signatures])
    runs = []
    for period in range(1, min(len(signatures) // 2, longest) + 1):
        same = np.diff(np.concatenate(([0], ids[:-period] == ids[period:], [0])).astype(np.int8))
        for start, end in zip(np.flatnonzero(same == 1).tolist(), np.flatnonzero(same == -1).tolist()):
            if end - start >= period:
                runs.append((start, end + period, period))
    return sorted(runs, key=lambda run: (run[0] - run[1], run[2]))


def segments_of(fused: Any, kinds: tuple[Any, ...], operations: int = OPERATIONS, least: int = 0) -> "Segments | None":
    """Return the segments of a queue's program; None if it has too few parts that repeat.

    kinds: JAX's x64 mode and the avals of the inputs.  operations: a group has so many.  least: so many need not be
    compiled, or it is not cut.
    """
    count = len(fused.programs)
    avals = _avals(fused, kinds) if count >= MIN_SAVED_ENTRIES else None
    if avals is None:
        return None
    cuts = _Cuts(fused, avals, operations)
    if cuts.saved_entries < MIN_SAVED_ENTRIES or cuts.saved_operations < least:
        return None
    return _cut(fused, sorted(cuts.places | {0, count}), avals)


def cut_at(fused: Any, kinds: tuple[Any, ...], bounds: list[int]) -> "Segments | None":
    """Return the segments of a queue's program between these entries; None if it cannot be cut."""
    avals = _avals(fused, kinds) if len(bounds) > 2 else None
    return None if avals is None else _cut(fused, bounds, avals)


class Segments:
    """The segments of one queue's program."""

    def __init__(self, parts: list[Segment], last: int) -> None:
        self.parts = parts
        self.last = last  # the number of the first of the last segments
        self.programs: list[Any] = [*{id(part.program): part.program for part in parts}.values()]

    def compile(self) -> None:
        """Compile the different programs at the same time."""
        compile_ahead((program.jitted, [one(), *program.structs]) for program in self.programs)

    def run(self, values: list[Any], live: tuple[int, ...]) -> tuple[list[Any], list[tuple[Any, ...]]]:
        """Run all but the last segments; return their live results, and the calls of the last: (function, *operands).

        values: the inputs of the queue.
        """
        found: dict[int, Any] = {}
        for program, inputs, outputs, free in self.parts[: self.last]:
            operands = [values[-c - 1] if c < 0 else found[c] for c in inputs]
            results = program.chosen(operands)(one(), *operands)
            found.update(zip(outputs, results))
            for code in free:
                del found[code]
            del operands, results
        calls = []
        for program, inputs, *_ in self.parts[self.last :]:
            operands = [values[-c - 1] if c < 0 else found[c] for c in inputs]
            calls.append((program.chosen(operands), one(), *operands))
        return [found[code] for code in live if code in found], calls

    def donated_inputs(self, count: int) -> set[int]:
        """Return the numbers of the queue's inputs whose memory the first `count` of the last segments may reuse."""
        ran = self.parts[self.last : self.last + count]
        return {-c - 1 for part in ran for i in part.program.donated if (c := part.inputs[i]) < 0}


def _avals(fused: Any, kinds: tuple[Any, ...]) -> dict[int, Any] | None:
    """Return the aval of each input and result by its code, and of each entry's operands; None if one is not known."""
    x64, *inputs = kinds
    avals: dict[Any, Any] = {-i - 1: aval for i, aval in enumerate(inputs)}

    def of(code: Any) -> Any:
        return tuple(map(of, code)) if code.__class__ is tuple else None if code is None else avals[code]

    for n, (program, codes) in enumerate(zip(fused.programs, fused.codes, strict=True)):
        key = (x64, *map(of, codes))
        out = program.avals.get(key) or avals_of(program, key)
        if out is AT_ONCE:
            return None
        avals["operands", n] = key
        avals.update(((n << 8) + i, aval) for i, aval in enumerate(out if out.__class__ is tuple else (out,)))
    return avals


def _results(n: int, avals: dict[Any, Any]) -> Iterator[int]:
    """Yield the codes of an entry's results."""
    return takewhile(avals.__contains__, range(n << 8, (n + 1) << 8))


class _Cuts:
    """The places at which a queue is cut."""

    def __init__(self, fused: Any, avals: dict[Any, Any], operations: int) -> None:
        self.fused, self.avals, self.operations = fused, avals, operations
        count = len(fused.programs)
        # Entries are alike if they call one program with operands of the same shapes, as many entries behind them.
        self.signatures = [
            (fused.programs[n], avals["operands", n], _distances(n, fused.codes[n])) for n in range(count)
        ]
        self.lasts: dict[int, int] = {code: n for n, codes in enumerate(fused.codes) for code in flat(codes)}
        self.lasts.update(dict.fromkeys(fused.live, count))
        self.operation_counts: dict[Any, tuple[int, bool]] = {}
        self.saved_entries = self.saved_operations = 0  # that are not compiled
        self.places: set[int] = self._between(0, count)

    def _between(self, start: int, end: int) -> set[int]:
        """Return the cuts between two entries: the longest run's, then cuts within its groups and around it."""
        tried: list[tuple[int, int]] = []
        for first, last, period in repeats(self.signatures[start:end], MAX_PERIOD):
            first, last = first + start, last + start
            if any(a <= first and last <= b for a, b in tried):  # the same with a multiple of the period
                continue
            tried.append((first, last))
            groups, operations = self._groups(first, last, period)
            if len(groups) < 3:
                continue
            self.saved_entries += groups[-1] - groups[1]
            self.saved_operations += operations * (groups[-1] - groups[1]) // period
            within = self._between(groups[0], groups[1]) if groups[1] - groups[0] > MIN_SAVED_ENTRIES else set()
            cuts = {*groups} | {cut - groups[0] + group for cut in within for group in groups[:-1]}
            return cuts | self._between(start, groups[0]) | self._between(groups[-1], end)
        return set()

    def _groups(self, start: int, end: int, period: int) -> tuple[list[int], int]:
        """Return the bounds of groups of whole periods of a run, and a period's operations, as `least` counts."""
        work = operations = 0
        alone = False
        across = np.zeros(end - start + 1, np.int64)  # bytes that pass each place, of what is not used after the run
        for n in range(start, end):
            for code in _results(n, self.avals):
                size = self.avals[code].size * self.avals[code].dtype.itemsize
                if n < start + period and self.fused.programs[n].role not in _SMALL:
                    work += size
                if n < (last := self.lasts.get(code, n)) < end:
                    across[n + 1 - start] += size
                    across[last + 1 - start] -= size
        for signature in self.signatures[start : start + period]:
            if signature not in self.operation_counts:
                self.operation_counts[signature] = _count_operations(*signature[:2])
            operations += self.operation_counts[signature][0]
            alone |= self.operation_counts[signature][1]
        most, enough = -(-self.operations // max(operations, 1)), -(-BYTES // max(work, 1)) if alone else end
        passing = np.cumsum(across)[period : 2 * period]  # seen from the second period, which has one before it
        first = start + int(np.argmin(passing))
        count, several = (end - first) // period, max(1, min(most, enough))
        if count > several:
            several = count // (count // several)  # so that few periods are left over
        return list(range(first, end + 1, several * period)), operations * (LONG if enough < most else 1)


def _distances(n: int, codes: Any) -> Any:
    """Return how far behind an entry its operands are; 0 for an input, and for what is farther than a few entries.

    The backward of a layer is far from its forward, and each layer's in another distance.
    """
    if codes.__class__ is tuple:
        return tuple([_distances(n, code) for code in codes])
    distance = 0 if codes is None or codes < 0 else (n << 8) - codes
    return None if codes is None else distance if distance < MAX_DISTANCE << 8 else 0


def _count_operations(program: Any, key: tuple[Any, ...]) -> tuple[int, bool]:
    """Return the number of operations of a program, and True if XLA does not fuse it with those around it."""

    def count(eqns: list[Any]) -> int:
        inner = (jax.tree.leaves(eqn.params.get(INNER)) for eqn in eqns)
        closed = jaxprs().ClosedJaxpr
        return sum(count(part[0].jaxpr.eqns) if part and isinstance(part[0], closed) else 1 for part in inner)

    eqns = getattr(program, "eqns", None) or jax.make_jaxpr(program.run)(*structs_of(key[1:])).jaxpr.eqns
    return count(eqns), any(map(ends_chain, eqns))


def _cut(fused: Any, bounds: list[int], avals: Any) -> Segments:
    """Make the segments between the bounds."""
    parts, programs = [], {}
    where = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)).tolist()
    users = {code: where[n] for n, codes in enumerate(fused.codes) for code in flat(codes)}  # the last segment of each
    live, given = frozenset(fused.live), {-i - 1 for i in fused.donated}
    results_of = [[code for n in range(*pair) for code in _results(n, avals)] for pair in pairwise(bounds)]
    last = len(bounds) - 2
    while last and all(users.get(code, 0) < last for code in results_of[last - 1]):
        last -= 1
    for number, (start, end) in enumerate(pairwise(bounds)):
        results = results_of[number]
        outputs = [code for code in results if code in live or users.get(code, number) > number]
        outputs.sort(key=lambda code: code not in fused.replaced)
        taken = dict.fromkeys(c for n in range(start, end) for c in flat(fused.codes[n]) if c < start << 8)
        first = [c for code in outputs if (c := fused.replaced.get(code)) in taken]  # JAX pairs memory in this order
        inputs = [*dict.fromkeys((*first, *taken))]
        free = [code for code in inputs if code >= 0 and code not in live and users[code] == number]
        may = [code for code in inputs if number >= last and code in given and users[code] == number]
        room, donated = Counter([avals[code] for code in outputs]), []
        for code in (*may, *free):
            if room[avals[code]] > 0:
                room[avals[code]] -= 1
                donated.append(inputs.index(code))
        names = {code: code - (start << 8) for code in results} | {code: -i - 1 for i, code in enumerate(inputs)}
        key = (
            fused.programs[start:end],
            tuple([renamed(codes, names) for codes in fused.codes[start:end]]),
            tuple([names[code] for code in outputs]),
            tuple(sorted(donated)),
            tuple([avals[code] for code in inputs]),
        )
        program = programs.get(key)
        if program is None:
            program = programs[key] = fused.__class__(*key[:4])
            program.structs = [aval.struct for aval in key[4]]
        parts.append(Segment(program, tuple(inputs), tuple(outputs), tuple(free)))
    return Segments(parts, last)
