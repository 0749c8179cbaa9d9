"""Transfers arrays to a device, sharding or `xgrad.Backend` (`put`), or makes them there (`zeros`, `beside`)."""

from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..base import limits
from ..base.declared import DeclaredPlace
from ..base.devices import device, require_here
from ..execution.pending import declared_of
from ..execution.runner import transferred


def put(array: Any, where: Any, committed: bool = True) -> Any:
    """Transfer an array to a device or sharding.  With `committed` False the result is committed to no device.

    The gradient of an uncommitted variable must be uncommitted too: otherwise an optimizer's step would commit the
    variable to its device, and the next forward pass would find it misplaced.
    """
    if not committed:
        return jax.device_put(np.asarray(array))
    if isinstance(where, jax.Device):  # JAX would leave an array in its present memory on that device
        where = SingleDeviceSharding(where)
    several = jax.process_count() > 1 and where.__class__ is not DeclaredPlace and not array.is_fully_addressable
    if several and array.sharding.device_set != where.device_set:
        require_here(array, f"moving to {device(where)}")
        array = array.addressable_data(0)  # the whole: from one process's devices to its own
    return transferred(array, where)


def zeros(shape: tuple[int, ...], dtype: Any, where: Any = None) -> Any:
    """Return `limits.zeros`, on a declared backend too."""
    if where.__class__ is DeclaredPlace:
        return where.runtime.adopt(limits.zeros(shape, dtype), where.layout)
    return limits.zeros(shape, dtype, where)


def beside(array: Any, like: Any) -> Any:
    """Return an array that xgrad made, on the declared backend of another array; as it is if that is on none."""
    where = declared_of(like)
    return array if where is None else where.runtime.adopt(array)
