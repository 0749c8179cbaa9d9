"""Converts Python numbers to a tensor's dtype, with PyTorch's overflow errors, for operators that take numbers.

Invariant: an error is raised before anything is changed (c10::overflows, c10::Scalar::to).  Not an overflow is a number
that a narrower dtype can only represent differently: fractions are truncated, -1 becomes the largest unsigned integer,
and every number becomes a bool.  Not checked are numbers beside 16-bit floats and assigned to them (`x[...] = 1e9`),
which become infinite, and 0-dim tensors on an accelerator.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...batching.batched_tensor import inner_value
from ...errors import NumberOverflowError
from ...execution.pending import waits
from ...tensor import Tensor
from ..index.index_checks import on_host


@functools.cache
def _limits(dtype: np.dtype) -> tuple[float, float, bool]:
    """(lowest number, largest number, True if there is an infinity)."""
    if dtype in dtypes.INTEGERS:
        info = np.iinfo(dtype)
        return info.min, info.max, False
    return float(jnp.finfo(dtype).min), float(jnp.finfo(dtype).max), bool(np.isinf(np.array(math.inf).astype(dtype)))


def fits(value: complex, dtype: np.dtype) -> bool:
    """Return whether PyTorch converts a number to `dtype`."""
    if dtype == dtypes.bool or isinstance(value, bool):
        return True
    if isinstance(value, complex):
        if dtype in dtypes.COMPLEX:
            return fits(value.real, dtypes.real_of(dtype)) and fits(value.imag, dtypes.real_of(dtype))
        return value.imag == 0 and fits(value.real, dtype)
    low, high, infinite = _limits(dtypes.real_of(dtype))
    if isinstance(value, int):
        return (-high if dtype.kind == "u" else low) <= value <= high
    if math.isinf(value):
        return infinite
    return low <= value <= high or (math.isnan(value) and dtype in dtypes.INEXACT)


def all_fit(array: np.ndarray, dtype: np.dtype) -> bool:
    """Return whether all numbers of an array are within an integer dtype."""
    low, high, _ = _limits(dtype)
    return bool(((array >= low) & (array <= high)).all())


def number(value: complex, dtype: np.dtype) -> Any:
    """A number that fits, as an argument of a kernel that casts it to `dtype`."""
    if dtype == dtypes.bool:
        return bool(value)
    if dtype in dtypes.COMPLEX:
        return complex(value)
    if isinstance(value, complex):
        value = value.real
    if dtype not in dtypes.INTEGERS:
        return float(value)
    value = int(value)
    if dtype.kind == "u" and value < 0:
        value += 1 << dtype.itemsize * 8
    # JAX gives a Python integer the default dtype, which may be too narrow for it.
    return value if value <= np.iinfo(dtypes.default_integer()).max else np.asarray(value, dtype)


def _require_fit(value: complex, dtype: np.dtype) -> None:
    if not fits(value, dtype):
        wider = dtypes.widen(dtype) if isinstance(value, int) else ""
        raise NumberOverflowError(
            f"Overflow: value {value} cannot be converted to type {dtype.name} without overflow{wider}"
        )


@functools.cache
def _all_numbers_fit(given: np.dtype, dtype: np.dtype) -> bool:
    if dtypes.bool in (given, dtype) or np.can_cast(given, dtype):
        return True
    return given not in dtypes.INEXACT and dtype in dtypes.INEXACT and (dtype.itemsize > 2 or dtype == dtypes.bfloat16)


def _evaluate(value: Tensor) -> None:
    """Evaluate a pending number on the CPU."""
    array = inner_value(value)._read()
    if waits(array) and all(device.platform == "cpu" for device in array.devices()):
        array.evaluated("a number that has to fit")


def fill_value(value: Any, dtype: np.dtype) -> Any:
    """Convert a number or a 0-dim tensor to an argument of a kernel that will cast it to `dtype`.

    Raises `NumberOverflowError` if it does not fit.  A tensor on an accelerator is not waited for, but cast; one
    that is pending is evaluated, unless all numbers of its dtype fit.
    """
    if isinstance(value, (Tensor, jax.Array)):
        if value.dtype != dtype and not value.ndim:
            if isinstance(value, Tensor) and not _all_numbers_fit(value.dtype, dtype):
                _evaluate(value)
            found = on_host(value)
            if found is not None:
                _require_fit(found.item(), dtype)
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float, complex)):
        _require_fit(value, dtype)
        return number(value, dtype)
    return value


def require_fit_beside(tensor: Any, *others: Any) -> None:
    """Raise for numbers that do not fit the dtype of a tensor, if the result has that dtype.

    A float beside integers and a complex number beside reals make a result of their own kind.  A number beyond the
    range of floats of 16 bits becomes infinite.
    """
    if not isinstance(tensor, Tensor) or (tensor._dtype in dtypes.FLOATS and tensor._dtype.itemsize <= 2):
        return
    kind = dtypes.category(tensor._dtype)
    for other in others:
        if isinstance(other, (bool, int, float, complex)):
            of_number = 3 if isinstance(other, complex) else 2 if isinstance(other, float) else 1
            if of_number <= kind and kind:
                _require_fit(other, tensor._dtype)


def assigned_number(value: Any, dtype: np.dtype) -> Any:
    """Convert a number for `x[...] = value`: as `fill_value`, but beyond the range of 16-bit floats it is infinite."""
    if dtype in dtypes.FLOATS and dtype.itemsize <= 2 and isinstance(value, (int, float)):
        with np.errstate(over="ignore"):
            return float(np.asarray(float(value)).astype(dtype))
    return fill_value(value, dtype)
