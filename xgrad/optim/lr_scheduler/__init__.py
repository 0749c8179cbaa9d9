"""StepLR, CosineAnnealingLR, OneCycleLR, ...: schedules of learning rates (PyTorch: torch/optim/lr_scheduler.py).

A schedule writes `group["lr"]` of its optimizer's groups, at first when it is made and then in each `step()`.  Most
multiply the present rate, so that several schedules work together; the arithmetic is PyTorch's, operation by operation,
and so are the attributes that `state_dict` has.
"""

from .base import LRScheduler as LRScheduler
from .base import _LRScheduler as _LRScheduler
from .composed import ChainedScheduler as ChainedScheduler
from .composed import SequentialLR as SequentialLR
from .cosine import CosineAnnealingLR as CosineAnnealingLR
from .cosine import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from .cycles import CyclicLR as CyclicLR
from .cycles import OneCycleLR as OneCycleLR
from .factors import ConstantLR as ConstantLR
from .factors import ExponentialLR as ExponentialLR
from .factors import LinearLR as LinearLR
from .factors import MultiStepLR as MultiStepLR
from .factors import PolynomialLR as PolynomialLR
from .factors import StepLR as StepLR
from .functions import LambdaLR as LambdaLR
from .functions import MultiplicativeLR as MultiplicativeLR
from .plateau import ReduceLROnPlateau as ReduceLROnPlateau

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
