"""Tensor-parallel training: the matrices are split, as in Megatron-LM, and the batch over what is left of the devices.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/tensor_parallel.py

Heads and hidden units belong to one device each: of two matrices in a row the first is split by columns and the second
by rows, so that between them nothing has to be sent, and after them one sum.
"""

import jax
import transformer
from jax.sharding import PartitionSpec as P

import xgrad

SPLIT = {
    "query": P(None, "model"),
    "key": P(None, "model"),
    "value": P(None, "model"),
    "out": P("model", None),
    "up": P(None, "model"),
    "down": P("model", None),
    "head": P(None, "model"),
}

devices = len(jax.devices())
model = 4 if devices % 4 == 0 else 1

with xgrad.mesh({"data": devices // model, "model": model}):
    transformer.train(
        place=lambda name, shape: SPLIT.get(name.split(".")[-1], P()), batch_place=P("data"), words=__doc__
    )
