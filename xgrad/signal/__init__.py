"""PyTorch's `torch.signal`: window functions."""

from . import windows as windows
