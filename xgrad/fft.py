"""PyTorch's `torch.fft`: the operators declared in that namespace."""

from .dispatch.declare import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["fft"])
