"""A short, honest table: what xgrad costs beside the bare jitted kernel, and beside eager jax.numpy.

Ratios within one run, of medians that were taken in turn (A B A B); below 1, xgrad is the faster.  Nothing here is a
time that another machine would show.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

_ROUNDS = 25
_SECONDS_A_ROUND = 0.01


class Pair(NamedTuple):
    """What is measured, and against what."""

    name: str
    ours: Callable[[], Any]
    against: str
    theirs: Callable[[], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None beside --help."""


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    import jax

    print(f"on {jax.devices()[0].device_kind}, jax {jax.__version__}; ratios of medians\n")
    print(f"{'':<44}{'against':<34}{'ratio':>7}")
    for pair in pairs():
        print(f"{pair.name:<44}{pair.against:<34}{ratio(pair):>7.2g}", flush=True)
    return 0


def ratio(pair: Pair) -> float:
    """The time of the one over that of the other."""
    times: tuple[list[float], list[float]] = ([], [])
    calls = [1, 1]
    for which, function in enumerate((pair.ours, pair.theirs)):
        wait_for(function())  # compiles
        start = time.perf_counter()
        wait_for(function())
        calls[which] = max(1, int(_SECONDS_A_ROUND / max(time.perf_counter() - start, 1e-7) / 2))
    for _ in range(_ROUNDS):
        for which, function in enumerate((pair.ours, pair.theirs)):
            start = time.perf_counter()
            last = None
            for _ in range(calls[which]):
                last = function()
            wait_for(last)
            times[which].append((time.perf_counter() - start) / calls[which])
    return median(times[0]) / median(times[1])


def wait_for(result: Any) -> None:
    """Until an array, or what a tensor shows, has been computed.  A tensor's array is not held: it may be donated."""
    import jax

    jax.block_until_ready(result._share().array if hasattr(result, "_share") else result)


def pairs() -> Iterator[Pair]:
    import jax
    import jax.numpy as jnp

    import xgrad

    small = jnp.full((4, 4), 0.5)
    x, w = xgrad.as_tensor(small), xgrad.full((4, 4), 0.5, requires_grad=True)
    kernel = jax.jit(lambda a, b: a * b)

    yield Pair("4x4 product, recorded", lambda: (w * x)._read(), "the bare jitted kernel", lambda: kernel(small, small))
    yield Pair("4x4 product, not recorded", lambda: (x * x)._read(), "eager jax.numpy", lambda: small * small)

    big = jnp.zeros((64, 1024))
    b = xgrad.zeros(64, 1024, requires_grad=True)
    yield Pair("x[3] of (64, 1024), recorded and read", lambda: b[3]._read(), "eager jax.numpy", lambda: big[3])
    yield Pair("x.t() of (64, 1024), recorded and read", lambda: b.t()._read(), "eager jax.numpy", lambda: big.T)

    def write(n: int) -> Callable[[], Any]:
        base, new = xgrad.zeros(n), xgrad.ones(16)

        def once() -> Any:
            base[16:32].copy_(new)
            return base

        return once

    small_root, large_root = write(10**4), write(10**6)
    name = "16 elements written in place into 1e6"
    yield Pair(name, large_root, "the same into 1e4", small_root)
    root, ones = jnp.zeros(10**6), jnp.ones(16)
    yield Pair(name, large_root, "eager .at[16:32].set", lambda: root.at[16:32].set(ones))

    def forward_backward() -> Any:
        (gradient,) = xgrad.autograd.grad((w * x).sum(), w)
        return gradient

    name = "product and sum, forward and backward"
    derivative = jax.jit(jax.value_and_grad(lambda a, c: (a * c).sum()))
    yield Pair(name, forward_backward, "jax.grad of it, jitted", lambda: derivative(small, small))
    eager = jax.grad(lambda a, c: (a * c).sum())
    yield Pair(name, forward_backward, "jax.grad of it, eager", lambda: eager(small, small))
