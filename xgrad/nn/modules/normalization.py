"""LayerNorm, RMSNorm, GroupNorm, LocalResponseNorm, CrossMapLRN2d: layers that normalize each sample by itself.

(PyTorch: torch/nn/modules/normalization.py.)
"""

from typing import Any

import numpy as np

from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter
from .declared_module import Face, face

_NEIGHBOURS = "{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class _Affine(Module):
    """A module whose weight is ones and whose bias zeros, or None."""

    weight: Any
    bias: Any

    def _scales(self, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        empty = FUNCTIONS[""]["empty"]
        for name, has in (("weight", weight), ("bias", weight and bias)):
            self.register_parameter(name, Parameter(empty(shape, device=device, dtype=dtype)) if has else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to ones and the bias to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self._parameters.get("bias") is not None:
            init.zeros_(self.bias)


class LayerNorm(_Affine):
    """Mean 0 and variance 1 over the last dimensions, of `normalized_shape`, then `· weight + bias`.

    >>> import xgrad
    >>> xgrad.nn.LayerNorm(2)(xgrad.tensor([1.0, 3.0]))
    tensor([-1.0000,  1.0000], grad_fn=<NativeLayerNormBackward0>)
    """

    normalized_shape: tuple[int, ...]
    eps: float
    elementwise_affine: bool

    def __init__(
        self, normalized_shape: int | list[int] | tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._scales(self.normalized_shape, elementwise_affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return `nn.functional.layer_norm` of the input."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


def _shape(normalized_shape: Any) -> tuple[int, ...]:
    return tuple(normalized_shape) if isinstance(normalized_shape, tuple | list) else (int(normalized_shape),)


class RMSNorm(_Affine):
    """The input over its root mean square along the last dimensions, of `normalized_shape`, then `· weight`.

    >>> import xgrad
    >>> xgrad.nn.RMSNorm(2, elementwise_affine=False)(xgrad.tensor([3.0, 3.0]))
    tensor([1., 1.])
    """

    normalized_shape: tuple[int, ...]
    eps: float | None
    elementwise_affine: bool

    def __init__(
        self, normalized_shape: int | list[int] | tuple[int, ...], eps: float | None = None,
        elementwise_affine: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        empty = FUNCTIONS[""]["empty"]
        weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Return `nn.functional.rms_norm` of the input."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Mean 0 and variance 1 over each of `num_groups` groups of the channels, then `· weight + bias` by channel.

    Raises `ValueError` unless `num_groups` divides `num_channels`.

    >>> import xgrad
    >>> xgrad.nn.GroupNorm(2, 4)(xgrad.ones(1, 4, 3)).shape
    xgrad.Size([1, 4, 3])
    """

    num_groups: int
    num_channels: int
    eps: float
    affine: bool

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._scales(num_channels, affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return `nn.functional.group_norm` of the input."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the arguments as text."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


@face("local_response_norm", shown=_NEIGHBOURS)
class LocalResponseNorm(Face):
    """The input over (k + alpha · the mean of the squares of `size` neighbouring channels) to the power of beta."""

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0


@face(shown=_NEIGHBOURS)
class CrossMapLRN2d(Face):
    """The LocalResponseNorm of old models from Caffe and Lua, of images: squares are summed, also the square of channel
    0.

    PyTorch never takes the first channel out of its running sum, so here too it is a neighbour of all.  The gradient is
    the gradient of this function; PyTorch's own forgets the first channel.  Raises `ValueError` unless the input is 4D.
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1

    def forward(self, input: Tensor) -> Tensor:
        """Return the input over (k + alpha / size · the sum of the neighbours' squares) to the power of beta."""
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        channels = np.arange(input.shape[1])
        near = abs(channels[:, None] - channels) < (self.size + 1) // 2
        near[0] = True
        sums = (input * input).movedim(1, -1) @ input.new_tensor(near)
        return input * (self.k + self.alpha / self.size * sums.movedim(-1, 1)) ** -self.beta
