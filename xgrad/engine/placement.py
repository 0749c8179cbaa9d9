"""put: transfers an array to a variable's device or sharding."""

from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..devices import device, require_here


def put(array: Any, where: Any, committed: bool = True) -> Any:
    """Transfer an array to a device or sharding.  With `committed` False the result is committed to no device.

    The gradient of an uncommitted variable must be uncommitted too: otherwise an optimizer's step would commit the
    variable to its device, and the next forward pass would find it misplaced.
    """
    if not committed:
        return jax.device_put(np.asarray(array))
    if isinstance(where, jax.Device):  # JAX would leave an array in its present memory on that device
        where = SingleDeviceSharding(where)
    if jax.process_count() > 1 and not array.is_fully_addressable and array.sharding.device_set != where.device_set:
        require_here(array, f"moving to {device(where)}")
        array = array.addressable_data(0)  # the whole: from one process's devices to its own
    return jax.device_put(array, where)
