"""Fully sharded training: each device has a part of every parameter, gradient and moment, and a part of the batch.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/fsdp_like.py

XLA gathers a parameter where it is used, and scatters what is summed into its gradient: what stays between steps is an
eighth on each of eight devices.
"""

import jax
import transformer
from jax.sharding import PartitionSpec as P

import xgrad

DEVICES = len(jax.devices())


def place(name: str, shape: tuple[int, ...]) -> P:
    """Split the largest dimension that divides evenly; copy what has none."""
    even = [d for d, n in enumerate(shape) if n % DEVICES == 0]
    if not even:
        return P()
    split = max(even, key=lambda d: shape[d])
    return P(*("data" if d == split else None for d in range(len(shape))))


with xgrad.mesh({"data": DEVICES}):
    transformer.train(place, batch_place=P("data"), words=__doc__)
