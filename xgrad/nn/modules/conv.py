"""Conv1d to 3d, ConvTranspose1d to 3d, LazyConv1d, ...: convolution layers (PyTorch: torch/nn/modules/conv.py)."""

import math
from typing import Any, ClassVar

from ...autograd.grad_mode import no_grad
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..common_types import _size_any_t
from ..module import Module
from ..parameter import Parameter
from .lazy import LazyModuleMixin, uninitialized
from .utils import _ntuple, _reverse_repeat_tuple

_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Base class of convolutions: weight and bias are drawn uniformly from ±1/√fan_in.

    Its constructor takes tuples, and whether the convolution is `transposed`.  Raises `ValueError` for channels that
    `groups` does not divide, and for a padding that is not known.
    """

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Any  # numbers, or "same" or "valid"
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    padding_mode: str
    weight: Any
    bias: Any

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: tuple[int, ...], stride: tuple[int, ...],
        padding: str | tuple[int, ...], dilation: tuple[int, ...], transposed: bool, output_padding: tuple[int, ...],
        groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if groups <= 0:
            raise ValueError(f"groups must be a positive integer, got {groups}")
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(f"{name} must be divisible by groups, got {channels} and {groups}")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of 'same', 'valid'")
            if padding == "same" and any(step != 1 for step in stride):
                raise ValueError(f"padding='same' is not supported for strided convolutions, got stride {stride}")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {_MODES}, but got padding_mode='{padding_mode}'")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.transposed, self.output_padding, self.padding_mode = transposed, output_padding, padding_mode
        self._reversed_padding_repeated_twice = self._padding_of_modes()
        empty, sizes = FUNCTIONS[""]["empty"], self._weight_channels()
        self.weight = Parameter(empty(*sizes, *kernel_size, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def _weight_channels(self) -> tuple[int, int]:
        if self.transposed:
            return self.in_channels, self.out_channels // self.groups
        return self.out_channels, self.in_channels // self.groups

    def _padding_of_modes(self) -> tuple[int, ...]:
        """Return what `pad` takes, for the modes that a convolution does not have itself."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        if self.padding == "valid":
            return (0, 0) * len(self.kernel_size)
        totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        return tuple(part for total in reversed(totals) for part in (total // 2, total - total // 2))

    def reset_parameters(self) -> None:
        """Draw new values of weight and bias."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def extra_repr(self) -> str:
        """Return the sizes, and what is not as usual, as text."""
        n = len(self.kernel_size)
        shown = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        usual = {"padding": (0,) * n, "dilation": (1,) * n, "output_padding": (0,) * n, "groups": 1}
        shown += [f"{name}={getattr(self, name)}" for name in usual if getattr(self, name) != usual[name]]
        shown += ["bias=False"] * (self.bias is None)
        shown += [f"padding_mode={self.padding_mode}"] * (self.padding_mode != "zeros")
        return ", ".join(shown)


class _Conv(_ConvNd):
    """A convolution over the last `_dimensions` dimensions."""

    _dimensions: ClassVar[int]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _size_any_t, stride: _size_any_t = 1,
        padding: str | _size_any_t = 0, dilation: _size_any_t = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        wide = _ntuple(self._dimensions)
        super().__init__(
            in_channels, out_channels, wide(kernel_size), wide(stride),
            padding if isinstance(padding, str) else wide(padding), wide(dilation), False, wide(0), groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, self.padding_mode), 0
        convolution = getattr(F, f"conv{self._dimensions}d")
        return convolution(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution of the input."""
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """A convolution of an input of shape (N, C, L) or (C, L): `nn.functional.conv1d`.

    >>> import xgrad
    >>> xgrad.nn.Conv1d(2, 3, kernel_size=3, padding=1)(xgrad.ones(1, 2, 5)).shape
    xgrad.Size([1, 3, 5])
    """

    _dimensions = 1


class Conv2d(_Conv):
    """A convolution of images, of shape (N, C, H, W) or (C, H, W): `nn.functional.conv2d`.

    `padding`: numbers, "same" or "valid".  `padding_mode`: "zeros", "reflect", "replicate" or "circular".

    >>> import xgrad
    >>> xgrad.nn.Conv2d(3, 6, kernel_size=5, stride=2)(xgrad.ones(1, 3, 9, 9)).shape
    xgrad.Size([1, 6, 3, 3])
    """

    _dimensions = 2


class Conv3d(_Conv):
    """A convolution of an input of shape (N, C, D, H, W) or (C, D, H, W): `nn.functional.conv3d`."""

    _dimensions = 3


class _ConvTransposeNd(_ConvNd):
    """The transpose of a convolution over the last `_dimensions` dimensions.  Pads by zeros only."""

    _dimensions: ClassVar[int]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: _size_any_t, stride: _size_any_t = 1,
        padding: _size_any_t = 0, output_padding: _size_any_t = 0, groups: int = 1, bias: bool = True,
        dilation: _size_any_t = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}, got {padding_mode!r}')
        wide = _ntuple(self._dimensions)
        super().__init__(
            in_channels, out_channels, wide(kernel_size), wide(stride), wide(padding), wide(dilation), True,
            wide(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def _output_padding(
        self, input: Tensor, output_size: Any, stride: Any = None, padding: Any = None, kernel_size: Any = None,
        num_spatial_dims: int | None = None, dilation: Any = None,
    ) -> tuple[int, ...]:  # fmt: skip
        """Return what is added to the smallest possible size, to have the result of `output_size`.

        Packages call it with PyTorch's arguments; those that are None are the layer's.
        """
        if output_size is None:
            return self.output_padding
        stride, padding = stride or self.stride, padding or self.padding
        kernel_size, dilation = kernel_size or self.kernel_size, dilation or self.dilation
        n, sizes = num_spatial_dims or self._dimensions, tuple(output_size)
        others = input.dim() - n
        if len(sizes) == others + n:
            sizes = sizes[others:]
        if len(sizes) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {others + n} elements "
                f"(got {len(sizes)})"
            )
        smallest = tuple(
            (size - 1) * step - 2 * pad + spread * (kernel - 1) + 1
            for size, step, pad, spread, kernel in zip(
                input.shape[others:], stride, padding, dilation, kernel_size, strict=True
            )
        )
        largest = tuple(size + step - 1 for size, step in zip(smallest, stride, strict=True))
        if not all(low <= size <= high for low, size, high in zip(smallest, sizes, largest, strict=True)):
            raise ValueError(
                f"requested an output size of {sizes}, but valid sizes range from {smallest} to {largest} (for an "
                f"input of {input.shape[others:]})"
            )
        return tuple(size - low for size, low in zip(sizes, smallest, strict=True))

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """Return the transposed convolution of the input, of `output_size` where several sizes are possible."""
        if self.padding_mode != "zeros":
            raise ValueError(f"Only `zeros` padding mode is supported for {type(self).__name__}")
        added = self._output_padding(input, output_size)
        convolution = getattr(F, f"conv_transpose{self._dimensions}d")
        return convolution(input, self.weight, self.bias, self.stride, self.padding, added, self.groups, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of Conv1d: `nn.functional.conv_transpose1d`."""

    _dimensions = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of Conv2d, also called deconvolution: `nn.functional.conv_transpose2d`.

    >>> import xgrad
    >>> up = xgrad.nn.ConvTranspose2d(4, 2, kernel_size=3, stride=2, padding=1)
    >>> up(xgrad.ones(1, 4, 5, 5)).shape, up(xgrad.ones(1, 4, 5, 5), output_size=(10, 10)).shape
    (xgrad.Size([1, 2, 9, 9]), xgrad.Size([1, 2, 10, 10]))
    """

    _dimensions = 2


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of Conv3d: `nn.functional.conv_transpose3d`."""

    _dimensions = 3


# -- channels of the first batch --------------------------------------------------------------------------------------


class _LazyConvXdMixin(LazyModuleMixin):
    """The lazy forms: `in_channels` comes from the first batch."""

    in_channels: int
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    weight: Any
    bias: Any
    _dimensions: ClassVar[int]
    _weight_channels: Any

    def _wait(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        if out_channels % self.groups:
            raise ValueError(f"out_channels must be divisible by groups, got {out_channels} and {self.groups}")
        self.out_channels = out_channels
        uninitialized(self, device, dtype, weight=True, bias=bias)

    def reset_parameters(self) -> None:
        """Draw new values of weight and bias, if they have a shape."""
        if not self.has_uninitialized_params() and self.in_channels:
            own: Any = self
            _ConvNd.reset_parameters(own)

    @no_grad()
    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Materialize weight and bias for the channels of the input."""
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups:
            raise ValueError(f"in_channels must be divisible by groups, got {self.in_channels} and {self.groups}")
        self.weight.materialize((*self._weight_channels(), *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: Tensor) -> int:
        n = self._get_num_spatial_dims()
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, but got input of "
                f"size: {list(input.shape)}"
            )
        return input.shape[-1 - n]

    def _get_num_spatial_dims(self) -> int:
        return self._dimensions


class _LazyConv(_LazyConvXdMixin):
    def __init__(
        self, out_channels: int, kernel_size: _size_any_t, stride: _size_any_t = 1, padding: str | _size_any_t = 0,
        dilation: _size_any_t = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._wait(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(
        self, out_channels: int, kernel_size: _size_any_t, stride: _size_any_t = 1, padding: _size_any_t = 0,
        output_padding: _size_any_t = 0, groups: int = 1, bias: bool = True, dilation: _size_any_t = 1,
        padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._wait(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """Conv1d whose `in_channels` comes from the first batch."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """Conv2d whose `in_channels` comes from the first batch.

    >>> import xgrad
    >>> layer = xgrad.nn.LazyConv2d(6, kernel_size=3)
    >>> layer(xgrad.ones(1, 3, 5, 5)).shape
    xgrad.Size([1, 6, 3, 3])
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """Conv3d whose `in_channels` comes from the first batch."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """ConvTranspose1d whose `in_channels` comes from the first batch."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """ConvTranspose2d whose `in_channels` comes from the first batch."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """ConvTranspose3d whose `in_channels` comes from the first batch."""

    cls_to_become = ConvTranspose3d
