"""as_torch: lets `import torch` find xgrad, for programs and packages that import torch themselves.

enter.py             `as_torch()`: puts them into `sys.modules`, and takes them out again
finder.py            finds torch and torch.nn, torch.optim, ... when they are imported
module_proxy.py      a module named torch.X, whose names are xgrad's
tables.py            which names are looked up where
torch_attributes.py  values that packages read, and xgrad itself has no need of
aten.py              torch.ops.aten
checks.py            torch._check
hub.py               torch.hub
pytree.py            torch.utils._pytree
borrow.py            modules of an installed PyTorch, run over xgrad
"""

from .enter import as_torch

__all__ = ["as_torch"]


def __dir__() -> list[str]:
    return sorted(__all__)
