"""xgrad.cuda: torch.cuda's functions over JAX's GPUs: counts, names, memory, seeds (PyTorch: torch/cuda/__init__.py).

On a TPU or a CPU there are no GPUs.  Streams, events and graphs do not exist: XLA orders its work by itself.
"""

from types import SimpleNamespace
from typing import Any

import jax

from ..base.devices import default_number as _default_number
from ..base.devices import device as _device
from ..base.devices import placement_of
from ..base.devices import set_default_device as _set_default_device
from ..base.missing import without
from ..base.platforms import local_devices as _local_devices
from ..ops.create import constructors as _constructors
from ..random import get_rng_state as _get_rng_state
from ..random import manual_seed as _manual_seed
from ..random import set_rng_state as _set_rng_state

__all__ = [
    "current_device", "device_count", "empty_cache", "get_device_name", "get_device_properties", "get_rng_state",
    "get_rng_state_all", "init", "ipc_collect", "is_available", "is_bf16_supported", "is_current_stream_capturing",
    "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "reset_max_memory_allocated", "reset_peak_memory_stats", "set_device",
    "set_rng_state", "set_rng_state_all", "synchronize",
]  # fmt: skip


def _gpus() -> list:
    try:
        return _local_devices("gpu")
    except RuntimeError:
        return []


def _gpu(which: Any) -> Any:
    """Return the `jax.Device` of a GPU: by number or name, the current one by default.

    Raises `RuntimeError` for a GPU that does not exist, `ValueError` for a device that is not a GPU.
    """
    found: Any = placement_of(
        f"cuda:{current_device()}" if which is None else f"cuda:{which}" if isinstance(which, int) else which
    )
    if not isinstance(found, jax.Device) or _device(found).type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {which}")
    return found


def is_available() -> bool:
    """Return True if JAX has a GPU.

    >>> import xgrad
    >>> device = xgrad.device("cuda" if xgrad.cuda.is_available() else "cpu")
    """
    return bool(_gpus())


def device_count() -> int:
    """Return the number of this process's GPUs."""
    return len(_gpus())


def current_device() -> int:
    """Return the number of the GPU on which this thread makes new tensors, as `set_device` set it; else 0.

    Raises `RuntimeError` without a GPU.
    """
    gpus = _gpus()
    if not gpus:
        raise RuntimeError("JAX has no GPU: ask xgrad.cuda.is_available(), and `python -m xgrad doctor` why")
    return _default_number(gpus)


def get_device_name(device: Any = None) -> str:
    """Return the name of a GPU, such as "NVIDIA H100"."""
    return _gpu(device).device_kind


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return True if there is a GPU: XLA computes in bfloat16 on all of them, by emulation or not."""
    return is_available()


def synchronize(device: Any = None) -> None:
    """Wait until the work that was started on a GPU is done.  `Tensor.block_until_ready()` waits for one tensor."""
    jax.block_until_ready(jax.device_put(0.0, _gpu(device)) + 1)


def manual_seed(seed: int) -> None:
    """Seed the default generator (`xgrad.manual_seed`): one generator serves all devices."""
    _manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the default generator (`xgrad.manual_seed`): one generator serves all devices."""
    _manual_seed(seed)


def empty_cache() -> None:
    """Do nothing: XLA manages its memory pool (XLA_PYTHON_CLIENT_PREALLOCATE and its like set it up)."""


def _memory(device: Any, name: str) -> int:
    if not is_available():
        return 0
    return int((_gpu(device).memory_stats() or {}).get(name, 0))


def memory_allocated(device: Any = None) -> int:
    """Return the bytes in use on a GPU; 0 without one."""
    return _memory(device, "bytes_in_use")


def max_memory_allocated(device: Any = None) -> int:
    """Return the most bytes that were in use on a GPU since the process began; 0 without one."""
    return _memory(device, "peak_bytes_in_use")


memory_reserved, max_memory_reserved = memory_allocated, max_memory_allocated


def get_device_properties(device: Any = None) -> Any:
    """Return an object with a GPU's `name` and its `total_memory` in bytes."""
    found = _gpu(device)
    return SimpleNamespace(name=found.device_kind, total_memory=(found.memory_stats() or {}).get("bytes_limit", 0))


def is_initialized() -> bool:
    """Return True if JAX has a GPU: its runtime starts with JAX's."""
    return is_available()


def is_current_stream_capturing() -> bool:
    """Return False: xgrad has no CUDA graphs to capture."""
    return False


def set_device(device: Any) -> None:
    """Make a GPU the one on which tensors are made; nothing for None or a negative number."""
    if device is not None and not (isinstance(device, int) and device < 0):
        _set_default_device(_gpu(device))


def get_rng_state(device: Any = None) -> Any:
    """Return the default generator's state: one generator serves all devices."""
    return _get_rng_state()


def set_rng_state(new_state: Any, device: Any = None) -> None:
    """Set the default generator's state: one generator serves all devices."""
    _set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """Return the default generator's state once for each GPU."""
    return [_get_rng_state() for _ in _gpus()]


def set_rng_state_all(new_states: Any) -> None:
    """Set the default generator's state to the last of these."""
    for new in new_states:
        _set_rng_state(new)


def init() -> None:
    """Do nothing: JAX starts by itself."""


def ipc_collect() -> None:
    """Do nothing: no memory is shared between processes."""


def reset_peak_memory_stats(device: Any = None) -> None:
    """Do nothing: JAX's peaks count from the process's beginning."""


reset_max_memory_allocated = reset_peak_memory_stats


def _found(name: str) -> Any:
    if name.endswith("Tensor") and hasattr(_constructors, name):
        return _constructors.on_cuda(name)
    return without(__name__, name)


globals()["__getattr__"] = _found  # type checkers do not see it: a misspelt name is an error


def __dir__() -> list[str]:
    return sorted(__all__)
