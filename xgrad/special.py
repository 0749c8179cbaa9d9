"""PyTorch's `torch.special`: the operators declared in that namespace."""

from .dispatch.tables import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS.get("special", {}))
