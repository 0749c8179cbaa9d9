"""xgrad.signal: has the module `windows` of window functions, for users (PyTorch: torch.signal)."""

from ..base.missing import close_namespace as _close_namespace
from . import windows

__all__ = ["windows"]

_close_namespace(__name__)
