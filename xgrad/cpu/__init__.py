"""The older spelling `xgrad.cpu.amp` of `xgrad.amp` (PyTorch: torch/cpu/__init__.py)."""

from . import amp as amp

__all__ = ["amp"]


def __dir__() -> list[str]:
    return sorted(__all__)
