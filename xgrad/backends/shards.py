"""Tells how an `xgrad.Backend`'s arrays lie on several of its devices: which devices, bytes on each, sharding.

    on=["cpu:0", "cpu:1"]     pod:0, pod:1
    x                         NamedSharding(mesh, P("data")) of JAX's devices   ◄─►   the place's `layout`

Invariant: an array of the backend is on its first device, or has a sharding over several of its devices.
"""

from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from ..base.devices import replicated
from ..execution.pending import Pending, spread
from .tiles import tiled


def spread_of(x: Any) -> Any:
    """Return the array behind an operand if that is on several devices, else None."""
    if x.__class__ is Pending:
        x = x.value
    elif x.__class__ is tuple:
        return next((found for part in x if (found := spread_of(part)) is not None), None)
    return x if spread(x) else None


def shares(array: Any, numbers: dict[Any, int], tiles: Any = None) -> tuple[tuple[int, ...], int]:
    """Return the devices that an array is on, by number, and its bytes on each of them, in whole `tiles`."""
    if not spread(array):
        return (0,), array.nbytes if tiles is None else tiled(array.shape, array.dtype, tiles)
    sharding = array.sharding
    size = tiled(sharding.shard_shape(array.shape), array.dtype, tiles)
    return tuple(sorted([numbers[d] for d in sharding.device_set])), size


def resharded(array: Any, layout: Any) -> int:
    """Return the bytes that a device receives, at most, when an array gets another sharding."""
    shape = array.shape
    before = array.sharding.devices_indices_map(shape)

    def size(*parts: Any) -> int:
        found = array.dtype.itemsize
        for n, slices in zip(shape, zip(*parts)):
            ends = [s.indices(n) for s in slices]
            found *= max(min(stop for _, stop, _ in ends) - max(start for start, _, _ in ends), 0)
        return found

    new = layout.devices_indices_map(shape)
    return max(size(part) - (size(part, before[device]) if device in before else 0) for device, part in new.items())


def gathered(values: list[Any], like: Any) -> list[Any]:
    """Return a program's operands with those that one device has on each device of the array `like`."""
    where = replicated(like.sharding)

    def moved(x: Any) -> Any:
        if x.__class__ is tuple:
            return tuple([moved(part) for part in x])
        single = isinstance(x, jax.Array) and x.sharding.__class__ is SingleDeviceSharding and x.committed
        return jax.device_put(x, where) if single else x

    return [moved(x) for x in values]


def beside(shape: tuple[int, ...], operands: Any) -> Any:
    """Return the sharding of what the host computed: the sharding of an operand of its shape, else a copy on each of
    its devices."""
    found = [array for x in operands if (array := spread_of(x)) is not None]
    if not found:
        return None
    return next((array.sharding for array in found if array.shape == shape), replicated(found[0].sharding))
