"""Measures for `xgrad conform` how far a device's results are from the reference, in roundings of their dtype.

`compare` says if that is within what is allowed.  An error is the largest difference of an element, over the largest
element of the reference (1 if that is smaller), over the dtype's epsilon.  Integers and bools must be equal.
"""

from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np

from ..base import dtypes
from .records import RIGHT, WRONG, Check

# In roundings: sums of a dozen terms and functions of two or three steps.
TOLERANCE = {
    "float64": 256.0,
    "complex128": 256.0,
    "float32": 64.0,
    "complex64": 64.0,
    "float16": 8.0,
    "bfloat16": 8.0,
}

# What the user accepts of the row that is made, as a part of the largest element, where that is more.
ACCEPTED: ContextVar[float] = ContextVar("ACCEPTED", default=0.0)


def epsilon(dtype: Any) -> float:
    """Return the distance from 1 to the next number; of integers and bools, of float32, which their means have."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        dtype = np.dtype("float32" if dtype == np.complex64 else "float64")
    return float(ml_dtypes.finfo(dtype if dtype in dtypes.INEXACT else np.float32).eps)


def coarser(dtype: Any, products: str | None, accumulate: str | None) -> float:
    """Return the factor of a dtype's tolerance for what contains products in these formats of an `xgrad.Backend`."""
    own, factor = np.dtype(dtype), 1.0
    if own not in dtypes.INEXACT:
        return factor
    for name in (products, accumulate):
        if name is not None:
            unit = 2.0**-10 if name == "tf32" else epsilon(getattr(dtypes, name))
            allowed = TOLERANCE.get(name, TOLERANCE["bfloat16"]) * unit
            factor = max(factor, allowed / (TOLERANCE.get(own.name, TOLERANCE["float32"]) * epsilon(own)))
    return factor


def wide(array: Any) -> np.ndarray:
    """Return an array in float64 or complex128, if it has numbers with a point."""
    array = np.asarray(array)
    if array.dtype not in dtypes.INEXACT:
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def compare(name: str, ours: list[np.ndarray], theirs: list[np.ndarray], dtype: Any, factor: float = 1.0) -> Check:
    """Compare results with the reference.

    `dtype`: of the column; results of a finer one are measured by it.  `factor`: of the tolerance.
    """
    if len(ours) != len(theirs):
        return Check(name, WRONG, None, f"{len(ours)} results, where there should be {len(theirs)}")
    largest, why, wrong = None, "", False
    for a, b in zip(ours, theirs, strict=True):
        error, reason, allowed = _difference(np.asarray(a), np.asarray(b), dtype, factor)
        if error is not None and (largest is None or error > largest):
            largest = error
        if error is None or error > allowed:
            wrong, why = True, why or reason
    return Check(name, WRONG if wrong else RIGHT, largest, why and f"{name}: {why}")


def _difference(a: np.ndarray, b: np.ndarray, dtype: Any, factor: float) -> tuple[float | None, str, float]:
    """Return (error, what differs, the most that is allowed)."""
    if a.shape != b.shape:
        return None, f"shape {list(a.shape)} instead of {list(b.shape)}", 0.0
    kinds = [("f" if x.dtype in dtypes.FLOATS else x.dtype.kind).replace("u", "i") for x in (a, b)]
    if kinds[0] != kinds[1]:
        return None, f"{a.dtype.name} instead of {b.dtype.name}", 0.0
    if kinds[0] in "bi":
        where = np.argwhere(a != b)
        return (float("inf"), _first(a, b, where), 0.0) if len(where) else (0.0, "", 0.0)
    unit = max(epsilon(dtype), epsilon(a.dtype))
    named = np.dtype(dtype).name if epsilon(dtype) >= epsilon(a.dtype) else a.dtype.name
    allowed = max(TOLERANCE.get(named, TOLERANCE["float32"]) * factor, ACCEPTED.get() / unit)
    a, b = wide(a), wide(b)
    odd = ~(np.isfinite(a) & np.isfinite(b))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    where = np.argwhere(odd & ~same)
    if len(where):
        return float("inf"), _first(a, b, where), allowed
    distance = np.where(odd, 0.0, np.abs(np.where(odd, 0, a) - np.where(odd, 0, b)))
    if not distance.size:
        return 0.0, "", allowed
    scale = max(1.0, float(np.abs(np.where(odd, 0, b)).max()))
    place = np.unravel_index(int(distance.argmax()), distance.shape)
    return float(distance.max()) / (scale * unit), _first(a, b, np.array([place])), allowed


def _first(a: np.ndarray, b: np.ndarray, where: np.ndarray) -> str:
    place = tuple(int(i) for i in where[0])
    at = f" at {list(place)}" if place else ""
    return f"{a[place]:.6g} instead of {b[place]:.6g}{at}"
