"""Computes JAX's random numbers (threefry) in Python and NumPy, so that the first of them need no compiled program.

A program with threefry takes 0.1 s to compile, and a model has one for each shape of its weights.  So the first keys
and the first numbers of each shape are computed here, by Python's integers and by NumPy, bit for bit as `jax.random`
computes them with its default generator and counters (`jax_threefry_partitionable`).

Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011), Threefry-2x32 with
20 rounds.
"""

import jax
import numpy as np

Words = tuple[int, int]  # a key

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MASK = 0xFFFFFFFF
_BLOCK = 1 << 14  # numbers that the processor's cache holds with all that is computed of them


def is_default() -> bool:
    """Return True if JAX's options say that keys and counters are as here."""
    config = jax.config
    return (
        config.jax_default_prng_impl == "threefry2x32"  # pyright: ignore[reportAttributeAccessIssue] - made at run time
        and config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
        and config.jax_random_seed_offset == 0  # pyright: ignore[reportAttributeAccessIssue]
    )


def encrypt(key: Words, high: int, low: int) -> Words:
    """Return the two words that threefry makes of a counter's two words."""
    injected = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = (high + key[0]) & _MASK, (low + key[1]) & _MASK
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            x = (x + y) & _MASK
            y = ((y << r) & _MASK | y >> (32 - r)) ^ x
        x = (x + injected[(i + 1) % 3]) & _MASK
        y = (y + injected[(i + 2) % 3] + i + 1) & _MASK
    return x, y


def key_of(seed: int) -> Words:
    """Return the key of a seed of 64 bits: its lower word's key; with an upper word, that one is folded in."""
    key = 0, seed & _MASK
    return encrypt(key, 0, seed >> 32) if seed >> 32 else key


def split(key: Words) -> tuple[Words, Words]:
    """Return two keys (`jax.random.split`)."""
    return encrypt(key, 0, 0), encrypt(key, 0, 1)


def bits(key: Words, count: int) -> np.ndarray:
    """Return `count` numbers of 32 random bits, an array of uint32 (`jax.random.bits`).  20 ns each."""
    out = np.empty(count, np.uint32)
    injected = [np.uint32(word) for word in (*key, key[0] ^ key[1] ^ _PARITY)]
    spare = np.empty(min(count, _BLOCK), np.uint32)
    for start in range(0, count, _BLOCK):
        y = np.arange(start, min(start + _BLOCK, count), dtype=np.uint32)
        x, other = np.full_like(y, injected[0]), spare[: y.size]
        y += injected[1]
        for i in range(5):
            for r in _ROTATIONS[i % 2]:
                x += y
                np.left_shift(y, np.uint32(r), out=other)
                y >>= np.uint32(32 - r)
                y |= other
                y ^= x
            x += injected[(i + 1) % 3]
            y += injected[(i + 2) % 3]
            y += np.uint32(i + 1)
        np.bitwise_xor(x, y, out=out[start : start + y.size])
    return out


def uniform(key: Words, count: int) -> np.ndarray:
    """Return float32 numbers from 0 to, and without, 1 (`jax.random.uniform`)."""
    return (bits(key, count) >> np.uint32(9) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)


def integers(key: Words, count: int, low: int, high: int) -> np.ndarray:
    """Return int32 numbers from `low` to, and without, `high` (`jax.random.randint`): two words a number."""
    above, below = (bits(half, count) for half in split(key))
    span = high - low
    factor = ((1 << 16) % span) ** 2 % (1 << 32) % span
    above, below = above % np.uint32(span), below % np.uint32(span)
    offset = (above * np.uint32(factor) + below) % np.uint32(span)
    return offset.astype(np.int32) + np.int32(low)
