"""`save_on_cpu`: what is saved for backward waits in host memory (PyTorch: torch/autograd/graph.py)."""

from typing import Any

import jax

from ..tensor import Tensor, from_foreign
from .saved_hooks import saved_tensors_hooks


class save_on_cpu(saved_tensors_hooks):
    """Within the block, what is saved for backward is kept in host memory and brought back when it is needed.

    `pin_memory=True` uses the device's pinned host memory, where JAX offers that kind, else the CPU device.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple:
            array = tensor._read()
            home = array.sharding
            return home, jax.device_put(array, _host(array, pin_memory))

        def unpack(packed: tuple) -> Tensor:
            home, array = packed
            return from_foreign(jax.device_put(array, home))

        super().__init__(pack, unpack)


def _host(array: Any, pin: bool) -> Any:
    device = next(iter(array.sharding.device_set))
    kinds = {memory.kind for memory in device.addressable_memories()}
    if pin and "pinned_host" in kinds:
        return array.sharding.with_memory_kind("pinned_host")
    return jax.devices("cpu")[0]
