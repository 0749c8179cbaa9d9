"""xgrad.signal: has the module `windows` of window functions, for users (PyTorch: torch.signal)."""

from ..base.missing import missing as _missing
from . import windows as windows

__all__ = ["windows"]


def __dir__() -> list[str]:
    return sorted(__all__)


globals()["__getattr__"] = _missing(__name__)
