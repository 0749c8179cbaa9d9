"""grid_sample samples images at given places; affine_grid computes such places (PyTorch: GridSampler.cpp)."""

import math
from functools import partial
from itertools import product
from typing import Any

import jax.numpy as jnp

from ...dispatch.declare import linear, operator
from ...dispatch.promotion import require_real_floating, require_same_dtype
from ...dispatch.samples import between, real, sample
from ...dispatch.tables import FUNCTIONS

functional: Any = partial(operator, namespace="nn.functional", method=False, out=False)


def _place(coordinate: Any, size: int, align_corners: bool) -> Any:
    """Map [-1, 1] to element numbers: -1 and 1 are the centres of the outermost elements, or their outer edges."""
    return (coordinate + 1) / 2 * (size - 1) if align_corners else ((coordinate + 1) * size - 1) / 2


def _clip(x: Any, size: int) -> Any:
    """Clip to the range [0, size - 1]; the slope is 0 at and beyond both ends.  NaN is 0, as in PyTorch."""
    return jnp.where(x > 0, jnp.where(x >= size - 1, size - 1, x), 0).astype(x.dtype)


def _reflect(x: Any, low: float, high: float) -> Any:
    """Reflect x at `low` and `high` until it is between them."""
    span = high - low
    if span <= 0:
        return jnp.zeros_like(x)
    distance = jnp.where(x < low, low - x, x - low)
    flips = jnp.floor(distance / span)
    extra = distance - flips * span
    return jnp.where(flips % 2 == 0, extra + low, span - extra + low)


def _inside(x: Any, size: int, padding_mode: str, align_corners: bool) -> Any:
    if padding_mode == "reflection":
        x = _reflect(x, 0, size - 1) if align_corners else _reflect(x, -0.5, size - 0.5)
    return x if padding_mode == "zeros" else _clip(x, size)


def _fetch(x: Any, places: list[Any]) -> Any:
    """x[n, :, places[0][n, ...], ...] as (batch, channels, ...); 0 outside."""
    spatial = x.shape[2:]
    within: Any = True
    flat: Any = 0
    for place, size in zip(places, spatial, strict=True):
        within = within & (place >= 0) & (place < size)
        flat = flat * size + jnp.clip(place, 0, size - 1)
    rows = flat.astype(jnp.int32).reshape(x.shape[0], 1, -1)
    found = jnp.take_along_axis(x.reshape(*x.shape[:2], math.prod(spatial)), rows, axis=2)
    return jnp.where(within[:, None], found.reshape(*x.shape[:2], *flat.shape[1:]), 0)


def _cubic(t: Any) -> list[Any]:
    """The weights of the four neighbours of a place at `t` between the middle two (Keys' kernel, a = -3/4)."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


_IMAGE, _GRID = real(1, 1, 3, 3), between(-1.3, 1.4, 1, 2, 2, 2)


@functional(
    signature="input, grid, mode='bilinear', padding_mode='zeros', align_corners=None",
    samples=(
        sample(_IMAGE, _GRID), sample(_IMAGE, _GRID, padding_mode="border", align_corners=True),
        sample(_IMAGE, _GRID, padding_mode="reflection"), sample(_IMAGE, _GRID, mode="nearest"),
        sample(_IMAGE, _GRID, mode="bicubic"), sample(real(1, 1, 2, 2, 2), between(-0.9, 0.8, 1, 1, 1, 2, 3)),
    ),
)  # fmt: skip
def grid_sample(self, grid, *, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Sample `input` (batch, channels, *space) at `grid` (batch, *out, dimensions), with places in [-1, 1], x first.

    `mode`: "bilinear" (linear in three dimensions too), "nearest", or "bicubic" (two dimensions only).  Outside:
    `padding_mode` "zeros", "border" or "reflection".
    """
    require_real_floating(self, "grid_sample")
    require_same_dtype(self, grid, "grid_sample")
    n = self.ndim - 2
    if n not in (2, 3) or grid.ndim != self.ndim or grid.shape[0] != self.shape[0] or grid.shape[-1] != n:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and a grid (batch, *out, dimensions) with the same batch "
            "size, but got "
            f"input with sizes {list(self.shape)} and grid with sizes {list(grid.shape)}"
        )
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and n != 2):
        raise ValueError(f"grid_sample(): mode is 'bilinear', 'nearest' or, for 4D input, 'bicubic', but got: {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    if 0 in self.shape[2:]:
        raise RuntimeError(
            f"grid_sampler(): expected input to have non-empty spatial dimensions, got {list(self.shape)}"
        )
    align = bool(align_corners)
    spatial = self.shape[2:]
    raw = [_place(grid[..., n - 1 - i], size, align) for i, size in enumerate(spatial)]
    if mode == "bicubic":
        floors = [jnp.floor(p) for p in raw]
        weights = [_cubic(p - f) for p, f in zip(raw, floors, strict=True)]
        total: Any = 0
        for taps in product(range(4), repeat=n):
            places = [
                _inside(f + (k - 1), s, padding_mode, align) for f, k, s in zip(floors, taps, spatial, strict=True)
            ]
            weight = weights[0][taps[0]] * weights[1][taps[1]]
            total = total + _fetch(self, places) * weight[:, None]
        return total
    inside = [_inside(p, s, padding_mode, align) for p, s in zip(raw, spatial, strict=True)]
    if mode == "nearest":
        return _fetch(self, [jnp.round(p) for p in inside])
    floors = [jnp.floor(p) for p in inside]
    total = 0
    for corner in product((0, 1), repeat=n):
        weight: Any = 1
        for p, f, c in zip(inside, floors, corner, strict=True):
            weight = weight * (p - f if c else 1 - (p - f))
        total = total + _fetch(self, [f + c for f, c in zip(floors, corner, strict=True)]) * weight[:, None]
    return total


@functional(
    signature="theta, size, align_corners=None",
    samples=(
        sample(real(1, 2, 3), size=(1, 1, 2, 3)), sample(real(1, 3, 4), size=(1, 1, 2, 1, 2), align_corners=True),
    ),
)  # fmt: skip
def affine_grid(theta, *, size, align_corners=None):
    """The grid for `grid_sample` of affine maps `theta` (batch, n, n + 1); `size`: (batch, channels, *space)."""
    require_real_floating(theta, "affine_grid")
    n = len(size) - 2
    if theta.shape != (size[0], n, n + 1) or n not in (2, 3):
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape {size[0]}x{n}x{n + 1} for size {list(size)}. Got "
            f"{list(theta.shape)}."
        )

    def axis(count: int) -> Any:
        places = jnp.linspace(-1, 1, count, dtype=theta.dtype) if count > 1 else jnp.zeros(1, theta.dtype)
        return places if align_corners else places * (count - 1) / count

    places = jnp.stack(
        [*reversed(jnp.meshgrid(*(axis(s) for s in size[2:]), indexing="ij")), jnp.ones(size[2:])], axis=-1
    )
    return jnp.einsum("...k,nik->n...i", places.astype(theta.dtype), theta, precision="highest")


affine_grid.derivative(theta=linear)
FUNCTIONS[""]["affine_grid_generator"] = affine_grid.function
