"""Places of declared backends: they stand where a `jax.Device` and its sharding stand, and JAX knows nothing of them.

An array there is a `Pending` (execution/pending.py) whose place this is; JAX's own devices do the computing.  What runs
programs on such arrays is the place's `runtime` (backends/runtime.py).

Invariant: a name belongs to one place at a time, from `register` to `unregister`; a place without a name works too.
"""

from typing import Any

import jax
from jax.sharding import Sharding


class DeclaredDevice:
    """The one device of a declared backend."""

    id: Any
    platform: str
    strided: bool

    __slots__ = ("id", "platform", "strided")

    def __init__(self, name: str, strided: bool) -> None:
        self.platform, self.id, self.strided = name, 0, strided

    @property
    def process_index(self) -> int:
        return jax.process_index()

    def addressable_memories(self) -> list[Any]:
        return []  # none of JAX's

    def __repr__(self) -> str:
        return f"{self.platform}:0"


class DeclaredPlace(Sharding):
    """The sharding of arrays on a declared backend: all of an array is on the one device."""

    def __init__(self, name: str, strided: bool, runtime: Any) -> None:
        self.name: str = name
        self.runtime: Any = runtime
        self._devices: set[Any] = {DeclaredDevice(name, strided)}

    @property
    def device_set(self) -> set[Any]:
        return self._devices

    @property
    def addressable_devices(self) -> set[Any]:  # pyright: ignore[reportIncompatibleVariableOverride] - JAX caches it
        return self._devices

    @property
    def num_devices(self) -> int:
        return 1

    @property
    def memory_kind(self) -> str | None:
        return None

    @property
    def is_fully_replicated(self) -> bool:
        return True

    @property
    def is_fully_addressable(self) -> bool:
        return True

    def shard_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        return global_shape

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        return self is other

    def with_memory_kind(self, kind: str) -> "DeclaredPlace":
        raise ValueError(f"the declared backend '{self.name}' has one kind of memory, and no {kind!r}")

    def __repr__(self) -> str:
        return f"DeclaredPlace({self.name}:0)"


_registered: dict[str, DeclaredPlace] = {}


def register(place: DeclaredPlace) -> None:
    """Give a place its name as a device string.  Raises `RuntimeError` if another one has that name."""
    if _registered.setdefault(place.name, place) is not place:
        raise RuntimeError(
            f"another backend is registered as '{place.name}': unregister that one first, or declare this one under "
            f"another name, backend.replace(name='{place.name}2')"
        )


def unregister(place: DeclaredPlace) -> None:
    """Take the name back.  Raises `RuntimeError` if the place does not have it."""
    if _registered.get(place.name) is not place:
        raise RuntimeError(f"the backend '{place.name}' is not registered")
    del _registered[place.name]


def registered(name: str | None = None) -> Any:
    """Return the place of that name, None if there is none; without a name, all names."""
    return tuple(_registered) if name is None else _registered.get(name)
