"""Bits: replaces JAX's random bits in the programs of an `xgrad.Backend(random=...)` by another generator's.

It is a pass over jaxprs.  Programs draw from a key, by `jax.random`, whose distributions are all made of the primitive
`random_bits`.  The pass puts another generator, or the user's function, in its place.  Keys are split as before: seeds
and checkpoints are the same.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .passes import rewrite

GENERATORS = ("threefry", "rbg")


class Bits:
    """The pass that lets `random` make the random bits: a generator, by its name, or a function."""

    def __init__(self, backend: str, random: Any) -> None:
        self._who = f"random of the backend '{backend}'"
        self._draw: Callable[..., Any] = random if callable(random) else _rbg if random == "rbg" else _threefry

    def __call__(self, closed: Any) -> Any:
        """Return the closed jaxpr of a program with these bits."""
        return rewrite(closed, {"random_bits": self._rule})

    def _rule(self, params: dict[str, Any], key: Any) -> Any:
        shape, width = tuple(params["shape"]), params["bit_width"]

        def drawn(words: Any) -> Any:
            bits = jnp.asarray(self._draw(words, shape, width))
            if bits.shape != shape or bits.dtype != np.dtype(f"uint{width}"):
                raise TypeError(
                    f"{self._who} gives {bits.dtype.name}{list(bits.shape)}, but has to give uint{width}{list(shape)}"
                )
            return bits

        words = jax.random.key_data(key)[..., :2]
        for _ in range(key.ndim):
            drawn = jax.vmap(drawn)
        return drawn(words)


def _threefry(words: Any, shape: tuple[int, ...], width: int) -> Any:
    key = jax.random.wrap_key_data(words, impl="threefry2x32")
    return jax.random.bits(key, shape, np.dtype(f"uint{width}"))


def _rbg(words: Any, shape: tuple[int, ...], width: int) -> Any:
    """Return the bits of XLA's generator, as `jax.random.key(seed, impl="rbg")` has them."""
    key = jax.random.wrap_key_data(jnp.concatenate([words, words]), impl="rbg")
    return jax.random.bits(key, shape, np.dtype(f"uint{width}"))


def random_named(backend: str, random: Any) -> None:
    """Check a declaration's `random`.  Raises `ValueError` for what cannot be one."""
    if random is not None and random not in GENERATORS and not callable(random):
        raise ValueError(
            f"Backend '{backend}': random is 'threefry', 'rbg', or a function of (key, shape, bits) that returns "
            f"unsigned integers of so many bits, but got {random!r}"
        )
