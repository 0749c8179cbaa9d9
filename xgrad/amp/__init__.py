"""xgrad.amp: autocast, GradScaler, custom_fwd and custom_bwd, to train in mixed precision (PyTorch: torch.amp)."""

from ..base.missing import close_namespace as _close_namespace
from .autocast_mode import autocast, autocast_decorator, is_autocast_available
from .custom import custom_bwd, custom_fwd
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

_close_namespace(__name__)
