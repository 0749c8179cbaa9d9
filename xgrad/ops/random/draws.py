"""uniform, normal, exponential, integers: draw numbers within a compiled program, for the random operators.

A `key` of one dimension is a key of jax.random; one of two, (1, numel), has random bits that the host made of a key, as
32-bit words (`keys.draw_words`).
"""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes

_LONG = 2**24  # numbers that are drawn in their own shape: a mesh divides them among its devices


def in_a_row(draw: Callable[..., Any], key: Any, shape: tuple[int, ...], *args: Any) -> Any:
    """Return `draw(key, shape, *args)` of jax.random, drawn as a vector.

    The numbers are the same.  XLA compiles threefry for a vector in 0.3 s of a slow core, for four dimensions in 1.2 s:
    a model has a program for each shape of its weights.
    """
    length = prod(shape)
    if len(shape) < 2 or length > _LONG:
        return draw(key, shape, *args)
    return draw(key, (length,), *args).reshape(shape)


def uniform(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return numbers on [0, 1).  Words give float32 numbers, the same as `jax.random.uniform` for the key."""
    if key.ndim == 2:
        return _unit(key).reshape(shape)
    if dtype in dtypes.COMPLEX:
        re, im = in_a_row(jax.random.uniform, key, (2, *shape), dtypes.real_of(dtype))
        return jax.lax.complex(re, im)
    drawn = in_a_row(jax.random.uniform, key, shape, drawn_in(dtype))
    if dtype.itemsize < 4:  # rounding would give 1: as many bits as the dtype has below 1, as in PyTorch
        steps = 2.0 ** (jnp.finfo(dtype).nmant + 1)
        drawn = jnp.floor(drawn * steps) / steps
    return drawn.astype(dtype)


def normal(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return numbers of the normal distribution.  Words give float32 numbers, the same as `jax.random.normal`."""
    if key.ndim == 2:
        least = np.nextafter(np.float32(-1), np.float32(0))
        inside = jax.lax.max(least, _unit(key) * (1 - least) + least)
        return (np.float32(np.sqrt(2)) * jax.lax.erf_inv(inside)).reshape(shape)
    return in_a_row(jax.random.normal, key, shape, drawn_in(dtype)).astype(dtype)


def exponential(key: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return numbers of the exponential distribution, in `drawn_in(dtype)`, none of them 0, as in PyTorch."""
    dtype = drawn_in(dtype)
    return jnp.maximum(jax.random.exponential(key, shape, dtype), jnp.finfo(dtype).eps / 2)


def _unit(words: Any) -> Any:
    """Return float32 numbers on [0, 1) with 23 random bits, as `jax.random.uniform`."""
    return jax.lax.bitcast_convert_type(words >> 9 | np.uint32(0x3F800000), jnp.float32) - 1


def drawn_in(dtype: Any) -> Any:
    """The dtype in which numbers are drawn: of bfloat16 jax.random draws 128 different ones, none beyond 3."""
    return jnp.float32 if dtype in dtypes.FLOATS and dtype.itemsize < 4 else dtype


def integers(key: Any, low: Any, high: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return integers from `low` to, and without, `high`, in any dtype."""
    wide = dtype if dtype in dtypes.INTEGERS else dtypes.default_integer()
    return jax.random.randint(key, shape, low, high, wide).astype(dtype)
