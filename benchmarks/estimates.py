"""A backend's estimated time beside the time that the CPU takes: how far can `report.estimate()` be trusted?

Each workload of the benchmarks runs on a declared backend, whose report estimates the time with the CPU's own
`Cost.measure()`, and on the CPU, where it is timed; both in turns, for a machine has slow seconds.  Programs are
compiled before.  Prints the Markdown table of docs/concepts/costs.md; exits with 1 if a ratio is beyond 1.5.

    python -m benchmarks.estimates
"""

import os
import sys

# Before jax starts, as in __main__.py: one thread on one processor, whose time is the process's.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import time
from collections.abc import Callable
from typing import Any

import xgrad

from .ratios import WARM_UP, timed, wait_for
from .workloads import (
    SMALL,
    WIDE,
    block_step,
    block_values,
    chain_gradient,
    hessian_values,
    leaves,
    mlp,
    squares,
    written_through_views,
)


def block() -> Callable[[], Any]:
    values = block_values()
    tensors = [*leaves(values[:-1]), xgrad.tensor(values[-1])]
    return lambda: block_step(*tensors)


def hessian() -> Callable[[], Any]:
    x, *weights = leaves(hessian_values())
    grad: Any = xgrad.autograd.grad  # its declared results may be None

    def twice() -> Any:
        (first,) = grad(squares(xgrad.tanh, x, *weights), x, create_graph=True)
        return grad(first.sum(), x)

    return twice


ROUNDS = 5  # of a workload

WORKLOADS: dict[str, Callable[[], Callable[[], Any]]] = {
    "100 tiny operators and backward": lambda: chain_gradient(xgrad, 100, 4, 4),
    "20 operators on 1e6 elements and backward": lambda: chain_gradient(xgrad, 20, 1000, 1000),
    "64 view writes into 1e6 elements and backward": lambda: written_through_views(xgrad),
    "small perceptron, training step": lambda: mlp(xgrad, SMALL),
    "perceptron, training step": lambda: mlp(xgrad, WIDE),
    "transformer block and backward": block,
    "second derivative of a perceptron": hessian,
}


def reported(make: Callable[[], Callable[[], Any]], execution: str) -> Any:
    """Return the report of a call on a declared backend, whose programs are compiled."""
    backend = xgrad.Backend("chip", execution=execution)
    with backend.activate():
        run = make()
        for _ in range(WARM_UP):
            result = run()
            wait_for(result)
        with backend.report() as report:
            result = run()
            wait_for(result)
        del result  # until then it is alive, and so computed
    return report


def in_turns(report: Any, run: Callable[[], Any]) -> tuple[Any, float]:
    """Return the estimate and the seconds of a call, of the round that has the median of their ratios."""
    for _ in range(WARM_UP):
        wait_for(run())
    calls = max(1, int(0.1 / timed(run, 1)))
    rounds = []
    for _ in range(ROUNDS):
        cost = xgrad.Cost.measure(clock=time.process_time)
        rounds.append((report.estimate(cost), min(timed(run, calls) for _ in range(3))))
    rounds.sort(key=lambda found: found[0].total / found[1])
    return rounds[ROUNDS // 2]


def main() -> int:
    xgrad.disable_compile_cache()
    print("| workload | execution | estimated | measured | ratio | mostly |\n| --- | --- | --: | --: | --: | --- |")
    wrong = 0
    for name, make in WORKLOADS.items():
        for execution in ("eager", "lazy"):
            run = make()
            found, took = in_turns(reported(make, execution), run if execution == "eager" else xgrad.lazy()(run))
            ratio = found.total / took
            wrong += not 1 / 1.5 <= ratio <= 1.5
            most = max(found._fields, key=lambda field: getattr(found, field))
            row = name, execution, f"{found.total * 1e3:.2f} ms", f"{took * 1e3:.2f} ms", f"{ratio:.2f}", most
            print(f"| {' | '.join(row)} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
