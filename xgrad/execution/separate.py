"""Separate: the queue of `xgrad.lazy(fuse=False)`, which compiles its programs in parallel and launches each by itself.

These are the programs of eager mode: the results are equal to the last bit, and eager steps afterwards compile nothing.
A backward and an optimizer's step need values, and so evaluate the queue and run at once; they compile their own
programs in parallel (engine/programs/ahead.py).
"""

from collections import Counter
from typing import Any

import jax

from .codes import flat, operand_of
from .donation import copied
from .metrics import recorder
from .pending import Pending, places
from .programs.ahead import compile_ahead, kind_of
from .queue import Queue
from .references import alive_of
from .scalars import operands_of
from .source import lines

_MOST = 1 << 14
_ready: set[Any] = set()  # programs, each with the kinds of operands that it was compiled for


class Separate(Queue):
    """Pending programs of one thread, which run as they are."""

    fuse = False

    def __init__(self) -> None:
        super().__init__()
        self.donating: dict[Any, Any] = {}  # {program of a write: the one that takes its first operand's memory}

    def writing(self, program_of: Any) -> Any:
        program = super().writing(program_of)
        self.donating[program] = program_of(True)
        return program

    def _evaluate(self, reason: str, line: Any) -> None:
        entries, change, started = self.entries, self.changes, recorder.start()
        if not entries:
            return
        recorder.in_threads(lambda: self._compile(lines(line)))
        _, _, _, results, _ = zip(*entries)
        live, alive = alive_of(results)
        del results
        if self.changes != change:  # a finalizer has noted something meanwhile
            return self._evaluate(reason, line)
        out: list[list[Any]] = []
        self.done, self.running = (alive, out), True
        try:
            out.append(self._launch(live))
        except BaseException as error:
            self.done, self.running = None, False
            if isinstance(error, Exception):
                self._one_by_one(error)
            raise
        finally:
            self.running = False
            if out:
                self._finish()
        recorder.launched(len(entries), len(entries), reason, line, started)

    def _compile(self, line: str) -> None:
        new = {}
        for program, codes, *_ in self.entries:
            operands = [self._struct(code) for code in codes]
            kind = program, kind_of(tuple(operands))
            if kind not in _ready:
                new[kind] = self.donating.get(program) or program.alone_for(operands), operands
        if new:
            recorder.new(f"{len(new)} programs of one operation each", line, False)
            compile_ahead(new.values())
            if len(_ready) > _MOST:
                _ready.clear()
            _ready.update(new)

    def _launch(self, live: tuple[int, ...]) -> list[Any]:
        """Run the entries one after the other; return the results that are alive.  Each array is dropped after its
        last use."""
        uses = Counter(live)
        for _, codes, *_ in self.entries:
            uses.update(flat(codes))
        values, found = operands_of(self.inputs, self.x64), {}
        for n, (program, codes, *_) in enumerate(self.entries):
            out = self.run_entry(program, [operand_of(code, values, found) for code in codes])
            outs = out if out.__class__ is tuple else (out,)
            found.update(((n << 8) + i, o) for i, o in enumerate(outs) if uses[(n << 8) + i])
            for code in flat(codes):
                uses[code] -= 1
                if not uses[code]:
                    found.pop(code, None)
        return [found[code] for code in live]

    def run_entry(self, program: Any, operands: list[Any]) -> Any:
        writing = self.donating.get(program)
        if writing is None:
            return program.alone_for(operands)(*operands)
        # Eager mode's program takes the memory of what it writes, and an entry may have to run again.
        return writing(*copied(operands[:1]), *operands[1:])

    def _struct(self, code: Any) -> Any:
        """Return an operand for which a program is compiled."""
        if code.__class__ is tuple:
            return tuple(map(self._struct, code))
        if code is None:
            return None
        x = self.result(code) if code >= 0 else self.inputs[-code - 1]
        if x.__class__ is not Pending:
            return x
        if not x.place:
            return x.aval.struct
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=x.weak_type, sharding=places[x.place])
