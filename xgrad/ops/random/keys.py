"""draw_key: the key of a random operator, an argument of its program; inside of vmap a batch of keys."""

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import jax

from ...batching.batched_tensor import wrap
from ...config import state
from ...random import Generator, next_key
from ...tensor import Tensor, from_array

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


@functools.lru_cache(maxsize=64)
def _splitter(sizes: tuple[int, ...]) -> Any:
    return jax.jit(lambda key: jax.random.split(key, sizes))


def draw_key(generator: Generator | None = None) -> Tensor:
    """Draw the next key of a generator; a key for each entry inside of `vmap(randomness="different")`.

    Raises `RuntimeError` inside of a vmap whose randomness is "error".
    """
    levels = state.vmap_levels
    if any(level.randomness == "error" for level in levels):
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
            "randomness flags on vmap or perform the randomness operation out of vmap"
        )
    key = next_key(generator)
    split = [level for level in levels if level.randomness == "different"]
    if split:
        key = _splitter(tuple(level.size for level in split))(key)
    return functools.reduce(wrap, split, from_array(key))
