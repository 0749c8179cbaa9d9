"""Memory: counts the bytes of a backend's arrays that are alive, and refuses those that no longer fit.

Invariant: `used` is the sum of the bytes of its arrays that something refers to, at each moment.
"""

import gc
import threading
import weakref
from typing import Any

from ..errors import OutOfMemoryError


class Memory:
    """The memory of one backend; `budget` None: it has no end."""

    budget: int | None
    name: str

    def __init__(self, name: str, budget: int | None) -> None:
        self.name, self.budget = name, budget
        self.used: int = 0
        self.peak: int = 0
        self._lock: Any = threading.RLock()  # a finalizer may run in the middle of a method
        self._alive: dict[int, weakref.ref[Any]] = {}

    def hold(self, array: Any) -> None:
        """Count an array, once, until nothing refers to it."""
        number, size = id(array), array.nbytes

        def gone(_: Any) -> None:
            with self._lock:
                if self._alive.pop(number, None) is not None:
                    self.used -= size

        with self._lock:
            if number in self._alive:
                return
            self._alive[number] = weakref.ref(array, gone)
            self.used += size
            self.peak = max(self.peak, self.used)

    def short_of(self, size: int) -> bool:
        """Return True if there seems to be no room for so many bytes more."""
        return self.budget is not None and self.used + size > self.budget

    def require(self, size: int, what: str, line: str) -> None:
        """Raise `OutOfMemoryError` if there is no room for so many bytes more, the results of `what`."""
        if not self.short_of(size):
            return
        gc.collect()  # what only a cycle of references holds is dead
        if self.short_of(size):
            raise OutOfMemoryError(
                f"{self.name}:0 out of memory. Tried to allocate {size} bytes for {what}, at {line}: {self.used} of "
                f"{self.budget} bytes are in use. Nothing was changed. Delete tensors that are not needed any more, "
                "take smaller batches or a narrower dtype, or declare more: backend.replace(memory=...)"
            )
