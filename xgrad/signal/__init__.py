"""xgrad.signal, PyTorch's `torch.signal`: the module of window functions."""

from ..base.missing import missing as _missing
from . import windows as windows

__all__ = ["windows"]


def __dir__() -> list[str]:
    return sorted(__all__)


globals()["__getattr__"] = _missing(__name__)
