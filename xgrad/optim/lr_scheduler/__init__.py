"""StepLR, CosineAnnealingLR, OneCycleLR, ...: schedules of learning rates (PyTorch: torch/optim/lr_scheduler.py).

A schedule writes `group["lr"]` of its optimizer's groups, at first when it is made and then in each `step()`.  Most
multiply the present rate, so that several schedules work together; the arithmetic is PyTorch's, operation by operation,
and so are the attributes that `state_dict` has.
"""

from .base import LRScheduler
from .base import _LRScheduler as _LRScheduler
from .composed import ChainedScheduler, SequentialLR
from .cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from .cycles import CyclicLR, OneCycleLR
from .factors import ConstantLR, ExponentialLR, LinearLR, MultiStepLR, PolynomialLR, StepLR
from .functions import LambdaLR, MultiplicativeLR
from .plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
