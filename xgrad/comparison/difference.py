"""Measures for `xgrad.compare` how far the outputs and gradients of two runs are apart, a `Difference` for each."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..base import dtypes


@dataclass(frozen=True)
class Difference:
    """The distance between an output or gradient of one run and the same value of another run.

    `equal`: bit for bit, but NaNs are equal, and zeros of both signs.  `largest`: the largest absolute difference; None
    if only one path has that value.  `within_rounding`: at most 64 units in the last place of its largest element.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    equal: bool
    largest: float | None
    within_rounding: bool


def differences(differentiated: list[int], a: Any, b: Any) -> list[Difference]:
    """Return the differences of two runs, which have `outputs`, and `gradients` of the inputs `differentiated`."""
    found = [
        difference(f"output {i}" if len(a.outputs) > 1 else "output", x, y)
        for i, (x, y) in enumerate(zip(a.outputs, b.outputs, strict=True))
    ]
    return found + [
        difference(f"gradient of input {i}", x, y)
        for i, x, y in zip(differentiated, a.gradients, b.gradients, strict=True)
        if not (x is None and y is None)
    ]


def difference(name: str, a: np.ndarray | None, b: np.ndarray | None) -> Difference:
    one = a if a is not None else b
    assert one is not None
    shape, dtype = one.shape, one.dtype
    if a is None or b is None or a.shape != b.shape or a.dtype != b.dtype:
        return Difference(name, shape, dtype.name, False, None, False)
    if dtype not in dtypes.INEXACT:
        largest = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0))
        return Difference(name, shape, dtype.name, bool((a == b).all()), largest, bool((a == b).all()))
    wide = np.complex128 if dtype in dtypes.COMPLEX else np.float64
    x, y = a.astype(wide), b.astype(wide)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(x - y))
    distance = np.where(np.isnan(distance), np.inf, distance)
    largest = float(distance.max(initial=0.0))
    scale = float(np.max(np.where(np.isfinite(x), np.abs(x), 0.0), initial=0.0))
    return Difference(
        name, shape, dtype.name, bool(same.all()), largest, largest <= 64 * float(jnp.finfo(dtype).eps) * scale
    )
