"""Memory: counts the bytes of an `xgrad.Backend`'s live arrays, and raises OutOfMemoryError for what does not fit.

Invariant: `on[i]` is the sum of the bytes that device i has of arrays which something refers to, at each moment.
"""

import gc
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

from ..errors import OutOfMemoryError
from .shards import shares
from .tiles import tiled


class Memory:
    """The memory of one backend; each of its devices has `budget` bytes, None: as many as it takes."""

    budget: int | None
    name: str

    def __init__(
        self, name: str, budget: int | None, devices: tuple[Any, ...], chip: str = "", tiles: Any = None
    ) -> None:
        self.name, self.budget, self._chip, self._tiles = name, budget, chip, tiles
        self._on: list[int] = [0 for _ in devices]
        self.peak: int = 0
        self._numbers: dict[Any, int] = {device: number for number, device in enumerate(devices)}
        self._lock: Any = threading.RLock()  # a signal handler may make arrays in the middle of a method
        self._alive: dict[int, tuple[Any, tuple[int, ...], int]] = {}  # by the arrays' ids: reference, devices, bytes
        self._dead: deque[Any] = deque()  # references to arrays that have ended and are still counted
        # The count of the changes, and True if none was broken off by an interrupt, or interrupted by another one.
        self._changes, self._sure = 0, True

    @property
    def on(self) -> list[int]:
        """The bytes in use of each device."""
        self._change(None, (), 0)
        return list(self._on)

    @property
    def used(self) -> int:
        """The bytes in use of the device that has most."""
        return max(self.on)

    def hold(self, array: Any, reports: Iterable[Any] = ()) -> None:
        """Count an array, once, until nothing refers to it; its padding in the events of open `reports`."""
        devices, size = shares(array.value, self._numbers, self._tiles)
        if reports and self._tiles is not None and (padding := size - shares(array.value, self._numbers)[1]):
            for events in reports:
                events.padding.add(padding)
        # The callback is C code: an interrupt in one of Python's would be swallowed, and its work lost.
        self._change(weakref.KeyedRef(array, self._dead.append, id(array)), devices, size)

    def release(self, array: Any) -> None:
        """Count an array no more, because a program has taken its memory."""
        if (entry := self._alive.get(id(array))) is not None:
            self._dead.append(entry[0])

    def _change(self, reference: Any, devices: tuple[int, ...], size: int) -> None:
        """Count what is new, and take off what has ended."""
        with self._lock:
            sure, change = self._sure, self._changes + 1
            self._sure, self._changes = False, change
            on = self._on if sure else self._anew()
            while self._dead:
                ended = self._dead.popleft()
                if (entry := self._alive.get(ended.key)) is not None and entry[0] is ended:
                    del self._alive[ended.key]
                    for i in entry[1]:
                        on[i] -= entry[2]
            if reference is not None and reference.key not in self._alive:
                self._alive[reference.key] = reference, devices, size
                for i in devices:
                    on[i] += size
                self.peak = max(self.peak, *[on[i] for i in devices])
            self._on = on
            self._sure = self._changes == change

    def _anew(self) -> list[int]:
        """Return the bytes of each device, counted from the arrays."""
        on = [0 for _ in self._on]
        for number, (reference, devices, size) in tuple(self._alive.items()):
            if reference() is None:
                self._alive.pop(number, None)
            else:
                for i in devices:
                    on[i] += size
        return on

    def size_of(self, array: Any) -> int:
        """Return the bytes that an array of one device takes, or something else with a shape and a dtype."""
        return tiled(array.shape, array.dtype, self._tiles)

    def short_of(self, size: int, devices: tuple[int, ...] = (0,)) -> bool:
        """Return True if so many bytes more seem not to fit on one of the devices."""
        return self.budget is not None and max([self.on[i] for i in devices]) + size > self.budget

    def require(self, size: int, what: str, line: str, devices: tuple[int, ...] = (0,)) -> None:
        """Raise `OutOfMemoryError` if so many bytes more, the results of `what`, do not fit on each device."""
        if not self.short_of(size, devices):
            return
        gc.collect()  # what only a cycle of references holds is dead
        if self.short_of(size, devices):
            full = max(devices, key=self.on.__getitem__)
            whole = "" if self._tiles is None else ", in whole tiles,"
            raise OutOfMemoryError(
                f"{self.name}:{full}{self._chip} out of memory. Tried to allocate {size} bytes{whole} for {what}, "
                f"at {line}: {self.on[full]} of {self.budget} bytes are in use. Nothing was changed. Delete "
                "tensors that are not needed any more, take smaller batches or a narrower dtype, or declare more: "
                "backend.replace(memory=...)"
            )

    def admit(self, array: Any, line: Any) -> None:
        """Raise `OutOfMemoryError` if an array that was made does not fit."""
        if self.budget is None:
            return
        devices, size = shares(array, self._numbers, self._tiles)
        if self.short_of(size, devices):
            self.require(size, "an array", line(), devices)
