"""Automatic mixed precision: autocast, and what a custom Function says about it (PyTorch: torch.amp)."""

from typing import Any as _Any

from ..ops.unsupported import unsupported as _unsupported
from .autocast_mode import autocast as autocast
from .autocast_mode import autocast_decorator as autocast_decorator
from .autocast_mode import is_autocast_available as is_autocast_available
from .custom import custom_bwd as custom_bwd
from .custom import custom_fwd as custom_fwd

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]


def __getattr__(name: str) -> _Any:
    if (found := _unsupported("amp", name)) is not None:
        return found
    raise AttributeError(f"module 'xgrad.amp' has no attribute {name!r}")
