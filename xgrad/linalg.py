"""PyTorch's `torch.linalg`: the operators declared in that namespace."""

from .dispatch.tables import FUNCTIONS as _FUNCTIONS
from .errors import LinAlgError as LinAlgError

globals().update(_FUNCTIONS["linalg"])
