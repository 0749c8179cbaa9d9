"""Gives random operators a PRNG key, or random bits or numbers that NumPy makes of it, to spare compiling a program.

`draw_key` returns a key.  The first numbers of each operator and shape come from the host (create/host_first.py):
`draw_early` returns the numbers, `draw_words` the random bits, as 32-bit words, that a program makes into numbers.
"""

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import jax

from ...base import dtypes, threefry
from ...batching.batched_tensor import wrap
from ...config import state
from ...execution.donation import sent
from ...random import Generator, next_key, next_words
from ...tensor import Tensor, from_array
from ..create.host_first import is_early


def draw_words(generator: Generator | None, name: str, shape: Any, dtype: Any, placement: Any) -> Tensor:
    """Return random words for the program `name`, of shape (1, numel), if the host draws now; else the next key."""
    words = _early_words(generator, name, shape, placement) if dtype == dtypes.float32 else None
    if words is None:
        return draw_key(generator)
    return from_array(jax.device_put(threefry.bits(words, prod(shape))[None]))


def draw_early(
    generator: Generator | None, name: str, shape: tuple[int, ...], placement: Any, numbers: Callable[..., Any]
) -> Tensor | None:
    """Return a tensor of the host's `numbers(words of a key, numel)`; None if a program shall draw it."""
    words = _early_words(generator, name, shape, placement)
    return None if words is None else from_array(sent(numbers(words, prod(shape)).reshape(shape), placement))


def _early_words(generator: Generator | None, name: str, shape: Any, placement: Any) -> threefry.Words | None:
    return next_words(generator) if is_early((name, shape, placement), shape, placement) else None


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
            "randomness flags on vmap or perform the randomness operation out of vmap. Batches of gradients "
            "(is_grads_batched, check_batched_grad) have no such flag: vmap: We do not yet support calling random "
            "operations inside of vmap there."
        )
    key = next_key(generator)
    split = [level for level in levels if level.randomness == "different"]
    if split:
        key = _splitter(tuple(level.size for level in split))(key)
    return functools.reduce(wrap, split, from_array(key))
