"""Rows that need eight devices: a step on a mesh, against `jax.jit` with the same shardings.

They are measured in a process of their own, for which XLA makes eight devices of the CPU: this module as a program,
with a row's name, rounds and seconds, prints the times of the rounds.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

if __name__ == "__main__":  # before jax starts
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import jax
from jax.sharding import PartitionSpec as P

import xgrad

from .ratios import Row, Timed
from .workloads import SMALL, WIDE, mlp_step, mlp_step_by_jax, mlp_values

SHARDED = "sharded"


def data_parallel(size: tuple) -> Timed:
    """A perceptron's step: the batch split over eight devices, the weights copied to each."""
    values, rest = mlp_values(*size)
    with xgrad.mesh({"data": 8}):
        weights = [xgrad.tensor(value, device=P(), requires_grad=True) for value in values]
        batch = [xgrad.tensor(value, device=P("data")) for value in rest]
    ours = xgrad.compile(lambda *tensors: mlp_step(xgrad, *tensors))
    arrays = [jax.device_put(value, w.sharding) for value, w in zip(values, weights)]
    parts = [jax.device_put(value, x.sharding) for value, x in zip(rest, batch)]
    kept = [w.sharding for w in weights]
    step = jax.jit(mlp_step_by_jax(), donate_argnums=0, out_shardings=[None, *kept])

    def theirs() -> list[jax.Array]:
        nonlocal arrays
        result = step(arrays, *parts)
        arrays = result[1:]
        return result

    return Timed(lambda: ours(*weights, *batch), theirs, tolerance=1e-3)


SIDES = {"data_parallel": lambda: data_parallel(WIDE), "data_parallel_small": lambda: data_parallel(SMALL)}


def _nothing() -> None:
    """What is timed is not here."""


@dataclass(frozen=True)
class Elsewhere(Timed):
    """Two sides in a process with eight devices."""

    ours: Callable[[], Any] = _nothing
    theirs: Callable[[], Any] = _nothing
    name: str = ""

    def samples(self, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
        command = [sys.executable, "-m", "benchmarks.sharded", self.name, str(rounds), str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        ours, theirs = json.loads(done.stdout.splitlines()[-1])
        return ours, theirs


ROWS = [
    Row(
        "data_parallel", SHARDED, "MLP step on 8 devices, data-parallel", "jax.jit, same shardings",
        lambda: Elsewhere(name="data_parallel"), 1.05, 1.0,
    ),
    Row(
        "data_parallel_small", SHARDED, "small MLP step on 8 devices", "jax.jit, same shardings",
        lambda: Elsewhere(name="data_parallel_small"),
    ),
]  # fmt: skip

if __name__ == "__main__":
    name, rounds, seconds = sys.argv[1:]
    print(json.dumps(SIDES[name]().samples(int(rounds), float(seconds))))
