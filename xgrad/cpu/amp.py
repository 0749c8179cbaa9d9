"""xgrad.cpu.amp: deprecated forms of `xgrad.amp`'s autocast and GradScaler, which warn (PyTorch: torch/cpu/amp)."""

from typing import Any

from ..amp import autocast as _autocast
from ..amp.grad_scaler import GradScaler as _GradScaler
from ..amp.grad_scaler import deprecated
from ..base.dtypes import bfloat16

__all__ = ["GradScaler", "autocast"]


class autocast(_autocast):
    """Deprecated: write `xgrad.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = bfloat16, cache_enabled: bool = True) -> None:
        deprecated("cpu", "autocast")
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """Deprecated: write `xgrad.amp.GradScaler("cpu", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        deprecated("cpu", "GradScaler")
        super().__init__("cpu", *args, **kwargs)
