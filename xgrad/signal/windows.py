"""PyTorch's `torch.signal.windows`: the functions declared in that namespace."""

from ..dispatch.tables import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["signal.windows"])
