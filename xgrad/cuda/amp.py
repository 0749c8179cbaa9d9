"""xgrad.cuda.amp: deprecated forms of `xgrad.amp`'s autocast, GradScaler, ..., which warn (PyTorch: torch/cuda/amp)."""

from collections.abc import Callable
from typing import Any

from ..amp import autocast as _autocast
from ..amp import custom_bwd as _custom_bwd
from ..amp import custom_fwd as _custom_fwd
from ..amp.grad_scaler import GradScaler as _GradScaler
from ..amp.grad_scaler import deprecated
from ..base.dtypes import float16
from . import is_available

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def amp_definitely_not_available() -> bool:
    """Return True without a GPU."""
    return not is_available()


class autocast(_autocast):
    """Deprecated: write `xgrad.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = float16, cache_enabled: bool = True) -> None:
        deprecated("cuda", "autocast")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """Deprecated: write `xgrad.amp.GradScaler("cuda", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        deprecated("cuda", "GradScaler")
        super().__init__("cuda", *args, **kwargs)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: Any = None) -> Any:
    """Deprecated: write `xgrad.amp.custom_fwd(device_type="cuda", ...)`."""
    deprecated("cuda", "custom_fwd", "{place}.{name}(args..., device_type='{device}')")
    return _custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """Deprecated: write `xgrad.amp.custom_bwd(device_type="cuda")`."""
    deprecated("cuda", "custom_bwd", "{place}.{name}(args..., device_type='{device}')")
    return _custom_bwd(bwd, device_type="cuda")
