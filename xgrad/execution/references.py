"""Counts the references to arrays, so that no program takes memory that others use; finds deleted arrays.

No other module of the package counts references or asks arrays for `is_deleted`.  The counts at rest are measured once,
by the expressions that are compared with them: they differ between releases of Python.
"""

import sys
from collections.abc import Iterable
from typing import Any

# Without a global lock a count may be old when it is used: then nothing is alone.
COUNTED: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


def is_alone(values: list[Any], index: int = 0) -> bool:
    """Return True if only that list refers to `values[index]`, so that a program may take its memory."""
    return sys.getrefcount(values[index]) <= _ALONE


def all_alone(values: list[Any]) -> bool:
    """Return True if only that list refers to each of its items."""
    return not referred(values)


def each_alone(values: list[Any]) -> list[bool]:
    """Return for each item True if only that list refers to it."""
    return [count <= _EACH for count in map(sys.getrefcount, values)]


def referred(values: list[Any]) -> bool:
    """Return True if something besides that list refers to one of its items."""
    return max(map(sys.getrefcount, values), default=0) > _EACH


def attribute_alone(holder: Any, name: str) -> bool:
    """Return True if only that attribute refers to its value."""
    return sys.getrefcount(getattr(holder, name)) <= _ATTRIBUTE


def references(holder: Any) -> int:
    """Return the count of references to an object, to be compared with what this call gave in the same place before."""
    return sys.getrefcount(holder)


def alive_of(results: tuple[Any, ...], counts: tuple[int, int] | None = None) -> tuple[tuple[int, ...], list[Any]]:
    """Return the codes of the results of a queue that something beside their entry refers to, and these results.

    A code is 256 * entry + result (queue.py).

    `counts`: the reference counts, seen here, of a result that nothing else refers to, alone and in a tuple.
    """
    count = sys.getrefcount
    at_rest, at_rest_in_tuple = counts or _RESULTS
    live, alive = [], []
    number = 0
    for p in results:
        if p.__class__ is tuple:
            held = count(p) > at_rest  # a reference to the tuple keeps its parts alive without raising their counts
            for i, part in enumerate(p):
                if held or count(part) > at_rest_in_tuple:
                    live.append(number + i)
                    alive.append(part)
        elif count(p) > at_rest:
            live.append(number)
            alive.append(p)
        number += 256
    return tuple(live), alive


def is_deleted(array: Any) -> bool:
    """Return True for an array whose memory was given away; False for any other object."""
    asked = getattr(array, "is_deleted", None)
    return asked is not None and asked()


def deleted(arrays: Iterable[Any]) -> list[Any]:
    """Return the arrays that are deleted."""
    return [array for array in arrays if is_deleted(array)]


class _Holder:
    value: Any = None


def _in_list(values: list[Any], index: int) -> int:
    return sys.getrefcount(values[index])


def _in_attribute(holder: Any, name: str) -> int:
    return sys.getrefcount(getattr(holder, name))


def _measured() -> tuple[int, int, int, tuple[int, int]]:
    """Return the counts at rest: of an item of a list, one by one and all at once, of an attribute, and of results."""
    holder = _Holder()
    holder.value = object()
    entries = [(0, _Holder()), (0, (_Holder(), _Holder()))]
    _, results = zip(*entries)
    counts = range(1, 20)
    alone = next(n for n in counts if 0 not in alive_of(results, (n, 99))[0])
    in_tuple = next(n for n in counts if not alive_of(results, (99, n))[0])
    each = max(map(sys.getrefcount, [object()]))
    return _in_list([object()], 0), each, _in_attribute(holder, "value"), (alone, in_tuple)


_trace: Any = sys.gettrace()
sys.settrace(None)  # a debugger's references would raise the counts at rest, and live results would be taken for dead
try:
    _ALONE, _EACH, _ATTRIBUTE, _RESULTS = _measured()
finally:
    sys.settrace(_trace)
if not COUNTED:
    _ALONE, _EACH, _ATTRIBUTE, _RESULTS = 0, 0, 0, (0, 0)
