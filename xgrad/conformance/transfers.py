"""Tests transfers to a device and back, for `xgrad conform`: arrays must stay equal, with the signs of zeros."""

from typing import Any

import jax
import numpy as np

from ..base.dtypes import FLOATS, INEXACT
from .execution import Place, values
from .measure import epsilon
from .records import RIGHT, WRONG, Check


def _special(dtype: np.dtype) -> np.ndarray:
    """Return the numbers that are lost first: the largest and smallest, zeros of both signs, infinities, NaN."""
    if dtype.kind == "b":
        return np.array([True, False, True])
    if dtype not in INEXACT:
        info = np.iinfo(dtype)
        return np.array([info.min, info.max, 0, 1], dtype)
    found = np.array([0.0, -0.0, 1.0, -1.0, epsilon(dtype), np.inf, -np.inf, np.nan])
    if dtype in FLOATS:
        return found.astype(dtype)
    return np.stack([found, found[::-1]], -1).astype(f"f{dtype.itemsize // 2}").view(dtype)[:, 0]


def _same(name: str, a: np.ndarray, b: np.ndarray) -> Check:
    if a.shape != b.shape or a.dtype != b.dtype:
        return Check(
            name, WRONG, None, f"{name}: {a.dtype.name}{list(a.shape)} instead of {b.dtype.name}{list(b.shape)}"
        )
    parts = [(np.real(x), np.imag(x)) if x.dtype.kind == "c" else (x,) for x in (a, b)]
    for x, y in zip(*parts, strict=True):
        # A NaN may have other bits.
        same = (x == y) & (np.signbit(x) == np.signbit(y)) if x.dtype in FLOATS else x == y
        same |= (x != x) & (y != y)
        if not same.all():
            where = np.argwhere(~same)[0]
            return Check(name, WRONG, float("inf"), f"{name}: {a[tuple(where)]} instead of {b[tuple(where)]}")
    return Check(name, RIGHT, 0.0)


def there_and_back(place: Place, dtype: np.dtype) -> list[Check]:
    """Arrays of several shapes and layouts, of the host."""
    numbers = (np.arange(24) % 5).astype(dtype)
    arrays = {
        "special numbers": _special(dtype),
        "no dimension": numbers[3],
        "no elements": np.empty((0, 3), dtype),
        "not contiguous": numbers.reshape(4, 6)[:, ::2].T,
        "a quarter of a million": np.resize(numbers, (512, 512)),
    }
    arrays = {name: np.asarray(a) for name, a in arrays.items()}
    tensors = place.tensors(list(arrays.values()))
    return [_same(name, found, a) for (name, a), found in zip(arrays.items(), values(tensors), strict=True)]


def between_devices(place: Place, dtype: np.dtype) -> list[Check]:
    """From the device to JAX's CPU, and back; and to each other device of its kind."""
    array = _special(dtype)
    (x,) = place.tensors([array])
    other = x.to("cpu")
    checks = [_same("to the CPU", values([other])[0], array), _same("back", values([other.to(x.device)])[0], array)]
    own: Any = place.jax_device
    for another in () if own is None else jax.local_devices(backend=own.platform):
        if another != own:
            moved = x.to(another)
            checks += [_same(f"to {another}", values([moved])[0], array), _same("stays", values([x])[0], array)]
    return checks


def as_numbers(place: Place, dtype: np.dtype) -> list[Check]:
    """`item()` and `tolist()`."""
    array = np.asarray([[1, 0, 1], [0, 1, 1]]).astype(dtype)
    (x,) = place.tensors([array])
    return [
        _same("item()", np.asarray(x[1, 2].item()).astype(dtype), array[1, 2]),
        _same("tolist()", np.asarray(x.tolist()).astype(dtype), array),
    ]


TRANSFERS = {
    "host to device and back": there_and_back, "device to CPU and back": between_devices, "item and tolist": as_numbers,
}  # fmt: skip
