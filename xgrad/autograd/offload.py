"""save_on_cpu: a block that stores the tensors saved for backward in host memory (PyTorch: torch/autograd/graph.py).

A tensor's array is stored in the first of these places that fits it:

    a tensor inside of vmap        its own place: it is saved as it is
    a tracer                       JAX's host memory space: XLA moves it when the program runs (not for a CPU)
    an array on the CPU            its own place, which is host memory: nothing is copied
    pin_memory=True                the device's pinned host memory, with the array's sharding
    pin_memory=False               its other host memory ("unpinned_host", on TPUs), with the array's sharding
    several devices                the other one of these two memories, which preserves the sharding
    otherwise                      JAX's CPU device; a NumPy array if JAX_PLATFORMS excludes the CPU
"""

from typing import Any

import jax
import numpy as np

from ..base.jax_compat import Tracer
from ..base.platforms import traced_for
from ..engine.saved_variable import plain_entry
from ..execution.runner import transferred
from ..tensor import Tensor, from_foreign
from .saved_hooks import saved_tensors_hooks


class save_on_cpu(saved_tensors_hooks):
    """Within the block, tensors saved for backward are stored in host memory and brought back when they are needed.

    `pin_memory=True` uses the device's pinned host memory, from which copies are faster, if JAX offers it.  A
    sharded tensor comes back with its sharding.  On the CPU nothing is copied.  Under `jax.jit` XLA does the transfers.
    Tensors inside of `vmap` stay where they are.
    `device_type` is accepted as by PyTorch; each tensor goes back to its own device.

    >>> import xgrad
    >>> x = xgrad.ones(2, requires_grad=True)
    >>> with xgrad.autograd.graph.save_on_cpu():
    ...     y = x.exp()
    >>> y.sum().backward()
    >>> x.grad
    tensor([2.7183, 2.7183])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            if tensor._sparse:
                return _Sparse(tensor, pin_memory)
            # A batched tensor, inside of vmap, has no array to be transferred.
            return plain_entry(tensor) if tensor._level is not None else to_host(tensor._read(), pin_memory)

        def unpack(packed: Any) -> Tensor:
            if packed.__class__ is _Sparse:
                return packed.back()
            return packed if isinstance(packed, Tensor) else from_foreign(from_host(packed))

        super().__init__(pack, unpack)


class _Sparse:
    """A sparse tensor whose indices and values are in host memory."""

    def __init__(self, tensor: Any, pin: bool) -> None:
        self.homes: list[Any] = []

        def place(array: Any) -> Any:
            home, array = to_host(array, pin)
            self.homes.append(home)
            return array

        self.tensor = tensor._on(place)

    def back(self) -> Tensor:
        homes = iter(self.homes)
        return self.tensor._on(lambda array: from_host((next(homes), array)))


def to_host(array: Any, pin: bool) -> tuple[Any, Any]:
    """Return (the array's sharding, the array in host memory), for `from_host`."""
    if isinstance(array, Tracer):
        if traced_for() == "cpu":
            return None, array
        return jax.memory.Space.Device, jax.device_put(array, jax.memory.Space.Host)
    home = array.sharding
    devices = home.device_set
    device = next(iter(home.addressable_devices), None) or next(iter(devices))  # with several processes, one of ours
    if _is_host(device):
        return None, array
    kinds = _kinds(device)
    wanted = ["pinned_host"] if pin else ["unpinned_host"]
    if len(devices) > 1:
        wanted += ["unpinned_host", "pinned_host"]
    for kind in wanted:
        if kind in kinds:
            return home, jax.device_put(array, home.with_memory_kind(kind))
    try:
        return home, transferred(array, jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS excludes the CPU
        return home, np.asarray(array)


def from_host(packed: tuple[Any, Any]) -> Any:
    """Return the array with its former sharding."""
    home, array = packed
    return array if home is None else transferred(array, home)


def _is_host(device: Any) -> bool:
    return device.platform == "cpu"


def _kinds(device: Any) -> list[str]:
    return [memory.kind for memory in device.addressable_memories()]
