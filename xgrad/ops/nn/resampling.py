"""interpolate, upsample: resize images by nearest, linear, cubic or area sampling (UpSample.h, UpSampleKernel.cpp).

Every mode treats one dimension at a time.  Weighted modes multiply by a small matrix: on CPUs its gradient is 2 to 13
times faster than a gather's (measured, 64x64 to 48x48 and 512x512), and accelerators are made for products.
"""

from functools import partial
from math import floor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...dispatch.argument_kinds import require_int
from ...dispatch.call import call
from ...dispatch.declare import composite, linear, operator
from ...dispatch.promotion import require_real_floating, widen
from ...dispatch.samples import real, sample
from ...tensor import Tensor
from .pooling import adaptive_mean

functional: Any = partial(operator, namespace="nn.functional", method=False, out=False)

_RANKS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}


def _nearest(size: int, out: int, scale: float | None, exact: bool) -> np.ndarray:
    """The source of each element of the result.  Computed in float32, as PyTorch does for every dtype."""
    ratio = np.float32(1 / scale) if scale else np.float32(size) / np.float32(out)
    places = (np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)) * ratio
    return np.minimum(np.floor(places).astype(np.int64), size - 1)


def _take(x: Any, places: np.ndarray, axis: int) -> Any:
    """The elements at `places`; for an integer factor by repetition, whose transpose is cheaper than a gather's."""
    size, out = x.shape[axis], len(places)
    if out % size == 0 and (places == np.arange(out) // (out // size)).all():
        return jnp.repeat(x, out // size, axis=axis, total_repeat_length=out)
    step = int(places[1] - places[0]) if out > 1 else 1
    if (np.diff(places) == step).all() and step > 0:
        return jax.lax.slice_in_dim(x, int(places[0]), int(places[-1]) + 1, step, axis)
    return jnp.take(x, places, axis=axis, mode="clip")


def _keys(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic kernel."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _weights(size: int, out: int, scale: float | None, align_corners: bool, cubic: bool, antialias: bool) -> np.ndarray:
    """The matrix (out, size) of linear or cubic interpolation."""
    if align_corners:
        ratio = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        ratio = 1 / scale if scale else size / out
    matrix = np.zeros((out, size))
    rows = np.arange(out)
    if antialias:
        wide = max(ratio, 1.0)
        support = (2 if cubic else 1) * wide
        centre = ratio * (rows + 0.5)
        first = np.maximum((centre - support + 0.5).astype(int), 0)[:, None]
        last = np.minimum((centre + support + 0.5).astype(int), size)[:, None]
        columns = np.arange(size)
        distance = (columns - centre[:, None] + 0.5) / wide
        values = _keys(distance, -0.5) if cubic else np.maximum(1 - np.abs(distance), 0)
        matrix = np.where((columns >= first) & (columns < last), values, 0)
        return matrix / matrix.sum(1, keepdims=True)
    place = rows * ratio if align_corners else (rows + 0.5) * ratio - 0.5
    if not cubic:
        place = np.maximum(place, 0)
    before = np.floor(place).astype(int)
    for tap in range(-1, 3) if cubic else range(2):
        distance = place - (before + tap)
        values = _keys(distance, -0.75) if cubic else 1 - np.abs(distance)
        np.add.at(matrix, (rows, np.clip(before + tap, 0, size - 1)), values)
    return matrix


def _sample(x: Any, *size: int, mode: str, align: bool = False, antialias: bool = False) -> Any:
    how = {"scales": (None,) * len(size), "mode": mode, "align_corners": align, "antialias": antialias}
    return sample(x, size=size, **how)


_ROW, _IMAGE = real(1, 1, 3), real(1, 1, 3, 2)
_SAMPLES = (
    _sample(_ROW, 5, mode="nearest"), _sample(_ROW, 5, mode="nearest-exact"), _sample(_ROW, 2, mode="area"),
    _sample(_ROW, 5, mode="linear"), _sample(_ROW, 5, mode="linear", align=True), _sample(_IMAGE, 2, 4, mode="bicubic"),
    _sample(_IMAGE, 2, 4, mode="bilinear", antialias=True),
)  # fmt: skip


def _mix_bytes(x: Any, weights: np.ndarray, axis: int) -> Any:
    """Mix a uint8 image along an axis with whole factors, 16 bits wide with their sign, as PyTorch does on the CPU."""
    bits = next(bits for bits in range(22) if bits == 21 or int(0.5 + weights.max() * (1 << bits + 1)) >= 1 << 15)
    factors = np.trunc(weights * (1 << bits) + np.copysign(0.5, weights)).astype("int32")
    mixed = jnp.tensordot(x.astype("int32"), jnp.asarray(factors.T), ((axis,), (0,)))
    return jnp.moveaxis(jnp.clip((mixed + (1 << bits >> 1)) >> bits, 0, 255).astype("uint8"), -1, axis)


@functional("upsample", function=False, samples=_SAMPLES)
def _resample(self, *, size, scales, mode, align_corners, antialias):
    whole = self.dtype == np.uint8 and (mode.startswith("nearest") or (self.ndim == 4 and mode != "area"))
    if not whole:
        require_real_floating(self, f"upsample_{mode}")
    if 0 in self.shape[1:] or any(s < 1 for s in size):
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(self.shape[2:])} output {list(size)}"
        )
    if mode == "area":
        return adaptive_mean(self, self.ndim - 2, size)
    x = self if whole or mode.startswith("nearest") else widen(self)
    axes = [*enumerate(zip(size, scales, strict=True), 2)]
    for axis, (out, scale) in reversed(axes) if whole else axes:
        n = x.shape[axis]
        if mode.startswith("nearest"):
            x = _take(x, _nearest(n, out, scale, mode == "nearest-exact"), axis)
        elif n != out or scale not in (None, 1.0):
            weights = _weights(n, out, scale, align_corners, mode == "bicubic", antialias)
            if whole:
                x = _mix_bytes(x, weights, axis)
                continue
            # Full precision: accelerators would round the factors of a product otherwise.
            mixed = jnp.tensordot(x, jnp.asarray(weights.T, x.dtype), ((axis,), (0,)), precision="highest")
            x = jnp.moveaxis(mixed, -1, axis)
    return x.astype(self.dtype)


_resample.derivative(self=linear)


@composite(method=False, namespace="nn.functional")
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resample (batch, channels, *space) to `size`, or to `scale_factor` times its size.

    `mode`: "nearest", "nearest-exact", "area"; for one dimension "linear", for two "bilinear" or "bicubic", for three
    "trilinear".
    """
    n = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError("only one of size or scale_factor should be defined, and one must be")
    if mode not in ("nearest", "nearest-exact", "area", *_RANKS):
        raise NotImplementedError(
            f"interpolate: unknown mode {mode!r}: it is nearest, nearest-exact, area, {', '.join(_RANKS)}"
        )
    if mode not in _RANKS and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if input.ndim not in (3, 4, 5) or _RANKS.get(mode, input.ndim) != input.ndim:
        raise NotImplementedError(
            f"Got {input.ndim}D input, but {mode} mode needs "
            f"{f'{_RANKS[mode]}D' if mode in _RANKS else '3D, 4D or 5D'} input "
            "(batch, channels, *space)"
        )
    if antialias and (mode not in ("bilinear", "bicubic")):
        raise ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    given = size if size is not None else scale_factor
    many = tuple(given) if isinstance(given, (tuple, list)) else (given,) * n
    if len(many) != n:
        raise ValueError(
            f"Input and {'output' if size is not None else 'scale_factor'} must have the same number of spatial "
            "dimensions, "
            f"but got input with spatial dimensions of {list(input.shape[2:])} and {given}"
        )
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        for length in many:
            require_int("interpolate", size=length)
        sizes, scales = many, (None,) * n
    else:
        sizes = tuple(floor(float(s) * float(f)) for s, f in zip(input.shape[2:], many, strict=True))
        scales = (None,) * n if recompute_scale_factor else tuple(float(f) for f in many)
    statics = (tuple(int(s) for s in sizes), scales, mode, bool(align_corners), bool(antialias))
    return call(_resample.operator, (input,), statics)


@composite(method=False, namespace="nn.functional")
def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate`, under its former name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(method=False, namespace="nn.functional")
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` in mode "nearest", under its former name."""
    return interpolate(input, size, scale_factor, "nearest")


@composite(method=False, namespace="nn.functional")
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` in mode "bilinear" with aligned corners, under its former name."""
    return interpolate(input, size, scale_factor, "bilinear", True)
