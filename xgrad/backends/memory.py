"""Memory: counts the bytes of a backend's arrays that are alive, and refuses those that no longer fit.

Invariant: `on[i]` is the sum of the bytes that device i has of arrays which something refers to, at each moment.
"""

import gc
import threading
import weakref
from typing import Any

from ..errors import OutOfMemoryError
from .shards import shares


class Memory:
    """The memory of one backend; each of its devices has `budget` bytes, None: as many as it takes."""

    budget: int | None
    name: str

    def __init__(self, name: str, budget: int | None, devices: tuple[Any, ...]) -> None:
        self.name, self.budget = name, budget
        self.on: list[int] = [0 for _ in devices]
        self.peak: int = 0
        self._numbers: dict[Any, int] = {device: number for number, device in enumerate(devices)}
        self._lock: Any = threading.RLock()  # a finalizer may run in the middle of a method
        self._alive: dict[int, weakref.ref[Any]] = {}

    @property
    def used(self) -> int:
        """The bytes in use of the device that has most."""
        return max(self.on)

    def hold(self, array: Any) -> None:
        """Count an array, once, until nothing refers to it."""
        number, on = id(array), self.on
        devices, size = shares(array.value, self._numbers)

        def gone(_: Any) -> None:
            with self._lock:
                if self._alive.pop(number, None) is not None:
                    for i in devices:
                        on[i] -= size

        with self._lock:
            if number in self._alive:
                return
            self._alive[number] = weakref.ref(array, gone)
            for i in devices:
                on[i] += size
            self.peak = max(self.peak, *[on[i] for i in devices])

    def short_of(self, size: int, devices: tuple[int, ...] = (0,)) -> bool:
        """Return True if there seems to be no room for so many bytes more on one of the devices."""
        return self.budget is not None and max([self.on[i] for i in devices]) + size > self.budget

    def require(self, size: int, what: str, line: str, devices: tuple[int, ...] = (0,)) -> None:
        """Raise `OutOfMemoryError` if there is no room for so many bytes more on each device, the results of `what`."""
        if not self.short_of(size, devices):
            return
        gc.collect()  # what only a cycle of references holds is dead
        if self.short_of(size, devices):
            full = max(devices, key=self.on.__getitem__)
            raise OutOfMemoryError(
                f"{self.name}:{full} out of memory. Tried to allocate {size} bytes for {what}, at {line}: "
                f"{self.on[full]} of {self.budget} bytes are in use. Nothing was changed. Delete tensors that are not "
                "needed any more, take smaller batches or a narrower dtype, or declare more: "
                "backend.replace(memory=...)"
            )

    def admit(self, array: Any, line: Any) -> None:
        """Raise `OutOfMemoryError` if there is no room for an array that was made."""
        if self.budget is None:
            return
        devices, size = shares(array, self._numbers)
        if self.short_of(size, devices):
            self.require(size, "an array", line(), devices)
