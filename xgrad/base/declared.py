"""DeclaredPlace: the sharding of arrays on an `xgrad.Backend`, in place of JAX's; and the table of registered backends.

Users declare such a backend in Python; JAX does not know it, and JAX's own devices compute.  An array there is a
`Pending` (execution/pending.py), and the place's `runtime` (backends/runtime.py) runs programs on it.

Invariant: a name belongs to one place at a time, from `register` to `unregister`; a place without a name works too.

`AbsentDevice` stands for a device that JAX does not see.
"""

from functools import cache
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, Sharding


class DeclaredDevice:
    """A device of an `xgrad.Backend`; the first has number 0."""

    __slots__ = ("id", "platform", "strided")

    def __init__(self, name: str, strided: bool, number: int = 0) -> None:
        self.platform: str = name
        self.id: Any = number
        self.strided: bool = strided

    @property
    def process_index(self) -> int:
        return jax.process_index()

    def addressable_memories(self) -> list[Any]:
        return []  # none of JAX's

    def __repr__(self) -> str:
        return f"{self.platform}:{self.id}"


class AbsentDeviceError(NotImplementedError):
    """A device that JAX does not see; its second and third argument are the name's parts."""

    def __str__(self) -> str:
        return self.args[0]


class AbsentDevice(DeclaredDevice):
    """A device that JAX does not see."""

    __slots__ = ()


@cache
def absent(name: str, number: int | None) -> AbsentDevice:
    """Return the one `AbsentDevice` of a name and number."""
    return AbsentDevice(name, False, number)  # pyright: ignore[reportArgumentType] - a name may have no number


class DeclaredPlace(Sharding):
    """The sharding of arrays on a declared backend: all of an array is on the first device, or it has a `layout`.

    `layout` is a sharding of JAX's, over JAX's devices that compute for the backend's devices; `home` is the place
    without it.
    """

    def __init__(self, name: str, strided: bool, runtime: Any, on: tuple[Any, ...] = (None,)) -> None:
        self.name: str = name
        self.runtime: Any = runtime
        self.layout: Any = None
        self.home: DeclaredPlace = self
        self._behind: dict[Any, DeclaredDevice] = {d: DeclaredDevice(name, strided, i) for i, d in enumerate(on)}
        self._devices: set[Any] = {next(iter(self._behind.values()))}
        self._laid: dict[Any, DeclaredPlace] = {}

    @property
    def several(self) -> bool:
        """True if the backend has more than one device."""
        return len(self._behind) > 1

    @property
    def behind(self) -> tuple[Any, ...]:
        """JAX's devices that compute, in the order of the backend's own."""
        return (*self._behind,)

    def laid(self, layout: Any) -> "DeclaredPlace":
        """Return the place of arrays of this backend that have a sharding of JAX's."""
        found = self._laid.get(layout)
        if found is None:
            found = DeclaredPlace.__new__(DeclaredPlace)
            found.name, found.runtime, found.layout, found.home = self.name, self.runtime, layout, self
            found._behind, found._devices = self._behind, {self._behind[d] for d in layout.device_set}
            found = self._laid.setdefault(layout, found)
        return found

    def keeps(self, sharding: Any) -> bool:
        """Return True for a sharding of JAX's over devices of this backend alone, which is one of several."""
        return self.several and isinstance(sharding, Sharding) and sharding.device_set <= self._behind.keys()

    @property
    def mesh(self) -> Any:
        """The mesh of the layout."""
        return self.layout.mesh

    @property
    def spec(self) -> Any:
        """The `PartitionSpec` of the layout."""
        return self.layout.spec

    @property
    def device_set(self) -> set[Any]:
        return self._devices

    @property
    def addressable_devices(self) -> set[Any]:  # pyright: ignore[reportIncompatibleVariableOverride] - JAX caches it
        return self._devices

    @property
    def num_devices(self) -> int:
        return len(self._devices)

    @property
    def memory_kind(self) -> str | None:
        return None

    @property
    def is_fully_replicated(self) -> bool:
        return self.layout is None or self.layout.is_fully_replicated

    @property
    def is_fully_addressable(self) -> bool:
        return True

    def shard_shape(self, global_shape: tuple[int, ...]) -> tuple[int, ...]:
        return global_shape if self.layout is None else self.layout.shard_shape(global_shape)

    def is_equivalent_to(self, other: Any, ndim: int) -> bool:
        if self is other:
            return True
        if other.__class__ is not DeclaredPlace or other.home is not self.home:
            return False
        mine, its = self.layout, other.layout
        return mine is not None and its is not None and mine.is_equivalent_to(its, ndim)

    def with_memory_kind(self, kind: str) -> "DeclaredPlace":
        raise ValueError(f"the declared backend '{self.name}' has one kind of memory, and no {kind!r}")

    def __repr__(self) -> str:
        first = next(iter(self._behind.values()))
        return f"DeclaredPlace({first if self.layout is None else f'{self.name}, {self.layout}'})"


class DeclaredMesh(NamedTuple):
    """A mesh of a declared backend's devices, as the mesh of JAX's devices that compute for them."""

    mesh: Mesh
    place: DeclaredPlace


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
