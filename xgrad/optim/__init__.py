"""xgrad.optim: optimizers and schedules of learning rates, with PyTorch's names, options and checkpoints (torch/optim).

All optimizers but LBFGS are update rules, pure functions over arrays: rule.py runs a rule as one program, or a few, for
each parameter group.  In `xgrad.lazy` and `xgrad.compile` the rule becomes a part of the training step's program.
"""

from . import lr_scheduler as lr_scheduler
from . import swa_utils as swa_utils
from .ada import Adadelta as Adadelta
from .ada import Adagrad as Adagrad
from .ada import RMSprop as RMSprop
from .adam import Adam as Adam
from .adam import AdamW as AdamW
from .adam_variants import Adamax as Adamax
from .adam_variants import NAdam as NAdam
from .adam_variants import RAdam as RAdam
from .lbfgs import LBFGS as LBFGS
from .matrices import Adafactor as Adafactor
from .matrices import Muon as Muon
from .optimizer import Optimizer as Optimizer
from .rprop import ASGD as ASGD
from .rprop import Rprop as Rprop
from .sgd import SGD as SGD
from .sparse_adam import SparseAdam as SparseAdam

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler", "swa_utils",
]  # fmt: skip
