"""Cost: how long a device takes for a launch, a byte, an operation, a program; measured, or made up."""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..devices import placement_of


@dataclass(frozen=True)
class Cost:
    """Times of a device, for the estimate of a report.

    `launch`: seconds to start a program.  `bandwidth`: bytes a second of its memory.  `flops`: floating-point
    operations a second.  `compile`: seconds to compile a program.  `host_link`: bytes a second from and to the host.

    A program takes `launch + max(flops of it / flops, bytes of it / bandwidth)`.

    Raises `TypeError` and `ValueError` for what is no positive number (zero seconds are allowed).

    >>> import xgrad
    >>> xgrad.Cost(launch=5e-5).launch
    5e-05
    """

    launch: float = 1e-5
    bandwidth: float = 1e11
    flops: float = 1e12
    compile: float = 0.1
    host_link: float = 1e10

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"Cost: {f.name} must be a number, but got {value!r}")
            if not (value > 0 or (value == 0 and f.name in ("launch", "compile"))):
                raise ValueError(f"Cost: {f.name} must be positive, but got {value!r}")

    @staticmethod
    def measure(device: Any = "cpu") -> "Cost":
        """Return the times of one of JAX's devices, measured in some two seconds.

        A busy machine gives larger ones.  Raises `TypeError` if `device` is none of JAX's.
        """
        where = placement_of(device)
        if not isinstance(where, jax.Device):
            raise TypeError(f"Cost.measure() measures a device of JAX's, such as 'cpu' or 'gpu:0', not {device!r}")
        tiny, large = jax.device_put(jnp.ones(8), where), jax.device_put(jnp.ones(1 << 22), where)
        square = jax.device_put(jnp.ones((512, 512)), where)
        host = np.ones(1 << 22, np.float32)
        add, product = jax.jit(lambda x: x + 1), jax.jit(lambda x: x @ x)
        launch = _seconds(lambda: add(tiny), 200)
        moved = _seconds(lambda: add(large), 10) - launch
        multiplied = _seconds(lambda: product(square), 10) - launch
        sent = _seconds(lambda: jax.device_put(host, where, may_alias=False), 10)
        return Cost(
            launch=launch,
            bandwidth=2 * large.nbytes / max(moved, 1e-9),
            flops=2 * 512**3 / max(multiplied, 1e-9),
            compile=median(_compile_seconds(n, tiny) for n in range(3)),
            host_link=host.nbytes / max(sent, 1e-9),
        )


def _seconds(call: Callable[[], Any], times: int) -> float:
    jax.block_until_ready(call())
    found = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready([call() for _ in range(times)])
        found.append((time.perf_counter() - start) / times)
    return min(found)


def _compile_seconds(n: int, x: Any) -> float:
    start = time.perf_counter()
    jax.jit(lambda x: jnp.tanh(x * (n + 2)) + time.perf_counter_ns() % 1_000_003).lower(x).compile()
    return time.perf_counter() - start
