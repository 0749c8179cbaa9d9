"""Recovers when an `xgrad.lazy` block's program fails: finds the failing operation, and restores replaced arrays.

queue.py calls these when the whole program failed, or some of its last segments did.
"""

from itertools import chain
from typing import Any

from ..base.limits import out_of_memory
from .codes import operand_of
from .donation import lost
from .pending import Pending, give_up
from .references import is_deleted
from .rollback import put_back
from .source import lines


def one_by_one(queue: Any) -> None:
    """Run each entry for itself after the whole has failed, which finds the one that fails.

    Raises its error.  Entries that do not depend on it have their values then; the others are dropped, and what
    they were to replace is there again.
    """
    found: dict[int, Any] = {}
    first: Any = None
    values = [x.value if x.__class__ is Pending else x for x in queue.inputs]
    for n, (program, codes, _, results, line) in enumerate(queue.entries):
        try:
            operands = [operand_of(code, values, found) for code in codes]
        except KeyError:  # it depends on the one that failed
            give_up(results)
            continue
        try:
            out = queue.run_entry(program, operands)
        except Exception as error:
            give_up(results)
            if first is None:
                first = error, program, line
            continue
        outs = out if out.__class__ is tuple else (out,)
        found.update(((n << 8) + i, o) for i, o in enumerate(outs))
        for p, o in zip(results if results.__class__ is tuple else (results,), outs):
            if p.queue is queue:  # else it is a result in a transcript
                p.value, p.queue = o, None
    put_back(queue, found)
    if first is not None:
        failed, program, line = first
        error = out_of_memory(failed) or failed
        error.add_note(f"{program.name}, noted at {lines(line)}, failed when the lazy block's operations ran")
        raise error


def lose_some(queue: Any, failure: Exception) -> None:
    """If the program took the memory of inputs and failed, give up all its results, and raise the error that says so.

    What else was to be written has its old value again.
    """
    gone = _lost_of(queue.inputs)
    if gone:
        for *_, results, _ in queue.entries:
            give_up(results)
        put_back(queue, {})
        raise lost(gone, "a lazy program", "Evaluate more often: xgrad.sync()") from failure


def _lost_of(inputs: list[Any]) -> list[Any]:
    """Return the arrays of inputs that are deleted, and leave those inputs without a value."""
    found = [x for x in inputs if x.__class__ is Pending and is_deleted(x.value)]
    gone = [x.value for x in found]
    for x in found:
        x.value = None
    return gone


def settle_some(queue: Any, fused: Any, alive: list[Pending], given: list[Any], failure: BaseException) -> None:
    """Settle what the last segments gave before one failed, give up the others' results, and raise the error."""
    arrays = [*chain.from_iterable(given)]
    taken = fused.segments.donated_inputs(len(given) - 1)
    inputs = [x for i, x in enumerate(queue.inputs) if i not in taken]
    for p, array in zip(alive, arrays):
        p.value, p.queue = array, None
    for p in alive[len(arrays) :]:
        p.queue = None
    put_back(queue, dict(zip(fused.live, arrays)))
    if gone := _lost_of(inputs):
        raise lost(gone, "a lazy program", "Evaluate more often: xgrad.sync()") from failure
    error = out_of_memory(failure) or failure
    error.add_note(f"{len(arrays)} of the {len(alive)} results of the lazy program had their values before")
    raise error


def check(alive: list[Pending], out: list[Any]) -> None:
    """Raise `RuntimeError` if a program's results are not what was promised when its operations were noted."""
    for p, array in zip(alive, chain.from_iterable(out)):
        if array.shape != p.shape or array.dtype != p.dtype:
            out.clear()
            raise RuntimeError(
                f"a pending {p.aval!r} turned out to be {array.dtype.name}{list(array.shape)}: a setting of JAX's was "
                "switched while operations were pending. Call xgrad.sync() before."
            )
