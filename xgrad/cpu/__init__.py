"""xgrad.cpu: is_available, synchronize, ..., and the deprecated module `amp` (PyTorch: torch/cpu/__init__.py)."""

from typing import Any

import jax

from ..base.missing import close_namespace as _close_namespace
from . import amp

__all__ = ["amp", "current_device", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """Return True: there is a CPU."""
    return True


def device_count() -> int:
    """Return 1, as PyTorch does."""
    return 1


def current_device() -> str:
    """Return "cpu"."""
    return "cpu"


def synchronize(device: Any = None) -> None:
    """Wait until all arrays on the CPU have their values, which they have already unless `async_dispatch` is on."""
    jax.block_until_ready(jax.live_arrays("cpu"))


_close_namespace(__name__)
