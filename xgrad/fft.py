"""PyTorch's `torch.fft`: the operators declared in that namespace."""

from .ops.registry import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["fft"])
