"""xgrad.optim: optimizers and schedules of learning rates, with PyTorch's names, options and checkpoints (torch/optim).

All optimizers but LBFGS are update rules, pure functions over arrays: rule.py runs a rule as one program, or a few, for
each parameter group.  In `xgrad.lazy` and `xgrad.compile` the rule becomes a part of the training step's program.
"""

from . import lr_scheduler, swa_utils
from .ada import Adadelta, Adagrad, RMSprop
from .adam import Adam, AdamW
from .adam_variants import Adamax, NAdam, RAdam
from .lbfgs import LBFGS
from .matrices import Adafactor, Muon
from .optimizer import Optimizer
from .rprop import ASGD, Rprop
from .sgd import SGD
from .sparse_adam import SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip
