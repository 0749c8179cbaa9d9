"""Puts back the values that in-place writes of a lazy block replaced, if the new values are never computed.

Invariant: a tensor whose write was not recorded has its old value back, as if the write had failed at its call.
If that value was not computed either, it is queued again if it was made of numbers alone (`zeros`: an optimizer's first
state).  A tensor whose write was recorded does not get it back: its history belongs to the new value.
"""

import weakref
from typing import Any

from ..config import state
from .pending import Pending
from .shapes import NUMBERS


def replaces(new: Any, old: Any, holder: Any, owner: Any) -> None:
    """Note that `new` stands in place of the array `old` in `holder`, a tensor or a storage.

    `owner`: the tensor that the history of the write belongs to, if it has one.  The queue refers to `old` by its code:
    another reference would keep its memory from the result.
    """
    if new.__class__ is not Pending:
        return
    queue = new.queue
    if queue is None:
        return
    entries = queue.entries  # before the next line: if another thread evaluates in between, this is a list of the past
    if new.queue is None:
        return
    if old.__class__ is Pending and old.queue is queue:
        code, old = old.number, None
    else:
        seen = queue.known.get(id(old))
        code, old = (None, old) if seen is None else (seen[0], None)
    ref = weakref.ref
    queue.writes.append((entries, new.number, code, old, ref(holder), ref(owner), state.grad_enabled))


def put_back(queue: Any, found: dict[int, Any]) -> None:
    """Give each holder of a value that was not computed what it had before; empty the queue.

    `found`: what was computed, by code.
    """
    entries, inputs = queue.entries, queue.inputs
    kept: dict[int, Any] = {}  # by holder: what it had before the first write that failed, and the last one's result
    of_numbers: dict[int, Any] = {}  # by result: entries that need nothing else, which were not computed
    for stamp, number, code, old, holder, owner, grad_enabled in queue.writes:
        holder, owner = holder(), owner()
        if stamp is not entries or holder is None:
            continue
        if number in found:
            kept.pop(id(holder), None)
            continue
        recorded = grad_enabled and owner is not None and owner._grad_fn is not None
        if id(holder) in kept:
            _, old, before, _ = kept[id(holder)]
            recorded = recorded or before
        elif code is not None:
            old = inputs[-code - 1] if code < 0 else queue.result(code) if code in found else None
            if old is None and code >= 0 and _of_numbers(queue, entry := entries[code >> 8]):
                old = entry[3]
                of_numbers[id(old)] = entry
        kept[id(holder)] = holder, old, recorded, queue.result(number)
    again: dict[int, Any] = {}  # by result: entries that are to be noted again
    for holder, old, recorded, new in kept.values():
        if old is not None and not recorded:
            _put(holder, old, new)
            if id(old) in of_numbers:
                again[id(old)] = of_numbers[id(old)]
    queue.drop()
    for program, codes, _, old, line in again.values():
        new = queue.note(program, [inputs[-code - 1] for code in codes])
        if new.__class__ is Pending and new.queue is queue:
            old.queue, old.number = queue, new.number
            queue.entries[-1] = (*queue.entries[-1][:3], old, line)


def _of_numbers(queue: Any, entry: tuple[Any, ...]) -> bool:
    """Return True for an entry with one result, which is of numbers alone."""
    _, codes, _, results, _ = entry
    return results.__class__ is Pending and all(
        code.__class__ is int and code < 0 and queue.inputs[-code - 1].__class__ in NUMBERS for code in codes
    )


def _put(holder: Any, old: Any, new: Pending) -> None:
    owned = old.__class__ is Pending and old.owned
    storage = getattr(holder, "_storage", None)  # a tensor that a view was taken of since has one
    if storage is not None:
        holder = storage
    if holder._array is new:
        holder._array, holder._owned = old, owned
        _age(holder)
    elif holder._array is None:
        new.instead = old  # a write has taken it out of its holder: it ends with this evaluation's error


def put_into(box: list[Any], holder: Any) -> None:
    """Give a write that ends with an error, and has taken a value that was not computed, what that had replaced."""
    if box[0].__class__ is Pending and box[0].instead is not None:
        old = box[0].instead
        box[0], holder._owned = old, old.__class__ is Pending and old.owned
        _age(holder)


def _age(holder: Any) -> None:
    """See that views which have read the value that was to come read again."""
    if hasattr(holder, "generation"):
        holder.generation += 1
