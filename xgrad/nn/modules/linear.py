"""Identity, Linear, LazyLinear, Bilinear: modules of linear maps (PyTorch: torch/nn/modules/linear.py)."""

import math
from typing import Any

from ...autograd.grad_mode import no_grad
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter
from .lazy import LazyModuleMixin, uninitialized


class Identity(Module):
    """Returns its input; takes any arguments, so that it can replace any layer.

    >>> import xgrad
    >>> xgrad.nn.Identity(54, unused=True)(3)
    3
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Return the input."""
        return input


class _WithBias(Module):
    """A module whose weight and bias are drawn uniformly from ±1/√(the weight's second size)."""

    weight: Any
    bias: Any

    def _hold(self, shape: tuple[int, ...], bias: bool, device: Any, dtype: Any) -> None:
        empty = FUNCTIONS[""]["empty"]
        self.weight = Parameter(empty(*shape, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(shape[0], device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values of weight and bias."""
        inputs = self.weight.shape[1]
        bound = 1 / math.sqrt(inputs) if inputs > 0 else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)


class Linear(_WithBias):
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
        self._hold((out_features, in_features), bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return `input @ weight.T + bias`."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that MultiheadAttention has for its last one."""


class Bilinear(_WithBias):
    """`input1 @ weight[k] @ input2 + bias[k]` for each k, for inputs of shape (..., features).

    Raises `ValueError` unless `in1_features` is positive.

    >>> import xgrad
    >>> xgrad.nn.Bilinear(2, 3, 4)(xgrad.ones(5, 2), xgrad.ones(5, 3)).shape
    xgrad.Size([5, 4])
    """

    in1_features: int
    in2_features: int
    out_features: int

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self._hold((out_features, in1_features, in2_features), bias, device, dtype)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return `nn.functional.bilinear` of the inputs."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes as text."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class LazyLinear(LazyModuleMixin, Linear):
    """Linear whose `in_features` is the last size of the first batch.

    >>> import xgrad
    >>> layer = xgrad.nn.LazyLinear(2)
    >>> y = layer(xgrad.ones(4, 3))
    >>> layer
    Linear(in_features=3, out_features=2, bias=True)
    """

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        uninitialized(self, device, dtype, weight=True, bias=bias)

    def reset_parameters(self) -> None:
        """Draw new values of weight and bias, if they have a shape."""
        if not self.has_uninitialized_params() and self.in_features:
            super().reset_parameters()

    @no_grad()
    def initialize_parameters(self, input: Tensor) -> None:
        """Materialize weight and bias for an input of shape (..., in_features)."""
        found = input.shape[-1]
        if self.has_uninitialized_params():
            self.in_features: Any = found
            self.weight.materialize((self.out_features, found))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if not self.in_features:  # a state was loaded
            if found != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {found} is not equal to in_features from self.weight: "
                    f"{self.weight.shape[-1]}"
                )
            self.in_features = found
