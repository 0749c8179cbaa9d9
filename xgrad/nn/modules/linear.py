"""Linear (PyTorch: torch/nn/modules/linear.py)."""

import math
from typing import Any

from ...config import state
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..module import Module
from ..parameter import Parameter


class Linear(Module):
    """`input @ weight.T + bias`, for an input of shape (..., in_features).

    Weight and bias are drawn uniformly from ±1/√in_features.

    >>> import xgrad
    >>> xgrad.nn.Linear(3, 2)(xgrad.ones(4, 3)).shape
    xgrad.Size([4, 2])
    """

    in_features: int
    out_features: int

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        empty = FUNCTIONS[""]["empty"]
        self.weight: Any = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values of weight and bias."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0.0
        enabled, state.grad_enabled = state.grad_enabled, False
        try:
            for parameter in self.parameters(recurse=False):
                parameter.uniform_(-bound, bound)
        finally:
            state.grad_enabled = enabled

    def forward(self, input: Tensor) -> Tensor:
        """Return `input @ weight.T + bias`."""
        return FUNCTIONS["nn.functional"]["linear"](input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
