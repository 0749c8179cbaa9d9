"""Data-parallel training: each device has all parameters, and a part of the batch.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/data_parallel.py

Gradients are summed over the devices by XLA, because the parameters that they belong to are copied to each.
"""

import jax
import transformer
from jax.sharding import PartitionSpec as P

import xgrad

with xgrad.mesh({"data": len(jax.devices())}):
    transformer.train(place=lambda name, shape: P(), batch_place=P("data"), words=__doc__)
