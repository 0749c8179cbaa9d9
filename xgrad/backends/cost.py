"""Cost: speeds of an imaginary device (launch, memory, arithmetic), by which an `xgrad.Backend` estimates its time."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..autograd.grad_mode import no_grad
from ..base.devices import placement_of
from ..execution.lazily import lazy
from ..execution.pending import quietly
from ..execution.runner import suspended
from ..tensor import from_foreign
from .collectives import Schedule
from .tiles import of_dtype
from .timeline import Timeline
from .without import DTYPES, instead, operators
from .without_hlo import OPERATIONS
from .work import Work


class Parts(NamedTuple):
    """Seconds of a program, without its launch: of arithmetic, of its memory, and of what chips send one another."""

    compute: float
    memory: float
    chips: float = 0.0

    @property
    def busy(self) -> float:
        """Seconds for which it occupies the device."""
        return self.compute + self.memory

    def plus(self, other: "Parts", count: int = 1) -> "Parts":
        """Return the sum with so many of another one."""
        return Parts(*[a + count * b for a, b in zip(self, other)])


_ZERO = ("launch", "compile", "host", "note", "latency", "chip_latency")  # seconds, which may be 0
DTYPE_NAMES = frozenset([dtype.name for dtype in DTYPES])
_ABSENT = ("note", "latency", "fast", "tiles")  # may be None


@dataclass(frozen=True)
class Cost:
    """Speeds of a device, for the estimate of a backend's report, and for its simulated clock.

    `launch`: seconds to start a program.  `bandwidth`: bytes a second of its memory.  `flops`: floating-point
    operations a second.  Both may be {dtype's name: number}, with "*" for all others.
    `compile`: seconds to compile a program.  `host_link`: bytes a second from and to the host.
    `host`: seconds of Python for an operator, to record and launch it.  `note`: for one that a queue notes, None: as
    many as `host`.
    `latency`: seconds of a transfer over the link beside its bytes, None: as many as `launch`.  An operator that the
    host computes waits for two.  `host_flops`, `host_bandwidth`: of the host, for what it computes.

    `rules`: {operator, or operation of StableHLO: seconds}, in place of its arithmetic; its bytes still count.  A
    number, or a function of an `xgrad.backends.Operation`: {"sort": 1e-3, "matmul": lambda op: op.flops / 1e13}.
    `tiles`: the last dimensions of arrays are stored in whole tiles, (8, 128); a dict has them by dtype.  Padding
    counts in the backend's memory and in the time.
    `fast`: bytes of a second, faster memory, of `fast_bandwidth`.  A program reads what is there, and what it made,
    from there; the rest is moved in, and what was used least recently out, over `bandwidth`.
    `chip_link`: bytes a second between chips, `chip_latency` seconds of each step from one to the next.
    `queues`: programs of different streams that run at once.

    A program of one operator takes `host + launch + max(flops of it / flops, bytes of it / bandwidth)`.  Several fused
    take `host` for each, and the sum of both in place of the larger: some of its parts wait for memory, others compute.

    Raises `TypeError` and `ValueError` for a value that is not a positive number (zero seconds are allowed).

    >>> import xgrad
    >>> xgrad.Cost(launch=5e-5).launch
    5e-05
    """

    launch: float = 1e-5
    bandwidth: float | Mapping[str, float] = field(default=1e11, hash=False)
    flops: float | Mapping[str, float] = field(default=1e12, hash=False)
    compile: float = 0.1
    host_link: float = 1e10
    host: float = 0.0
    latency: float | None = None
    host_flops: float = 1e10
    host_bandwidth: float = 1e10
    note: float | None = None
    rules: Mapping[str, float | Callable[[Any], float]] = field(default_factory=dict, hash=False)
    tiles: Any = field(default=None, hash=False)
    fast: int | None = None
    fast_bandwidth: float = 1e12
    chip_link: float = 5e10
    chip_latency: float = 1e-6
    queues: int = 1

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if (value is None and f.name in _ABSENT) or f.name in ("tiles", "rules"):
                continue
            if isinstance(value, Mapping) and f.name in ("flops", "bandwidth"):
                object.__setattr__(self, f.name, _by_dtype(f.name, value))
                for dtype, each in value.items():
                    _check(f"{f.name} of {dtype}", f.name, each)
                continue
            _check(f.name, f.name, value)
            if f.name in ("fast", "queues") and not isinstance(value, int):
                raise TypeError(f"Cost: {f.name} must be an int, but got {value!r}")
        if isinstance(self.tiles, Mapping):
            object.__setattr__(self, "tiles", {k: _tile(v) for k, v in _by_dtype("tiles", self.tiles).items()})
        elif self.tiles is not None:
            object.__setattr__(self, "tiles", _tile(self.tiles))
        if not isinstance(self.rules, Mapping):
            raise TypeError(f"Cost: rules is {{operator: seconds or function}}, but got {self.rules!r}")
        for name, rule in self.rules.items():
            if not callable(rule):
                _check(f"the rule of {name!r}", "compile", rule)
            if name.startswith("stablehlo."):
                if name.removeprefix("stablehlo.") not in OPERATIONS:
                    raise ValueError(f"Cost: rules has {name!r}, which is not an operation of StableHLO")
            elif not re.fullmatch(r"\w+Backward\d*", name) and name not in (known := operators()):
                raise ValueError(f"Cost: rules has {name!r}, which is not an operator. {instead(name, known)}")
        object.__setattr__(self, "rules", dict(self.rules))

    @property
    def transfer(self) -> float:
        """Seconds of a transfer beside its bytes: `latency`, or `launch` if that is None."""
        return self.launch if self.latency is None else self.latency

    @property
    def noting(self) -> float:
        """Seconds of Python for an operator that a queue notes: `note`, or `host` if that is None."""
        return self.host if self.note is None else self.note

    def parts(self, work: Work, traffic: tuple[float, float] | None = None) -> Parts:
        """Return the seconds of a program, without its launch.

        `traffic`: its bytes from and to the memory, and from and to the fast one.
        """
        if isinstance(self.flops, Mapping) or self.rules:
            flops, compute = work.flops_by(self.rules)
            compute += sum(count / _rate(self.flops, dtype) for dtype, count in flops.items())
        else:
            compute = work.flops / self.flops
        moved = work.bytes_by(self.tiles)
        memory = sum(size / _rate(self.bandwidth, dtype) for dtype, size in moved.items())
        if traffic is not None:
            memory = traffic[0] * memory / max(sum(moved.values()), 1.0) + traffic[1] / self.fast_bandwidth
        if not work.fused:
            compute, memory = (compute, 0.0) if compute > memory else (0.0, memory)
        return Parts(compute, memory, sum(self.between(c.sent, c.steps) for c in work.collectives))

    def between(self, size: float, steps: int = 1) -> float:
        """Return the seconds in which a chip sends so many bytes to others, in `steps` one after the other."""
        return size / self.chip_link + steps * self.chip_latency

    def timeline(self, report: Any) -> Timeline:
        """Return the simulated time of one run on each chip of a target: of what `compiled_for` says of a program.

        What the program computes takes as long as the target's compiler estimates; what chips send one another
        `chip_link` and `chip_latency`, around a ring.  Raises `ValueError` for a program that has no estimate: one that
        does not compile, or whose compiler gives none (a GPU's).
        """
        answer = report.answer
        if answer.state != "compiles" or answer.estimated_seconds is None or not report.cycles:
            raise ValueError(
                f"{report.name} on {report.target.name}: {answer.said or 'its compiler estimates no time'}"
            )
        second = answer.estimated_seconds / report.cycles
        found = Schedule(answer.hlo, report.target.devices, second, self.between)
        return Timeline(f"{report.name} on {report.target.name}", found.spans, found.end, None, answer.peak)

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
            step = tiny_step(where)
            eager = _seconds(step, 10, clock) / PROGRAMS
            noted = (_seconds(lazy()(step), 10, clock) - launch) / PROGRAMS
        sent = _seconds(lambda: jax.device_put(host, where, may_alias=False), 10, clock)
        return Cost(
            launch=launch,
            bandwidth=2 * large.nbytes / max(moved, 1e-9),
            flops=2 * 512**3 / max(multiplied, 1e-9),
            compile=median(_compile_seconds(n, tiny, clock) for n in range(3)),
            host_link=host.nbytes / max(sent, 1e-9),
            host=max(eager - launch, 0.0),
            note=max(noted, 0.0),
        )


def _check(what: str, name: str, value: Any) -> None:
    """Raise unless a value is a positive number, or zero seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"Cost: {what} must be a number, but got {value!r}")
    if not (value > 0 or (value == 0 and name in _ZERO)):
        raise ValueError(f"Cost: {what} must be positive, but got {value!r}")
    if name in _ZERO and name != "compile" and value > 1:
        raise ValueError(f"Cost: {what} is in seconds, and {value!r} are many: 50 µs are {name}=50e-6")


def _by_dtype(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict by dtypes' names.  Raises `ValueError` for a name that is none, or no names."""
    if not values:
        raise ValueError(f"Cost: {name} is empty")
    for dtype in values:
        if dtype != "*" and dtype not in DTYPE_NAMES:
            raise ValueError(f"Cost: {name} has {dtype!r}, which is not a dtype's name, such as 'float32', or '*'")
    return dict(values)


def _tile(value: Any) -> tuple[int, ...]:
    if isinstance(value, (tuple, list)) and value and all(n.__class__ is int and n > 0 for n in value):
        return tuple(value)
    raise TypeError(f"Cost: tiles are sizes of the last dimensions, such as (8, 128), but got {value!r}")


def _rate(values: Any, dtype: str) -> float:
    """Return the rate of a dtype; one that is not told is as slow as the slowest."""
    found = of_dtype(values, dtype)
    return min(values.values()) if found is None else found


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
        for _ in range(6):
            h = (h * 0.5 + 1).exp()
        (h @ v + c).sum().backward()
        with no_grad():
            for weight in weights:
                grad: Any = weight.grad
                weight.sub_(grad, alpha=1e-3)
                weight.grad = None
        return [quietly(weight._read()) for weight in weights]

    return step


PROGRAMS = 47  # of `tiny_step`: 24 forward, 19 backward, 4 writes


def _compile_seconds(n: int, x: Any, clock: Callable[[], float]) -> float:
    start = clock()
    jax.jit(lambda x: jnp.tanh(x * (n + 2)) + time.perf_counter_ns() % 1_000_003).lower(x).compile()
    return clock() - start
