"""PyTorch's `torch.linalg`: the operators declared in that namespace."""

from .errors import LinAlgError as LinAlgError
from .ops.registry import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["linalg"])
