"""PyTorch's `torch.signal.windows`: the functions declared in that namespace."""

from ..dispatch.declare import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["signal.windows"])
