"""Optimizers with PyTorch's names, options, numbers and checkpoints (PyTorch: torch/optim/).

An optimizer is an update rule, a pure function over arrays, in a file of its own; rule.py makes it one program for each
parameter group, that `xgrad.lazy` and `xgrad.compile` take into a step's.
"""

from . import lr_scheduler as lr_scheduler
from . import swa_utils as swa_utils
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler", "swa_utils"]
