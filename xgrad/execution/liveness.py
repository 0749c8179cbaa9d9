"""alive: the pending results that something beside their queue refers to, by reference counts.

The counts at rest are measured once, by the code that reads them: they differ between releases of Python.
"""

import sys
from typing import Any

import numpy as np

from .pending import Pending, aval_of


class References:
    """Reference counts of an object that only a list, a slot or an entry refers to."""

    @staticmethod
    def in_list(values: list[Any], index: int) -> int:
        return sys.getrefcount(values[index])

    @staticmethod
    def in_slot(pending: Pending) -> int:
        return sys.getrefcount(pending.value)


def alive_of(results: tuple[Any, ...], at_rest: int, at_rest_in_tuple: int) -> tuple[tuple[int, ...], list[Pending]]:
    """Return the numbers of the results that something beside their entry refers to, and these results.

    `at_rest`, `at_rest_in_tuple`: the reference counts, seen here, of a result that nothing else refers to.
    """
    count = sys.getrefcount
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


def _measured() -> tuple[int, int, tuple[int, int]]:
    """Return the counts of a Pending in a list, a value in its Pending, a result, and a result in a tuple, at rest."""
    aval = aval_of((), np.dtype(bool), False)
    pending = Pending(None, 0, aval)
    pending.value = object()
    slot = References.in_slot(pending)
    box = [pending]
    del pending
    listed = References.in_list(box, 0)
    entries = [(0, Pending(None, 0, aval)), (0, (Pending(None, 0, aval), Pending(None, 0, aval)))]
    _, results = zip(*entries)
    counts = range(1, 20)
    alone = next(n for n in counts if 0 not in alive_of(results, n, 99)[0])
    in_tuple = next(n for n in counts if not alive_of(results, 99, n)[0])
    return listed, slot, (alone, in_tuple)


IN_LIST: int
IN_SLOT: int
AT_REST: tuple[int, int]
_trace: Any = sys.gettrace()
sys.settrace(None)  # a debugger that looks at variables refers to them: counts were too high, and what is alive lost
try:
    IN_LIST, IN_SLOT, AT_REST = _measured()
finally:
    sys.settrace(_trace)
# Without a global lock a count may be old when it is used.
COUNTED: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
