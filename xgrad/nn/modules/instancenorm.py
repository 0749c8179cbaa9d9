"""InstanceNorm1d to 3d: normalize each channel of each sample (PyTorch: torch/nn/modules/instancenorm.py)."""

import warnings
from typing import Any, ClassVar

from ...tensor import Tensor
from .. import functional as F
from .batchnorm import _expected, _LazyNormBase, _NormBase


class _InstanceNorm(_NormBase):
    """Base class of those that normalize the last `_dimensions` dimensions."""

    _dimensions: ClassVar[int] = 0

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _get_no_batch_dim(self) -> int:
        return self._dimensions + 1

    def _check_input_dim(self, input: Tensor) -> None:
        _expected(input, self._get_no_batch_dim(), self._get_no_batch_dim() + 1)

    def forward(self, input: Tensor) -> Tensor:
        """Return `nn.functional.instance_norm` of the input, which may lack the batch dimension."""
        self._check_input_dim(input)
        without = self._get_no_batch_dim()
        channels = input.dim() - without
        if input.shape[channels] != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={channels} to match num_features ({self.num_features}), but got: "
                    f"{input.shape[channels]}."
                )
            warnings.warn(
                f"input's size at dim={channels} does not match num_features. You can silence this warning by not "
                "passing in num_features, which is not used because affine=False",
                stacklevel=2,
            )
        if input.dim() == without:
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        by_sample = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        return F.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, by_sample, momentum, self.eps
        )


class InstanceNorm1d(_InstanceNorm):
    """Mean 0 and variance 1 for each channel of each sample, of shape (N, C, L) or (C, L).

    Raises `ValueError` for other shapes.
    """

    _dimensions = 1


class InstanceNorm2d(_InstanceNorm):
    """Mean 0 and variance 1 for each channel of each image, of shape (N, C, H, W) or (C, H, W).

    >>> import xgrad
    >>> xgrad.nn.InstanceNorm2d(1)(xgrad.tensor([[[[1.0, 3.0]]]]))
    tensor([[[[-1.0000,  1.0000]]]])
    """

    _dimensions = 2


class InstanceNorm3d(_InstanceNorm):
    """Mean 0 and variance 1 for each channel of each sample, of shape (N, C, D, H, W) or (C, D, H, W)."""

    _dimensions = 3


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm1d whose `num_features` comes from the first batch."""

    cls_to_become = InstanceNorm1d
    _dimensions = 1


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm2d whose `num_features` comes from the first batch."""

    cls_to_become = InstanceNorm2d
    _dimensions = 2


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm3d whose `num_features` comes from the first batch."""

    cls_to_become = InstanceNorm3d
    _dimensions = 3
