"""is_autocast_enabled, set_autocast_dtype, ...: PyTorch's functions that read and set a thread's autocast settings.

Invariant: `state.autocast` is replaced and never changed, and is None while all settings have their defaults
(PyTorch: torch/csrc/autograd/init.cpp).
"""

from typing import Any

import numpy as np

from ..base.declared import registered
from ..base.devices import _PLATFORM, device
from ..base.dtype_object import dtype, of
from ..base.dtypes import FLOATS, as_dtype, bfloat16, float16
from ..base.platforms import local_devices
from ..config import state
from ..dispatch import declare
from ..dispatch.autocasting import Settings, default_dtype, install, settled

# Types of devices that PyTorch knows and XLA does not run on.
_FOREIGN = frozenset({
    "hip", "hpu", "ipu", "lazy", "maia", "meta", "mkldnn", "mps", "mtia", "opencl", "opengl", "privateuseone", "ve",
    "vulkan", "xpu",
})  # fmt: skip


def kind_of(device_type: Any, where: str) -> str:
    """Return the type of devices that a string names, as in `x.device.type`: "gpu" is "cuda", "xla" is JAX's default.

    Raises `RuntimeError` for a string that names none, `TypeError` for an argument that is not a string.
    """
    if not isinstance(device_type, str):
        raise TypeError(f"{where}(): argument 'device_type' (position 1) must be str, not {type(device_type).__name__}")
    if device_type in _FOREIGN or registered(device_type) is not None:
        return device_type
    if device_type not in _PLATFORM:
        raise RuntimeError(f"Expected one of {', '.join(_PLATFORM)} as device type, but got '{device_type}'")
    if _PLATFORM[device_type] is None:
        return device(device_type).type
    return "cuda" if _PLATFORM[device_type] == "gpu" else device_type


def settings() -> Settings:
    """Return this thread's settings."""
    return state.autocast or Settings()


def is_autocast_available(device_type: str) -> bool:
    """Return True if a type of devices has autocast: "cpu", "cuda", "tpu" and "xla", but not "mps", say.

    Raises `RuntimeError` for a string that names no device.

    >>> import xgrad
    >>> xgrad.amp.is_autocast_available("cpu"), xgrad.amp.is_autocast_available("mps")
    (True, False)
    """
    return kind_of(device_type, "is_autocast_available") not in _FOREIGN


def present(kind: str) -> bool:
    """Return True if JAX has such a device, or a backend is registered under that name."""
    if registered(kind) is not None:
        return True
    try:
        return bool(local_devices(_PLATFORM.get(kind, kind)))
    except RuntimeError:
        return False


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Return True if autocast is on in this thread for a type of devices.

    >>> import xgrad
    >>> with xgrad.autocast("cpu"):
    ...     xgrad.is_autocast_enabled("cpu")
    True
    """
    return kind_of(device_type, "is_autocast_enabled") in settings().enabled


def set_autocast_enabled(device_type: Any, enabled: Any = None) -> None:
    """Switch autocast on or off for a type of devices, or with a bool only for "cuda".  Better: `xgrad.autocast`.

    Raises `TypeError` if `enabled` is not a bool.
    """
    kind = "cuda"
    place = 1
    if enabled is None:
        enabled = device_type
    else:
        kind, place = kind_of(device_type, "set_autocast_enabled"), 2
    if not isinstance(enabled, (bool, np.bool_)):
        raise TypeError(
            f"set_autocast_enabled(): argument 'enabled' (position {place}) must be bool, not {type(enabled).__name__}"
        )
    switch(kind, bool(enabled))


def switch(kind: str, enabled: bool) -> None:
    """`set_autocast_enabled` for a type of devices that `kind_of` returned."""
    state.autocast = changed(kind, enabled)


def changed(kind: str, enabled: bool | None = None, dtype: Any = None, cache: bool | None = None) -> Settings | None:
    """Return what `state.autocast` becomes by a change; an argument that is None changes nothing."""
    here = settings()
    if enabled is not None:
        others = [k for k in here.enabled if k != kind]
        here = here._replace(enabled=tuple(sorted([*others, kind] if enabled else others)))
    if enabled:
        install(declare.SCOPES)
    if dtype is not None:
        dtypes = dict(here.dtypes) | {kind: dtype}
        here = here._replace(dtypes=tuple(sorted((k, d) for k, d in dtypes.items() if d != default_dtype(k))))
    return settled(here if cache is None else here._replace(cache=cache))


def get_autocast_dtype(device_type: str) -> dtype:
    """Return the lower precision to which autocast casts on a type of devices: float16 on GPUs, bfloat16 on all others.

    >>> import xgrad
    >>> xgrad.get_autocast_dtype("cpu"), xgrad.get_autocast_dtype("cuda")
    (xgrad.bfloat16, xgrad.float16)
    """
    return of(settings().lower(kind_of(device_type, "get_autocast_dtype")))


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Set the lower precision of a type of devices in this thread.  Better: `xgrad.autocast(..., dtype=...)`.

    Raises `TypeError` for a dtype that is not of floating point.
    """
    kind = kind_of(device_type, "set_autocast_dtype")
    dtype = as_dtype(dtype)
    if dtype not in FLOATS:
        raise TypeError(
            f"set_autocast_dtype(): argument 'dtype' (position 2) must be a floating-point dtype, not {dtype.name}"
        )
    state.autocast = changed(kind, dtype=dtype)


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("cpu", enabled)`."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> dtype:
    """`get_autocast_dtype("cpu")`."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """`set_autocast_dtype("cpu", dtype)`."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> dtype:
    """`get_autocast_dtype("cuda")`."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """`set_autocast_dtype("cuda", dtype)`."""
    set_autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled() -> bool:
    """Return True if a weight is cast once for all its uses in the outermost autocast block."""
    return settings().cache


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Switch the cache of casts on or off in this thread.  Raises `TypeError` if `enabled` is not a bool."""
    if not isinstance(enabled, (bool, np.bool_)):
        raise TypeError(f"enabled must be a bool, but got {type(enabled).__name__}")
    state.autocast = changed("", cache=bool(enabled))


def clear_autocast_cache() -> None:
    """Forget the casts of weights: the next use of each makes a new one.  The end of the outermost block does so."""
    state.autocast_casts = None


def autocast_increment_nesting() -> int:
    """Enter a block that caches casts of weights; return the number of blocks."""
    state.autocast_nesting += 1
    return state.autocast_nesting


def autocast_decrement_nesting() -> int:
    """Leave such a block; return the number of blocks."""
    state.autocast_nesting -= 1
    return state.autocast_nesting


LOW = (bfloat16, float16)  # the dtypes that autocast supports on a CPU
