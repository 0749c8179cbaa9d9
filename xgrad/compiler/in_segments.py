"""in_segments: runs a compiled program in parts where its operations repeat, so that each part compiles once.

The layers of a deep model, their backward and their updates repeat, and XLA's time grows with their number.
They are cut as the program of an `xgrad.lazy` block is (execution/segments.py): the entries of its queue are here the
equations of the traced program.  A program that compiles soon stays whole: XLA computes nothing twice in it.  So does
one for a TPU or a GPU, where what parts give each other goes through memory: a GPT of 8 layers in parts compiles for
a TPU v5e in 14 s in place of 34, but its steps would take 1.8 times as long, as the compiler estimates.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, starmap
from operator import call, itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base.dtypes import x64_enabled
from ..base.jax_compat import NAME, Tracer, caches, jaxprs
from ..base.platforms import default_platform
from ..execution.donation import besides
from ..execution.fused import Fused
from ..execution.pending import Aval, aval_of
from ..execution.programs.parts import values_of
from ..execution.scalars import one
from ..execution.segments import MIN_SAVED_ENTRIES, Segments, segments_of
from ..execution.shapes import MOST_RESULTS

OPERATIONS = 1024  # of a part
SAVED = 8192  # operations that need not be compiled, so that cutting pays


class _Operation:
    """The operation of equations that differ in their variables only: a program of a queue."""

    role = ""
    options = None

    def __init__(self, eqn: Any, operands: list[Any], jaxpr: Any, consts: dict[Any, Any]) -> None:
        known = [v for v in dict.fromkeys(values_of(eqn.invars)) if v in consts]
        core, alone = jaxprs(), jaxpr.replace(constvars=known, invars=operands, outvars=eqn.outvars, eqns=[eqn])
        self._function = core.jaxpr_as_fun(core.ClosedJaxpr(alone, [consts[v] for v in known]))
        self.eqns: list[Any] = [eqn]
        self.name: str = eqn.params.get(NAME, eqn.primitive.name)
        key = x64_enabled(), *map(_aval, operands)
        self.avals: dict[Any, Any] = {key: tuple(map(_aval, eqn.outvars))}

    def run(self, *operands: Any) -> tuple[Any, ...]:
        return tuple(self._function(*operands))


def _aval(variable: Any) -> Aval:
    aval = variable.aval
    return aval_of(aval.shape, aval.dtype, aval.weak_type)


class _Part(Fused):
    name = "compiled_part"


class InSegments:
    """A compiled program in parts: a function of its operands."""

    def __init__(self, segments: Segments, live: tuple[int, ...], results: list[int]) -> None:
        self._segments, self._live = segments, live
        last = {code: None for part in segments.parts[segments.last :] for code in part.outputs}
        found = {code: place for place, code in enumerate([*(c for c in live if c not in last), *last])}
        places = [found[code] for code in results]
        self._in_order: Any = itemgetter(*places) if places[1:] else itemgetter(slice(places[0], places[0] + 1))
        self._compiled = False
        self._ran: set[Any] = set()

    def has_run(self, operands: list[Any]) -> bool:
        """Return True if it ran with operands on these devices: then no Python code of JAX's runs in its parts."""
        return (caches(), _places(operands)) in self._ran

    def note_run(self, operands: list[Any]) -> None:
        """Note that it has run with these operands."""
        self._ran.add((caches(), _places(operands)))

    def besides(self) -> int:
        """Return the bytes that the last parts need besides their operands."""
        last = [part.program for part in self._segments.parts[self._segments.last :]]
        needs = {program: besides(program.jitted.lower(one(), *program.structs).compile()) for program in {*last}}
        return sum(map(needs.__getitem__, last))

    def begin(self, operands: list[Any]) -> Iterator[Sequence[Any]]:
        """Run all parts but the last ones, which may donate operands.

        Returns an iterator that runs these and gives the results, in C: no interrupt can lose them.
        """
        if not self._compiled and not any(isinstance(x, Tracer) for x in operands):
            if not _places(operands):
                self._segments.compile()
            self._compiled = True
        before, calls = self._segments.run(operands, self._live)
        return map(self._in_order, map(list, [chain.from_iterable(chain((before,), starmap(call, calls)))]))

    def __call__(self, *operands: Any) -> Sequence[Any]:
        return next(self.begin([*operands]))


def _places(operands: list[Any]) -> Any:
    """Return on which devices operands have to be: none of them if all could be elsewhere."""
    places = [x.sharding if getattr(x, "committed", False) else None for x in operands]
    return tuple(places) if any(places) else ()


def in_segments(closed: Any, donated: dict[int, int]) -> InSegments | None:
    """Return a traced program in parts; None if it stays whole.

    `donated`: the places of operands that it donates, each with the number of the result that gets the memory.
    It stays whole if cutting would not pay, or would take the memory that donating saves: what is written before the
    last parts run has to live on until then (execution/segments.py).
    """
    short = len(closed.jaxpr.eqns) <= MIN_SAVED_ENTRIES
    queue = None if short or closed.jaxpr.effects or default_platform() != "cpu" else _queue(closed)
    if queue is None:
        return None
    programs, codes, results, avals = queue
    whole = _Part(programs, codes, tuple(sorted({*results})), tuple(donated))
    whole.replaced = {results[number]: -place - 1 for place, number in donated.items()}
    segments = segments_of(whole, (x64_enabled(), *avals), OPERATIONS, SAVED)
    if segments is None:
        return None
    reused = segments.donated_inputs(len(segments.parts))
    sizes = {i: avals[i].size * avals[i].dtype.itemsize for i in donated}
    lost = sum(size for i, size in sizes.items() if i not in reused)
    return None if lost > sum(sizes.values()) / 16 else InSegments(segments, whole.live, results)


def _queue(closed: Any) -> tuple[tuple[_Operation, ...], Any, list[int], list[Aval]] | None:
    """Return the equations as programs and operand codes of a queue, the results' codes, and the operands' avals."""
    jaxpr = closed.jaxpr
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    codes = {v: -i - 1 for i, v in enumerate(jaxpr.invars)}
    operations: dict[Any, _Operation] = {}
    programs, taken = [], []
    for n, eqn in enumerate(jaxpr.eqns):
        operands = [v for v in dict.fromkeys(values_of(eqn.invars)) if v not in consts]
        kind = _kind(eqn, operands, consts)
        if kind not in operations:
            operations[kind] = _Operation(eqn, operands, jaxpr, consts)
        programs.append(operations[kind])
        taken.append(tuple([codes[v] for v in operands]))
        codes.update((v, (n << 8) + i) for i, v in enumerate(eqn.outvars))
    results = [codes.get(v, -1) for v in values_of(jaxpr.outvars)]
    if len(results) < max(1, len(jaxpr.outvars)) or min(results) < 0:  # a constant or an operand is a result
        return None
    if any(len(eqn.outvars) > MOST_RESULTS for eqn in jaxpr.eqns):
        return None
    return tuple(programs), tuple(taken), results, [*map(_aval, jaxpr.invars)]


def _kind(eqn: Any, operands: list[Any], consts: dict[Any, Any]) -> Any:
    """Return a key of an equation's operation, its parameters, constants and the settings around it."""

    def part(atom: Any) -> Any:
        is_literal = isinstance(atom, literal)
        if not is_literal and atom not in consts:
            return places[atom]
        value = atom.val if is_literal else consts[atom]
        is_key = jnp.issubdtype(atom.aval.dtype, jax.dtypes.extended)
        return _aval(atom), id(value) if is_key else np.asarray(value).tobytes()

    literal, places = jaxprs().Literal, {v: place for place, v in enumerate(operands)}

    parameters = tuple([(name, _hashable(value)) for name, value in sorted(eqn.params.items())])
    return eqn.primitive, tuple(map(part, eqn.invars)), parameters, repr(eqn.ctx)


def _hashable(value: Any) -> Any:
    """Return a parameter, or what identifies one that cannot be hashed: it lives as long as the program."""
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return value
