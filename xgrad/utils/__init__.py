"""PyTorch's `torch.utils`, as far as autograd goes."""

from . import checkpoint as checkpoint
from . import dlpack as dlpack

__all__ = ["checkpoint", "dlpack"]


def __dir__() -> list[str]:
    return sorted(__all__)
