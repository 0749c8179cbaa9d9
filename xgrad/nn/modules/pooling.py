"""MaxPool2d, AvgPool2d, ...: pooling layers, which call nn.functional (PyTorch: torch/nn/modules/pooling.py)."""

from typing import Any

from ...tensor import Tensor
from ..common_types import (
    _ratio_any_t,
    _size_1_t,
    _size_2_opt_t,
    _size_2_t,
    _size_3_opt_t,
    _size_3_t,
    _size_any_opt_t,
    _size_any_t,
)
from .declared_module import Face, face
from .utils import _ntuple, _single

_WINDOW = "kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _Window(Face):
    """A pooling whose stride is the window's size, if none is given."""

    def _keep(self, values: dict[str, Any]) -> None:
        if values["stride"] is None:
            values["stride"] = values["kernel_size"]
        super()._keep(values)


# -- maxima -----------------------------------------------------------------------------------------------------------


@face(shown=_WINDOW + ", dilation={self.dilation}, ceil_mode={self.ceil_mode}")
class _MaxPoolNd(_Window):
    kernel_size: _size_any_t
    stride: _size_any_t | None = None
    padding: _size_any_t = 0
    dilation: _size_any_t = 1
    return_indices: bool = False
    ceil_mode: bool = False


@face("max_pool1d")
class MaxPool1d(_MaxPoolNd):
    """The largest element of each window along the last dimension, of an input of shape (N, C, L) or (C, L)."""


@face("max_pool2d")
class MaxPool2d(_MaxPoolNd):
    """The largest element of each window of images, of shape (N, C, H, W) or (C, H, W).

    With `return_indices` also the place of each, as MaxUnpool2d takes it.

    >>> import xgrad
    >>> xgrad.nn.MaxPool2d(2)(xgrad.arange(16.0).reshape(1, 4, 4))
    tensor([[[ 5.,  7.],
             [13., 15.]]])
    """


@face("max_pool3d")
class MaxPool3d(_MaxPoolNd):
    """The largest element of each window, of an input of shape (N, C, D, H, W) or (C, D, H, W)."""


class _MaxUnpoolNd(_Window):
    def _keep(self, values: dict[str, Any]) -> None:
        super()._keep(values)
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, _ntuple(self._dimensions)(getattr(self, name)))


@face("max_unpool1d", tensors="input indices output_size=None", shown=_WINDOW, dims=1)
class MaxUnpool1d(_MaxUnpoolNd):
    """The inverse of MaxPool1d, given its indices, with zeros between; `output_size` where several sizes are right."""

    kernel_size: _size_1_t
    stride: _size_1_t | None = None
    padding: _size_1_t = 0


@face("max_unpool2d", tensors="input indices output_size=None", shown=_WINDOW, dims=2)
class MaxUnpool2d(_MaxUnpoolNd):
    """The inverse of MaxPool2d, given its indices, with zeros between; `output_size` where several sizes are right."""

    kernel_size: _size_2_t
    stride: _size_2_t | None = None
    padding: _size_2_t = 0


@face("max_unpool3d", tensors="input indices output_size=None", shown=_WINDOW, dims=3)
class MaxUnpool3d(_MaxUnpoolNd):
    """The inverse of MaxPool3d, given its indices, with zeros between; `output_size` where several sizes are right."""

    kernel_size: _size_3_t
    stride: _size_3_t | None = None
    padding: _size_3_t = 0


class _FractionalMaxPoolNd(Face):
    def _keep(self, values: dict[str, Any]) -> None:
        kind, n = type(self).__name__, self._dimensions
        size, ratio = values["output_size"], values["output_ratio"]
        if size is None and ratio is None:
            raise ValueError(f"{kind} requires specifying either an output size, or a pooling ratio")
        if size is not None and ratio is not None:
            raise ValueError(f"{kind}: only one of output_size and output_ratio may be specified")
        if min(_ntuple(n)(values["kernel_size"])) <= 0:
            raise ValueError(f"kernel_size must be greater than 0, but got {values['kernel_size']}")
        if ratio is not None and not all(0 < part < 1 for part in _ntuple(n)(ratio)):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {ratio})")
        self.register_buffer("_random_samples", values.pop("_random_samples"))
        for name in ("kernel_size", "output_size", "output_ratio"):
            if values[name] is not None:
                values[name] = _ntuple(n)(values[name])
        super()._keep(values)


@face("fractional_max_pool2d", shown="", dims=2)
class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """The largest element of windows at random places, as many as `output_size` or a part `output_ratio` of the input.

    For an input of shape (N, C, H, W) or (C, H, W) (Graham 2014).
    """

    kernel_size: _size_2_t
    output_size: _size_2_t | None = None
    output_ratio: _ratio_any_t | None = None
    return_indices: bool = False
    _random_samples: Tensor | None = None


@face("fractional_max_pool3d", shown="", dims=3)
class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """FractionalMaxPool2d for an input of shape (N, C, D, H, W) or (C, D, H, W)."""

    kernel_size: _size_3_t
    output_size: _size_3_t | None = None
    output_ratio: _ratio_any_t | None = None
    return_indices: bool = False
    _random_samples: Tensor | None = None


# -- means ------------------------------------------------------------------------------------------------------------


class _AvgPoolNd(_Window):
    _shown = _WINDOW


@face("avg_pool1d")
class AvgPool1d(_AvgPoolNd):
    """The mean of each window along the last dimension, of an input of shape (N, C, L) or (C, L)."""

    kernel_size: _size_1_t
    stride: _size_1_t | None = None
    padding: _size_1_t = 0
    ceil_mode: bool = False
    count_include_pad: bool = True

    def _keep(self, values: dict[str, Any]) -> None:
        super()._keep(values)
        for name in ("kernel_size", "stride", "padding"):
            setattr(self, name, _single(getattr(self, name)))


@face("avg_pool2d")
class AvgPool2d(_AvgPoolNd):
    """The mean of each window of images, of shape (N, C, H, W) or (C, H, W).

    `count_include_pad`: the zeros of the padding count; `divisor_override` replaces the number of elements.

    >>> import xgrad
    >>> xgrad.nn.AvgPool2d(2)(xgrad.arange(16.0).reshape(1, 4, 4))
    tensor([[[ 2.5000,  4.5000],
             [10.5000, 12.5000]]])
    """

    kernel_size: _size_2_t
    stride: _size_2_t | None = None
    padding: _size_2_t = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None


@face("avg_pool3d")
class AvgPool3d(_AvgPoolNd):
    """The mean of each window, of an input of shape (N, C, D, H, W) or (C, D, H, W)."""

    kernel_size: _size_3_t
    stride: _size_3_t | None = None
    padding: _size_3_t = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None


@face()
class _LPPoolNd(Face):
    norm_type: float
    kernel_size: _size_any_t
    stride: _size_any_t | None = None
    ceil_mode: bool = False


@face("lp_pool1d")
class LPPool1d(_LPPoolNd):
    """The p-norm of each window, p = `norm_type`, of an input of shape (N, C, L) or (C, L)."""


@face("lp_pool2d")
class LPPool2d(_LPPoolNd):
    """The p-norm of each window, p = `norm_type`, of an input of shape (N, C, H, W) or (C, H, W)."""


@face("lp_pool3d")
class LPPool3d(_LPPoolNd):
    """The p-norm of each window, p = `norm_type`, of an input of shape (N, C, D, H, W) or (C, D, H, W)."""


# -- windows by the size of the result --------------------------------------------------------------------------------


@face(shown="output_size={self.output_size}")
class _AdaptiveMaxPoolNd(Face):
    output_size: _size_any_opt_t
    return_indices: bool = False


@face("adaptive_max_pool1d")
class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest element of each of `output_size` windows, of an input of shape (N, C, L) or (C, L)."""


@face("adaptive_max_pool2d")
class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest element of each of `output_size` windows; None in it is the input's size."""


@face("adaptive_max_pool3d")
class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest element of each of `output_size` windows; None in it is the input's size."""


class _AdaptiveAvgPoolNd(Face):
    _shown = "output_size={self.output_size}"


@face("adaptive_avg_pool1d")
class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The mean of each of `output_size` windows, of an input of shape (N, C, L) or (C, L)."""

    output_size: _size_1_t


@face("adaptive_avg_pool2d")
class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The mean of each of `output_size` windows of images; None in it is the input's size.

    >>> import xgrad
    >>> xgrad.nn.AdaptiveAvgPool2d(1)(xgrad.ones(2, 3, 5, 7)).shape
    xgrad.Size([2, 3, 1, 1])
    """

    output_size: _size_2_opt_t


@face("adaptive_avg_pool3d")
class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The mean of each of `output_size` windows; None in it is the input's size."""

    output_size: _size_3_opt_t
