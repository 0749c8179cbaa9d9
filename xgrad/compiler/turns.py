"""Turns: of all threads one traces at a time, or puts tensors into containers, or verifies a call.

What a traced function puts into a list or an object from outside is there until the trace is over.  Another trace would
take it for its own doing, and what a program puts there meanwhile would be taken away with it.

Invariant: nobody waits for a thread that waits: its function may wait for this very call.  Such a call runs as it is,
uncompiled, which gives the same.
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

_LOOK = 0.1  # seconds between two looks at the thread whose turn it is
_LOOKS = 10  # after so many that find it where it was, it waits
_WORKING = ("jax", "jaxlib", "numpy", "xgrad")  # packages that may stay at one line: they compute, or compile


class Turns:
    """A reentrant lock for functions, which is not waited for in vain."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.owner: int | None = None  # the thread whose turn it is

    def take(self, work: Callable, *args: Any) -> Any:
        """`work(*args)` when it is this thread's turn; None if the thread whose turn it is waits for something else."""
        taken: list[bool] = []
        seen, count, before = None, 0, self.owner
        try:
            # C puts it there: an interrupt meets a lock that is held, and known to be, or one that is not.
            taken.extend(map(self._lock.acquire, (False,)))
            while True not in taken:
                place = _place(self.owner)
                count = count + 1 if place is not None and place == seen else 0
                if count == _LOOKS:
                    return None
                seen = place
                taken.extend(map(self._lock.acquire, (True,), (_LOOK,)))
            before = self.owner  # this thread, where it has taken its turn already
            self.owner = threading.get_ident()
            return work(*args)
        finally:
            if True in taken:
                self.owner = before
                self._lock.release()


def _place(thread: int | None) -> tuple | None:
    """Where a thread is in the user's code, or in the standard library; None of one that works or has gone."""
    frame = None if thread is None else sys._current_frames().get(thread)
    if frame is None or str(frame.f_globals.get("__name__")).partition(".")[0] in _WORKING:
        return None
    return id(frame), frame.f_lasti


turns = Turns()
