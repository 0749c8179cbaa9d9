"""ordered: sorts elements and their indices along a dimension, for sort, topk, median, kthvalue, mode, ...

XLA's CPU sorts pairs, and floats, by a comparator that it calls for each comparison; it sorts integers directly.  So on
a CPU an element of up to 32 bits and its position become one 64-bit integer: the high bits compare as the element does,
the low bits are the position, which makes the sort stable.  1e6 floats with indices take 75 ms in place of 350.
Elsewhere, and for wider elements, values and positions are sorted as a pair.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...base.limits import x64_for_now

_UNSIGNED = (dtypes.bool, dtypes.uint8, dtypes.uint16, dtypes.uint32)
_SIGN, _INFINITY, _NAN = np.uint32(1 << 31), np.uint32(0x7F800000), np.uint32(0x7FC00000)


def ordered(x: Any, dim: int, descending: bool = False) -> tuple[Any, Any]:
    """(values, indices) sorted along `dim`, NaN as the greatest; equal elements keep their order.  Real dtypes."""
    if not x.size:  # jax 0.7 cannot differentiate a sort of nothing
        return x, jax.lax.broadcasted_iota(dtypes.default_integer(), x.shape, dim)
    if x.dtype.itemsize > 4 or x.shape[dim] > np.iinfo(np.int32).max:
        return _as_pair(x, dim, descending)
    return jax.lax.platform_dependent(
        x, cpu=lambda x: _packed(x, dim, descending), default=lambda x: _as_pair(x, dim, descending)
    )


def _as_pair(x: Any, dim: int, descending: bool) -> tuple[Any, Any]:
    pair = (x, jax.lax.broadcasted_iota(dtypes.default_integer(), x.shape, dim))
    if not descending:
        first, second = jax.lax.sort(pair, dimension=dim, num_keys=1)
        return first, second
    # Reversed, sorted in ascending order, and reversed again: so equal elements keep their order.
    first, second = jax.lax.sort([jnp.flip(x, dim) for x in pair], dimension=dim, num_keys=1)
    return jnp.flip(first, dim), jnp.flip(second, dim)


def _packed(x: Any, dim: int, descending: bool) -> tuple[Any, Any]:
    key = _key(x)
    halves = jnp.stack([jax.lax.broadcasted_iota(jnp.uint32, x.shape, dim), ~key if descending else key], axis=-1)
    with x64_for_now():
        numbers = jax.lax.bitcast_convert_type(halves, jnp.uint64)
        found = jax.lax.bitcast_convert_type(jax.lax.sort(numbers, dimension=dim), jnp.uint32)
    indices = found[..., 0].astype(dtypes.default_integer())
    return jnp.take_along_axis(x, indices, dim, mode="promise_in_bounds"), indices


def _key(x: Any) -> Any:
    """Unsigned 32-bit numbers that compare as the elements do."""
    if x.dtype in _UNSIGNED:
        return x.astype(jnp.uint32)
    if x.dtype not in dtypes.INEXACT:
        return jax.lax.bitcast_convert_type(x.astype(jnp.int32), jnp.uint32) ^ _SIGN
    if x.dtype == dtypes.bfloat16:
        bits = jax.lax.bitcast_convert_type(x, jnp.uint16).astype(jnp.uint32) << 16
    else:
        bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    # All NaNs are equal, and so are both zeros.  Compared by bits: for XLA's CPU subnormal numbers equal zero.
    magnitude = bits & ~_SIGN
    bits = jnp.where(magnitude > _INFINITY, _NAN, jnp.where(magnitude == 0, 0, bits))
    return jnp.where(bits >= _SIGN, ~bits, bits | _SIGN)
