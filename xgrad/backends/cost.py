"""Cost: how long a device takes for a launch, a byte, an operation, a program; measured, or made up."""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..autograd.grad_mode import no_grad
from ..base.devices import placement_of
from ..execution.pending import quietly
from ..execution.runner import suspended
from ..tensor import from_foreign


@dataclass(frozen=True)
class Cost:
    """Times of a device, for the estimate of a report.

    `launch`: seconds to start a program.  `bandwidth`: bytes a second of its memory.  `flops`: floating-point
    operations a second.  `compile`: seconds to compile a program.  `host_link`: bytes a second from and to the host.
    `host`: seconds of Python for an operator, to record it and to launch or note it.
    `latency`: seconds of a transfer over the link beside its bytes, None: as many as `launch`.  An operator that the
    host computes waits for two.  `host_flops`, `host_bandwidth`: of the host, for what it computes.

    A program of one operator takes `host + launch + max(flops of it / flops, bytes of it / bandwidth)`.  Several fused
    take `host` for each, and the sum of both in place of the larger: some of its parts wait for memory, others compute.

    Raises `TypeError` and `ValueError` for a value that is not a positive number (zero seconds are allowed).

    >>> import xgrad
    >>> xgrad.Cost(launch=5e-5).launch
    5e-05
    """

    launch: float = 1e-5
    bandwidth: float = 1e11
    flops: float = 1e12
    compile: float = 0.1
    host_link: float = 1e10
    host: float = 0.0
    latency: float | None = None
    host_flops: float = 1e10
    host_bandwidth: float = 1e10

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "latency" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"Cost: {f.name} must be a number, but got {value!r}")
            if not (value > 0 or (value == 0 and f.name in ("launch", "compile", "host", "latency"))):
                raise ValueError(f"Cost: {f.name} must be positive, but got {value!r}")
            if f.name in ("launch", "host", "latency") and value > 1:
                raise ValueError(f"Cost: {f.name} is in seconds, and {value!r} are many: 50 µs are {f.name}=50e-6")

    @property
    def transfer(self) -> float:
        """Seconds of a transfer beside its bytes: `latency`, or `launch` if that is None."""
        return self.launch if self.latency is None else self.latency

    @staticmethod
    def measure(device: Any = "cpu", clock: Callable[[], float] = time.perf_counter) -> "Cost":
        """Return the times of one of JAX's devices, measured in some two seconds.

        A busy machine gives larger ones, unless `clock` is `time.process_time`, and the process has one thread for the
        CPU that computes.  Raises `TypeError` if `device` is not one of JAX's.
        """
        where = placement_of(device)
        if not isinstance(where, jax.Device):
            raise TypeError(f"Cost.measure() measures a device of JAX's, such as 'cpu' or 'gpu:0', not {device!r}")
        tiny, large = jax.device_put(jnp.ones(8), where), jax.device_put(jnp.ones(1 << 22), where)
        square = jax.device_put(jnp.ones((512, 512)), where)
        host = np.ones(1 << 22, np.float32)
        add, product = jax.jit(lambda x: x + 1), jax.jit(lambda x: x @ x)
        launch = _seconds(lambda: add(tiny), 200, clock)
        moved = _seconds(lambda: add(large), 10, clock) - launch
        multiplied = _seconds(lambda: product(square), 10, clock) - launch
        with suspended("a measurement"):
            eager = _seconds(tiny_step(where), 10, clock) / PROGRAMS
        sent = _seconds(lambda: jax.device_put(host, where, may_alias=False), 10, clock)
        return Cost(
            launch=launch,
            bandwidth=2 * large.nbytes / max(moved, 1e-9),
            flops=2 * 512**3 / max(multiplied, 1e-9),
            compile=median(_compile_seconds(n, tiny, clock) for n in range(3)),
            host_link=host.nbytes / max(sent, 1e-9),
            host=max(eager - launch, 0.0),
        )


def _seconds(call: Callable[[], Any], times: int, clock: Callable[[], float]) -> float:
    jax.block_until_ready(call())
    found = []
    for _ in range(5):
        start = clock()
        jax.block_until_ready([call() for _ in range(times)])
        found.append((clock() - start) / times)
    return min(found)


def tiny_step(device: Any) -> Callable[[], Any]:
    """Return a training step of a perceptron so small that Python takes most of its time: `PROGRAMS` programs."""
    square = np.full((8, 8), 0.1, np.float32)
    x, w, v = (from_foreign(array).to(device) for array in (square, square, square))
    b, c = (from_foreign(square[0]).to(device) for _ in range(2))
    weights = [weight.clone().requires_grad_() for weight in (w, b, v, c)]

    def step() -> Any:
        w, b, v, c = weights
        h = (x @ w + b).tanh()
        for _ in range(3):
            h = (h * 0.5 + 1).exp()
        (h @ v + c).sum().backward()
        with no_grad():
            for weight in weights:
                grad: Any = weight.grad
                weight.sub_(grad, alpha=1e-3)
                weight.grad = None
        return [quietly(weight._read()) for weight in weights]

    return step


PROGRAMS = 32  # of `tiny_step`: 15 forward, 13 backward, 4 writes


def _compile_seconds(n: int, x: Any, clock: Callable[[], float]) -> float:
    start = clock()
    jax.jit(lambda x: jnp.tanh(x * (n + 2)) + time.perf_counter_ns() % 1_000_003).lower(x).compile()
    return clock() - start
