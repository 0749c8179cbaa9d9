"""PyTorch's `torch.utils`: checkpoints of activations, DLPack, data loading, TensorBoard."""

import importlib
from typing import TYPE_CHECKING, Any

from ..base.missing import MissingNameError
from . import checkpoint as checkpoint
from . import dlpack as dlpack

if TYPE_CHECKING:
    from . import data as data
    from . import tensorboard as tensorboard

_MODULES = ("data", "tensorboard")  # loaded at their first use

__all__ = ["checkpoint", "data", "dlpack", "tensorboard"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise MissingNameError(__name__, name)


def __dir__() -> list[str]:
    return sorted(__all__)
