"""xgrad.accelerator: functions for JAX's default accelerator, and the modules mps, xpu, mtia, which report no device.

`mps`, `xpu` and `mtia` answer code that looks for Apple's, Intel's and Meta's devices by name: there are none.
(PyTorch: torch/accelerator.)
"""

from types import ModuleType
from typing import Any

import jax

from . import cpu, cuda
from .base.declared import registered
from .base.devices import default_number, device
from .base.missing import close_namespace as _close_namespace
from .base.platforms import default_platform, local_devices
from .random import manual_seed as _manual_seed

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "device_count", "empty_cache", "is_available",
    "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """Return True if JAX computes on something else than the CPU by default: a TPU, a GPU.

    >>> import xgrad
    >>> device = xgrad.accelerator.current_accelerator() if xgrad.accelerator.is_available() else "cpu"
    """
    return default_platform() != "cpu"


def device_count() -> int:
    """Return the number of this process's accelerators."""
    return jax.local_device_count() if is_available() else 0


def current_accelerator(check_available: bool = False) -> device | None:
    """Return JAX's default device without its number; None if it is a CPU."""
    return device(device(local_devices()[0]).type) if is_available() else None


def current_device_index() -> int:
    """Return the number of the accelerator on which this thread makes new tensors; 0 if they are made elsewhere."""
    return default_number(local_devices())


current_device_idx = current_device_index


def synchronize(device: Any = None) -> None:
    """Wait until the work that was started on all devices of this process is done."""
    last = [jax.device_put(0.0, one) + 1 for one in local_devices()]  # a chip runs programs in order, a CPU does not
    jax.block_until_ready([*last, *jax.live_arrays()])


def empty_cache() -> None:
    """Do nothing: XLA manages its memory pool."""


class _Absent(ModuleType):
    """A module of PyTorch's for devices that JAX does not have."""

    def is_available(self) -> bool:
        return False

    is_initialized = is_bf16_supported = is_available

    def device_count(self) -> int:
        return 0

    def synchronize(self, *args: Any) -> None: ...

    empty_cache = synchronize

    def manual_seed(self, seed: int) -> None:
        _manual_seed(seed)

    manual_seed_all = manual_seed

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{self.__name__} has no attribute {name!r}: JAX has no such device (xgrad.accelerator knows JAX's)"
        )


mps, xpu, mtia = (_Absent(f"xgrad.{name}") for name in ("mps", "xpu", "mtia"))


def get_device_module(device: Any = None) -> Any:
    """Return the module of a device's functions: `xgrad.cuda` or `xgrad.cpu`, which also answers for a TPU.

    A registered backend has its own.
    """
    kind = str(getattr(device, "type", device) or default_platform()).partition(":")[0]
    if (place := registered(kind)) is not None:
        return place.runtime.module
    return cuda if kind in ("cuda", "gpu") else cpu


_close_namespace(__name__)
