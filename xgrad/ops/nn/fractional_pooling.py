"""fractional_max_pool2d, fractional_max_pool3d: max pooling by windows at random places (Graham, arXiv:1412.6071).

(PyTorch: FractionalMaxPool2d.cpp, FractionalMaxPool3d.cpp.)
"""

from itertools import product
from math import prod
from typing import Any

import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.declare import composite, internal
from ...dispatch.promotion import require_real_floating
from ...dispatch.samples import between, fixed, real, sample
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor


def _starts(random: Any, size: int, out: int, kernel: int) -> Any:
    """The first element of each window: (batch, channels, out)."""
    last = size - kernel
    if out == 1:
        return jnp.full((*random.shape, 1), last)
    step = last / (out - 1)
    places = jnp.arange(out - 1) + random[..., None]
    found = (places * step).astype(jnp.int32) - (random[..., None] * step).astype(jnp.int32)
    return jnp.concatenate([found, jnp.full((*random.shape, 1), last, found.dtype)], axis=-1)


_RANDOM = fixed(between(0, 1, 1, 2, 2))


@internal(
    "fractional_max_pool",
    namespace="nn.functional",
    samples=(
        sample(real(1, 2, 4, 3), _RANDOM, kernel=(2, 2), size=(2, 1)),
        sample(real(1, 1, 3, 3, 3), fixed(between(0, 1, 1, 1, 3)), kernel=(2, 2, 1), size=(2, 1, 2)),
    ),
)
def _pool(self, random, *, kernel, size):
    require_real_floating(self, "fractional_max_pool")
    n, space = len(size), self.shape[2:]
    # For two dimensions PyTorch uses the random numbers in reverse order.
    order = range(n) if n == 3 else range(n - 1, -1, -1)
    starts = [_starts(random[..., j], s, o, k) for j, s, o, k in zip(order, space, size, kernel, strict=True)]
    flat: Any = []
    for offsets in product(*(range(k) for k in kernel)):
        place: Any = 0
        for axis, (start, offset) in enumerate(zip(starts, offsets, strict=True)):
            shape = (*start.shape[:2], *(size[axis] if i == axis else 1 for i in range(n)))
            place = place * space[axis] + (start + offset).reshape(shape)
        flat.append(jnp.broadcast_to(place, (*self.shape[:2], *size)))
    windows = jnp.stack(flat, axis=-1)
    lead, whole = self.shape[:2], self.reshape(*self.shape[:2], prod(space))
    values = jnp.take_along_axis(whole, windows.reshape(*lead, prod(size) * prod(kernel)), axis=-1)
    best = jnp.argmax(values.reshape(windows.shape), axis=-1)[..., None]
    index = jnp.take_along_axis(windows, best, axis=-1)[..., 0]
    pooled = jnp.take_along_axis(whole, index.reshape(*lead, prod(size)), axis=-1)
    return pooled.reshape(index.shape), index.astype(dtypes.default_integer())


def _fractional(
    n: int, input: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, random: Any
) -> tuple[Tensor, Tensor]:
    """Fractional pooling of `n` dimensions: (the maxima, their indices)."""
    name = f"fractional_max_pool{n}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    single = input.ndim == n + 1
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got: {list(input.shape)}")
    x = input.unsqueeze(0) if single else input
    kernel, sizes = _many(kernel_size, n, f"{name}: kernel_size"), tuple(x.shape[2:])
    if not x.shape[1] or not prod(sizes):
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got {list(input.shape)}"
        )
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
        if not all(0 < r < 1 for r in ratios):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")
        output_size = tuple(int(s * r) for s, r in zip(sizes, ratios, strict=True))
    size = _many(output_size, n, f"{name}: output_size")
    if any(o + k - 1 > s or o < 1 or k < 1 for o, k, s in zip(size, kernel, sizes, strict=True)):
        raise RuntimeError(f"{name}(): pool size {kernel} or output size {size} too large relative to input {sizes}")
    if random is None:
        random = FUNCTIONS[""]["rand"](x.shape[0], x.shape[1], n, dtype=x.dtype, device=x.device)
    if tuple(random.shape) != (x.shape[0], x.shape[1], n) or random.dtype != x.dtype:
        raise RuntimeError(
            f"{name}(): expected _random_samples of shape {[x.shape[0], x.shape[1], n]} and the input's dtype, but got "
            f"{list(random.shape)} and {random.dtype.name}"
        )
    pooled, index = _pool.function(x, random.detach(), kernel=kernel, size=size)
    return (pooled.squeeze(0), index.squeeze(0)) if single else (pooled, index)


def _many(size: Any, n: int, what: str) -> tuple[int, ...]:
    many = tuple(int(s) for s in size) if isinstance(size, (tuple, list)) else (int(size),) * n
    if len(many) != n:
        raise RuntimeError(f"{what} must either be a single Int or tuple of Ints, of {n}, but got {list(many)}")
    return many


def _declare(n: int, with_indices: bool) -> None:
    def pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        found = _fractional(n, input, kernel_size, output_size, output_ratio, _random_samples)
        return found if with_indices or return_indices else found[0]

    pool.__name__ = pool.__qualname__ = f"fractional_max_pool{n}d" + ("_with_indices" if with_indices else "")
    pool.__doc__ = (
        f"The maxima of `output_size` (or `output_ratio` times the input's) windows in {n} dimensions, at distances "
        "drawn at random."
    )
    composite(pool.__name__, method=False, namespace="nn.functional")(pool)


for _n in (2, 3):
    _declare(_n, False)
    _declare(_n, True)
