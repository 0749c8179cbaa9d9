"""PyTorch's `torch.utils`, as far as autograd goes."""

from . import checkpoint as checkpoint
from . import dlpack as dlpack
