"""Turns Python numbers that a lazy block uses again and again into arrays on the device, to spare later transfers.

JAX transfers a number to the device in each call, which takes 11 µs here, and an array with its value and weak type
0.5; making that array takes 57.  So a learning rate or a factor of the model becomes one, and a number that changes
with each step stays a number.  The program is the same.
"""

from typing import Any

import jax
import numpy as np

from .pending import Pending
from .shapes import NUMBERS

MOST = 1024

_arrays: dict[Any, Any] = {}  # by type, value and x64 mode: the array, None for a number that came once


def operands_of(inputs: list[Any], x64: bool) -> list[Any]:
    """Return the operands of a program for the inputs of its queue."""
    return [
        x.value if x.__class__ is Pending else scalar(x, x64) if x.__class__ in NUMBERS else x for x in inputs
    ]  # fmt: skip


def scalar(x: Any, x64: bool) -> Any:
    """Return an operand in place of the number `x`, of JAX's weak type; `x64`: JAX's mode."""
    if not x or x != x or x.__class__ is complex:  # 0.0 equals -0.0, also in a complex number; no NaN equals itself
        return x
    key = x.__class__, x, x64
    found = _arrays.get(key)
    if found is None:
        if len(_arrays) >= MOST:
            _arrays.clear()
        found = _arrays[key] = jax.device_put(x) if key in _arrays else None  # `jnp.asarray` would compile
    return x if found is None else found


def one() -> Any:
    """Return the number 1 as an operand, so that XLA cannot fold it as a constant."""
    found = _arrays.get(one)
    if found is None:
        found = _arrays[one] = jax.device_put(np.int32(1))
    return found
