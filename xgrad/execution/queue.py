"""Queue: collects the operations of a thread's lazy block (`xgrad.lazy`), and runs them, usually as one XLA program.

    note(program, operands)  ──►  entry (program, codes, place, results, line)      results: Pendings
    evaluate(reason)         ──►  one jitted function of the inputs, for what is alive

A code is the number of an operand: 256 * entry + result for a result of the queue, -1, -2, ... for an input (an array
or a number from outside), None for None, and a tuple for a tuple.  So programs and codes, what is alive, and the
inputs' avals are the key of the compiled function: the next step of a training loop traces and compiles nothing.

Alive is what something outside of the queue refers to when it is evaluated (references.py); the rest is not computed.
A large input that nothing else refers to any more, because a write replaced it, is donated if a result fits its memory
(`_donated`).  Operations on several devices run as a program for each, and parts that repeat as one program (`cut`).

Invariant: at each moment either the entries are queued and their inputs are there, or all results that are alive have
their values.  An interrupt between the two finds `done`, and what comes next finishes it.
"""

import sys
import threading
import time
from collections import Counter
from contextlib import nullcontext
from itertools import chain
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..base.dtypes import x64_enabled
from ..base.jax_compat import Tracer, in_trace
from ..base.limits import x64_for_now
from ..config import state
from .codes import shown
from .donation import copied, through_jax
from .failures import check, lose_some, one_by_one, settle_some
from .fused import programs
from .metrics import recorder
from .owned import lend
from .pending import Aval, Pending, aval_of, place_number, places, quietly
from .references import COUNTED, alive_of, attribute_alone, is_alone, is_deleted
from .scalars import operands_of
from .segments import segments_of
from .shapes import AT_ONCE, NUMBERS, aval_of_number, avals_of, kind_of
from .source import lines, outside

# Pending entries: a program of so many compiles in some seconds, by their number (execution/programs/chains.py).
MOST = 2_000
DONATE_FROM = 1 << 12  # bytes; for less, one program with donation and one without are not worth their compile time
_INT32, _INT64 = 1 << 31, 1 << 63
_frame = sys._getframe


def _is_shared(pending: Pending) -> bool:
    """Return True if something else may refer to the array of an input."""
    return not pending.owned or not attribute_alone(pending, "value")


def _one_place(a: int, b: int) -> int:
    """Return the place of a program with operands at these.  Raises `ValueError`, as JAX does, for two devices."""
    if a and b and a != b:
        raise ValueError(f"Received incompatible devices for jitted computation: {places[a]} and {places[b]}")
    return a or b


class Queue:
    """Pending programs of one thread."""

    fuse = True  # False: each program is launched by itself (separate.py)
    plain = True  # on a device of JAX's: shared arrays are copied to be donated
    most: int = MOST
    cut: Any = staticmethod(segments_of)  # parts that repeat compile once
    rules: Any = None  # of a declared backend: programs are its own

    def __init__(self) -> None:
        self.lock: Any = threading.RLock()  # another thread may ask for a value
        self.entries: list[tuple[Any, ...]] = []
        self.inputs: list[Any] = []
        self.kinds: list[Aval] = []  # of the inputs; shorter after an interrupt between the two
        self.known: dict[int, Any] = {}  # code, aval and place of an input by its identity
        self.writes: list[tuple[Any, ...]] = []  # what in-place writes replaced (rollback.py)
        self.thread: int = threading.get_ident()
        self.only_shapes: bool = False  # True if nothing ever runs (shapes_only.py)
        self.noting: bool = False
        self.running: bool = False
        self.taken: bool = False
        self.x64: bool = True  # JAX's mode when the first entry was noted: all are evaluated in it
        self.done: Any = None  # (results that are alive, their arrays) while they are given out
        # Rises with each note and evaluation.  A finalizer or a signal handler may use tensors in the middle of one,
        # which finds another number than before, and begins again.
        self.changes: int = 0

    # -- noting ---------------------------------------------------------------------------------------------------

    def note(self, program: Any, operands: Any, owners: Any = None) -> Any:
        """Note a call of `program`, and return what it will give: a Pending, or a tuple of them.

        Raises the program's error for operands that do not fit.  A program that cannot wait runs at once: one with an
        operand that is traced, or on several devices.
        """
        self.noting = True  # no lock: 0.7 of 6 µs.  Another thread that evaluates waits until it is False
        try:
            if self.taken or self.done is not None:
                self._wait()
            if self.running:  # a callback of the program that runs now
                return program.run(*map(quietly, operands))
            if not self.entries:
                self.x64 = x64_enabled()
            change = self.changes = self.changes + 1
            codes, key, place, foreign = [], [self.x64], 0, None
            for x in operands:
                if x.__class__ is Pending and x.queue is self:
                    codes.append(x.number)
                    key.append(x.aval)
                    if x.place and x.place != place:
                        place = _one_place(place, x.place)
                else:
                    if x.__class__ is Pending:
                        if x.value is None:
                            foreign = x
                            break
                    elif owners is not None and isinstance(x, jax.Array):
                        x = lend(x, owners[len(codes)])
                    code, aval, where = self.known.get(id(x)) or self._input(x)
                    if aval is AT_ONCE:
                        break
                    codes.append(code)
                    key.append(aval)
                    if where and where != place:
                        place = _one_place(place, where)
            else:
                avals = program.avals.get(key := tuple(key)) or avals_of(program, key)
                if avals is not AT_ONCE:
                    entries = self.entries
                    number = len(entries) << 8
                    if avals.__class__ is Aval:
                        out = Pending(self, number, avals)
                        if place:
                            out.place = place
                    else:
                        out = tuple([self._pending(number + i, aval, place) for i, aval in enumerate(avals)])
                    task = state.graph_task
                    if task is None or task.users_code:
                        line = outside(_frame(2))
                    elif (line := task.line) is None:  # the engine's own programs: one line for all
                        line = task.line = outside(_frame(2))
                    entry = program, tuple(codes), place, out, line
                    if self.changes != change:
                        return self.note(program, operands, owners)
                    entries.append(entry)  # nothing was called since the comparison
                    if number >= self.most << 8:
                        self.noting = False  # another thread, which has the lock, may wait for that
                        self.evaluate(f"{self.most} pending operations")
                    return out
        finally:
            self.noting = False
        if foreign is not None:  # not before: this queue can be evaluated now too, so threads don't wait for each other
            foreign.evaluated("another thread")
            return self.note(program, operands, owners)
        return program.run(*map(quietly, operands))

    def writing(self, program_of: Any) -> Any:
        """Return the program to note for a write: `program_of(False)`, which takes no operand's memory."""
        return program_of(False)

    def _pending(self, number: int, aval: Aval, place: int) -> Pending:
        p = Pending(self, number, aval)
        p.place = place
        return p

    def _wait(self) -> None:
        """Wait for another thread that evaluates the queue; finish an evaluation that was interrupted."""
        self.noting = False
        with self.lock:
            if self.done is not None and not self.running:
                self._finish()
            self.noting = True

    def _input(self, x: Any) -> tuple[Any, Any, int]:
        """Return code, aval and place of an operand from outside; make it an input."""
        kind = x.__class__
        seen = self.known.get(id(x))
        if seen is not None:
            return seen
        if kind is Pending:
            if x.value is None:  # in a tuple, of another thread's queue
                return None, AT_ONCE, 0
            seen = self.known.get(id(x.value))
            if seen is not None:  # a view has read this array, before an operator took it over from its tensor
                self.inputs[-seen[0] - 1] = x
                self.known[id(x)] = seen
                return seen
            return self._remember(x, x.aval, x.place)
        if kind in NUMBERS:
            if kind is int and not -_INT32 <= x < _INT32 and not (x64_enabled() and -_INT64 <= x < _INT64):
                raise OverflowError(f"An overflow was encountered: an argument to a jitted computation is {x}")
            return self._enter(x, aval_of_number(kind, x64_enabled()))
        if x is None:
            return None, None, 0
        if kind is tuple:
            parts = [
                (part.number, part.aval, part.place) if part.__class__ is Pending and part.queue is self
                else self._input(part) for part in x
            ]  # fmt: skip
            place = 0
            for _, aval, where in parts:
                if aval is AT_ONCE:
                    return None, AT_ONCE, 0
                if where and where != place:
                    place = _one_place(place, where)
            return tuple([p[0] for p in parts]), tuple([p[1] for p in parts]), place
        if isinstance(x, Tracer):
            return None, AT_ONCE, 0
        if isinstance(x, jax.Array):
            sharding = x.sharding
            if sharding.__class__ is not SingleDeviceSharding or is_deleted(x):
                return None, AT_ONCE, 0
            where = place_number(sharding) if x.committed else 0
            return self._remember(x, aval_of(x.shape, x.dtype, x.aval.weak_type), where)
        if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind not in "OSUMm":
            dtype = np.dtype(jax.dtypes.canonicalize_dtype(x.dtype))
            return self._enter(np.array(x), aval_of(x.shape, dtype, False))  # the caller may write into it
        return None, AT_ONCE, 0

    def _enter(self, x: Any, aval: Aval, place: int = 0) -> tuple[int, Aval, int]:
        inputs, kinds = self.inputs, self.kinds
        inputs.append(x)
        number = len(inputs)
        while inputs[number - 1] is not x:  # a finalizer has used tensors
            number -= 1
        kinds.insert(number - 1, aval)
        return -number, aval, place

    def _remember(self, x: Any, aval: Aval, place: int) -> tuple[int, Aval, int]:
        known = self.known
        seen = known[id(x)] = self._enter(x, aval, place)
        return seen

    # -- noting again what was noted before (engine/transcript.py) --------------------------------------------------

    def named(self, x: Any) -> tuple[Any, ...] | None:
        """Return code, aval and place of an array from outside, made an input; None if it is not an array."""
        if x.__class__ is Pending or isinstance(x, jax.Array):
            found = self._input(x)
            return None if found[1] is AT_ONCE else found
        return None

    def code(self, x: Any) -> Any:
        """Return the code of an operand: for an integer its type and value."""
        if x.__class__ is Pending and x.queue is self:
            return x.number
        if x.__class__ in (int, bool):
            return x.__class__, x
        return self.known.get(id(x), (None,))[0]

    def result(self, code: int | None) -> Any:
        """Return the pending result that has this code."""
        if code is None:
            return None
        results = self.entries[code >> 8][3]
        return results[code & 255] if results.__class__ is tuple else results

    def extend(self, entries: list[Any], inputs: list[Any], kinds: list[Any], start: int, first: int) -> bool:
        """Append entries and their inputs; False, and nothing, unless there are `start` and `first` of them now."""
        self.noting = True
        try:
            if self.taken or self.done is not None:
                self._wait()
            mine, given = self.entries, self.inputs
            if self.running or len(mine) != start or len(given) != first or len(self.kinds) != first:
                return False
            change = self.changes = self.changes + 1
            given += inputs
            self.kinds += kinds
            if self.changes != change:
                return False
            mine += entries
            return True
        finally:
            self.noting = False

    # -- evaluation -----------------------------------------------------------------------------------------------

    def evaluate(self, reason: str, asked: Pending | None = None) -> None:
        """Run what is pending and alive; `reason` and the line that asked are counted.

        Raises the error of the operator that failed, which the error names with the line that noted it; all that does
        not depend on it has its value then.
        """
        own = threading.get_ident() == self.thread
        if own:
            self.noting = False  # a signal handler may come in the middle of `note`, which begins again
        with self.lock:
            if not own:
                self.taken = True  # before the test of `noting`, as `note` sets that before it reads this
            try:
                while self.taken and self.noting:
                    time.sleep(0)
                if self.running:
                    raise RuntimeError(
                        "a callback, a finalizer or a signal handler reads a value of the lazy program that is being "
                        "compiled or runs now"
                    )
                if self.done is not None:
                    self._finish()
                if not self.entries or (asked is not None and asked.queue is not self):
                    return
                line = outside(_frame(1))
                as_noted = nullcontext() if self.x64 is x64_enabled() else x64_for_now(self.x64)
                # In a user's trace only: constants are computed in a trace then, which jax 0.7 has no rule for (scan).
                with jax.ensure_compile_time_eval() if in_trace() else nullcontext(), as_noted:
                    self._evaluate(reason, line)
            finally:
                self.taken = False

    def _evaluate(self, reason: str, line: Any) -> None:
        entries, inputs, change = self.entries, self.inputs, self.changes
        if not entries:
            return
        called, codes, where, results, noted = zip(*entries)
        live, alive = alive_of(results)
        one = self._together(where)
        donated = self._donated(alive) if one and COUNTED and live else ()
        fused = None
        if live:
            kinds = self.kinds if len(self.kinds) == len(inputs) else map(kind_of, inputs)
            # Another x64 mode makes other dtypes of the same operations.
            key = called, codes, live, donated, (x64_enabled(), *kinds), self.rules if one else where
            fused = programs.find(key, line, self.cut if one else None)
            fused.lines = noted
        del results
        started, spare, out = recorder.start(), [], []
        if self.changes != change:
            return self._evaluate(reason, line)
        self.done, self.running = (alive, out), True  # and no call before the block
        try:
            if fused is not None:
                for i in donated:
                    if _is_shared(inputs[i]):
                        (inputs[i].value,) = copied([inputs[i].value])
                        inputs[i].owned = True
                values = operands_of(inputs, self.x64)
                if not one:
                    self._by_place(fused, where, values, out)
                else:
                    first = not fused.ran
                    self._run(fused, values, out, spare)
                    values = None
                    if first:
                        check(alive, out)
        except BaseException as error:
            if fused is not None and len(out) < (fused.lists if one else 1):
                self.done, self.running = None, False
                given = [*out]
                out.clear()
                if len(given) > 1:
                    settle_some(self, fused, alive, given, error)
                if through_jax(error):
                    programs.forget(fused)  # JAX would run it through Python from now on
                for i, array in zip(donated, spare):
                    inputs[i].value = array
                if isinstance(error, Exception):
                    lose_some(self, error)
                    self._one_by_one(error)
                raise
            raise
        finally:
            self.running = False
            if out:
                self._finish()
        if fused is None:
            self._finish()
        recorder.launched(len(entries), fused.launches if fused is not None else 0, reason, line, started)

    def _together(self, where: tuple[int, ...]) -> bool:
        """Return True if entries at these places are one program: with one device only it makes no difference."""
        return len(set(where)) == 1 or jax.device_count() == 1

    def _donated(self, alive: list[Any]) -> tuple[int, ...]:
        """Return the inputs that nothing else refers to and whose memory a result can have.

        An array that something else refers to (a deep copy, NumPy) is copied before the program runs.  The array
        of the next step is not shared, and would need another program.
        """
        room: Counter[Aval] | None = None
        chosen = []
        inputs = self.inputs
        for i in range(len(inputs)):
            if (
                inputs[i].__class__ is Pending
                and is_alone(inputs, i)
                and inputs[i].nbytes >= DONATE_FROM
                and (self.plain or not _is_shared(inputs[i]))
            ):
                if room is None:
                    room = Counter([p.aval for p in alive])
                if room[inputs[i].aval] > 0:
                    room[inputs[i].aval] -= 1
                    chosen.append(i)
        # JAX looks at the results, and raises: then the operands are still needed.
        config: Any = jax.config  # its options are made at run time
        return () if chosen and (config.jax_debug_nans or config.jax_debug_infs) else tuple(chosen)

    def _by_place(self, fused: Any, where: tuple[int, ...], values: list[Any], out: list[Any]) -> None:
        """Run one program for each device: first what is committed to none."""
        found: dict[int, Any] = {}
        for place in sorted(set(where)):
            fused.run_part(place, where, values, found)
        out.append([found[number] for number in fused.live])

    def _run(self, fused: Any, values: list[Any], out: list[Any], spare: list[Any]) -> None:
        """Run the program of all entries."""
        fused.run(values, out, spare)

    def run_entry(self, program: Any, operands: list[Any]) -> Any:
        """Run the program of one entry."""
        return program.run(*operands)

    def _one_by_one(self, failure: Exception) -> None:
        """Run each entry for itself after the whole has failed, and raise the error of the one that fails."""
        one_by_one(self)

    def _finish(self) -> None:
        """Give the results their values, and empty the queue.  An interrupt may come at any call: it is repeated."""
        alive, out = self.done
        for p, array in zip(alive, chain.from_iterable(out)):
            p.value, p.queue = array, None
        self.drop()

    def drop(self) -> None:
        entries, inputs, kinds, known = [], [], [], {}
        self.entries, self.inputs, self.kinds, self.known, self.done = entries, inputs, kinds, known, None
        self.writes = []
        self.changes += 1

    # -- telling --------------------------------------------------------------------------------------------------

    def as_text(self) -> str:
        """Return what is pending, a line for each operation: number, operator, operands, results, source line."""
        with self.lock:
            rows = []
            for n, (program, codes, _, results, line) in enumerate(self.entries):
                found = results if results.__class__ is tuple else (results,)
                avals = ", ".join(repr(p.aval) for p in found)
                rows.append(f"%{n} = {program.name}({', '.join(map(shown, codes))}) : {avals}  # {lines(line)}")
            return "\n".join(rows)
