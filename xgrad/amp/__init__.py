"""xgrad.amp: autocast, GradScaler, custom_fwd and custom_bwd, to train in mixed precision (PyTorch: torch.amp)."""

from ..base.missing import close_namespace as _close_namespace
from .autocast_mode import autocast as autocast
from .autocast_mode import autocast_decorator as autocast_decorator
from .autocast_mode import is_autocast_available as is_autocast_available
from .custom import custom_bwd as custom_bwd
from .custom import custom_fwd as custom_fwd
from .grad_scaler import GradScaler as GradScaler

__all__ = ["GradScaler", "autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

_close_namespace(__name__)
