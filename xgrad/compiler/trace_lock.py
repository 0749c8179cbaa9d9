"""Turns: xgrad.compile's lock, by which one thread at a time traces, puts tensors into containers, or verifies a call.

A traced function's writes to lists and objects from outside stay there until the trace is over.  Another trace would
take them for its own function's, and the end of the trace would remove the writes of a program that runs meanwhile.

Invariant: no deadlock, because after a second a thread stops waiting for one that is itself blocked.  Its call then
runs uncompiled, with the same results (a call with `dynamic=` raises).
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

_LOOK = 0.1  # seconds between two looks at the thread whose turn it is
_LOOKS = 10  # looks that find the thread at one place, after which it counts as waiting
_WORKING = ("jax", "jaxlib", "numpy", "xgrad")  # packages that may stay at one line: they compute, or compile


class Turns:
    """A reentrant lock for function calls, which detects that its owner waits."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.owner: int | None = None  # the thread whose turn it is

    def take(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return `work(*args)`, run in this thread's turn; None if the thread whose turn it is waits."""
        taken: list[bool] = []
        seen, count, before = None, 0, self.owner
        try:
            # C code appends the result: an interrupt finds the lock acquired and in the list, or neither.
            taken.extend(map(self._lock.acquire, (False,)))
            while True not in taken:
                place = _place(self.owner)
                count = count + 1 if place is not None and place == seen else 0
                if count == _LOOKS:
                    return None
                seen = place
                taken.extend(map(self._lock.acquire, (True,), (_LOOK,)))
            before = self.owner  # this thread, if it has the turn already
            self.owner = threading.get_ident()
            return work(*args)
        finally:
            if True in taken:
                self.owner = before
                self._lock.release()


def _place(thread: int | None) -> tuple | None:
    """Return a thread's place in the user's code or the standard library; None if it computes or has ended."""
    frame = None if thread is None else sys._current_frames().get(thread)
    if frame is None or str(frame.f_globals.get("__name__")).partition(".")[0] in _WORKING:
        return None
    return id(frame), frame.f_lasti


turns: Turns = Turns()
