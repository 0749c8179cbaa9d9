"""draw_key: the key of a random operator, an argument of its program; inside of vmap a batch of keys."""

import functools
from typing import Any

import jax

from ...batching.batched_tensor import wrap
from ...config import state
from ...random import Generator, next_key
from ...tensor import Tensor, from_array


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
