"""conv1d, conv_transpose1d, ...: compute convolutions and transposed ones by `jax.lax` (PyTorch: Convolution.cpp).

Arrays are (batch, channels, *space), and the batch dimension may be missing.  A convolution's weight is (out, in /
groups, *kernel), a transposed one's (in, out / groups, *kernel).  `conv_tbc` has layouts of its own.  All run
`conv_general_dilated`.  A convolution is linear in the input and in the weight: each gradient saves only the other one.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...dispatch.declare import linear, operator
from ...dispatch.promotion import require_same_dtype
from ...dispatch.samples import COMPLEX, real, sample

functional: Any = partial(operator, namespace=("nn.functional", ""), method=False, out=False)


def expand(value: Any, n: int, name: str) -> tuple[int, ...]:
    """Return a size for each of `n` dimensions, from one number or one for each."""
    if not isinstance(value, tuple):
        return (value,) * n
    if len(value) == 1:
        return value * n
    if len(value) != n:
        raise RuntimeError(
            f"expected {name} to be a single integer value or a list of {n} values, but got {name}={list(value)}"
        )
    return value


def _check(name: str, n: int, x: Any, weight: Any, bias: Any, groups: int, in_axis: int, **sizes: tuple) -> None:
    require_same_dtype(x, weight, name)
    if weight.ndim != n + 2:
        raise RuntimeError(
            f"{name}: expected a {n + 2}-dimensional weight, but got a weight of size {list(weight.shape)}"
        )
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: "
            f"{list(x.shape)}"
        )
    for what, least in (("stride", 1), ("dilation", 1), ("padding", 0), ("output_padding", 0)):
        if any(s < least for s in sizes.get(what, ())):
            kind = "non-positive" if least else "negative"
            raise RuntimeError(f"{name}: {kind} {what} is not supported, but got {list(sizes[what])}")
    if groups < 1:
        raise RuntimeError(f"{name}: expected groups to be greater than 0, but got groups={groups}")
    out_channels = weight.shape[1 - in_axis] * (groups if in_axis == 0 else 1)
    channels = weight.shape[in_axis] * (groups if in_axis == 1 else 1)
    if weight.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size "
            f"{list(weight.shape)} instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
            "size "
            f"{list(weight.shape)} instead"
        )
    if x.shape[x.ndim - n - 1] != channels:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(x.shape)} to have "
            f"{channels} "
            f"channels, but got {x.shape[x.ndim - n - 1]} channels instead"
        )
    if bias is not None and bias.shape != (out_channels,):
        raise RuntimeError(
            f"Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {out_channels} "
            "elements, "
            f"but got bias of size {list(bias.shape)} instead"
        )


def _apply(n: int, x: Any, weight: Any, bias: Any, **how: Any) -> Any:
    """Run `conv_general_dilated` with a bias; a single example becomes a batch of one."""
    single = x.ndim == n + 1
    out = jax.lax.conv_general_dilated(x[None] if single else x, weight, **how)
    if bias is not None:
        out = out + bias.reshape((-1,) + (1,) * n)
    return out[0] if single else out


def _same(kernel: tuple, stride: tuple, dilation: tuple, padding: str) -> list[tuple[int, int]]:
    """The padding for "valid" or "same", (before, after) for each dimension; an odd element goes after."""
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'. It should be one of 'valid', 'same'.")
    if any(s != 1 for s in stride):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    return [(t // 2, t - t // 2) for t in totals]


def _convolve(n, x, weight, bias, stride, padding, dilation, groups):
    name = f"conv{n}d"
    stride, dilation = expand(stride, n, "stride"), expand(dilation, n, "dilation")
    sides = expand(padding, n, "padding") if not isinstance(padding, str) else ()
    _check(name, n, x, weight, bias, groups, 1, stride=stride, dilation=dilation, padding=sides)
    kernel = weight.shape[2:]
    pads = [(p, p) for p in sides] or _same(kernel, stride, dilation, padding)
    for size, (low, high), d, k in zip(x.shape[-n:], pads, dilation, kernel, strict=True):
        if size + low + high < d * (k - 1) + 1:
            raise RuntimeError(
                f"{name}: Calculated padded input size per channel: {size + low + high}. Kernel size: "
                f"{d * (k - 1) + 1}. "
                "Kernel size can't be greater than actual input size"
            )
    return _apply(
        n, x, weight, bias, window_strides=stride, padding=pads, rhs_dilation=dilation, feature_group_count=groups
    )


def _convolve_transposed(n, x, weight, bias, stride, padding, output_padding, groups, dilation):
    stride, dilation = expand(stride, n, "stride"), expand(dilation, n, "dilation")
    padding, extra = expand(padding, n, "padding"), expand(output_padding, n, "output_padding")
    name = f"conv_transpose{n}d"
    _check(name, n, x, weight, bias, groups, 0, stride=stride, dilation=dilation, padding=padding, output_padding=extra)
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if e >= max(s, d):
            raise RuntimeError(
                f"output padding must be smaller than either stride or dilation, but got output_padding={list(extra)}, "
                f"stride={list(stride)}, dilation={list(dilation)}"
            )
    # The gradient of a convolution in its input: the input dilated by the stride, the kernel flipped and, within
    # each group, its two channel dimensions exchanged.
    channels, out, *kernel = weight.shape
    turned = jnp.flip(weight, range(2, n + 2)).reshape(groups, channels // groups, out, *kernel)
    turned = jnp.swapaxes(turned, 1, 2).reshape(groups * out, channels // groups, *kernel)
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    pads = [(r - p, r - p + e) for r, p, e in zip(reach, padding, extra, strict=True)]
    sizes = [(i - 1) * s + 1 + low + high - r for i, s, (low, high), r in zip(x.shape[-n:], stride, pads, reach)]
    if any(size < 1 for size in sizes):
        raise RuntimeError(f"{name}: Given input size {list(x.shape)}, calculated output size {sizes}. It is too small")
    return _apply(
        n, x, turned, bias, window_strides=(1,) * n, padding=pads, lhs_dilation=stride, rhs_dilation=dilation,
        feature_group_count=groups,
    )  # fmt: skip


def _samples(n: int, transposed: bool) -> tuple:
    """Samples with a bias; with stride and padding; unbatched; in groups; with a dilation, or a larger result."""
    x, weight = (3,) * n, (2,) * n
    last: dict = {"stride": 3, "output_padding": 1} if transposed else {"dilation": 2, "padding": 1}
    return (
        sample(real(1, 2, *x), real(2, 2, *weight), real(2)),
        sample(real(2, *x), real(2, 2, *weight), stride=2, padding=1),
        sample(real(1, 2, *x), real(2, 1, *weight), groups=2),
        sample(real(1, 2, *x), real(2, 2, *weight), **last),
        sample(real(0, 2, *x), real(2, 2, *weight), real(2)),
    ) + COMPLEX


def _declare(n: int) -> tuple[Any, Any]:
    @functional(f"conv{n}d", node="ConvolutionBackward0", samples=_samples(n, False))
    def convolution(self, weight, bias=None, *, stride=1, padding=0, dilation=1, groups=1):
        return _convolve(n, self, weight, bias, stride, padding, dilation, groups)

    @functional(f"conv_transpose{n}d", node="ConvolutionBackward0", samples=_samples(n, True))
    def transposed(self, weight, bias=None, *, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return _convolve_transposed(n, self, weight, bias, stride, padding, output_padding, groups, dilation)

    def sum_over_positions(grad):
        return jnp.sum(grad, axis=[i for i in range(grad.ndim) if i != grad.ndim - n - 1])

    for op in (convolution, transposed):
        op.derivative(self=linear, weight=linear, bias=sum_over_positions)
    axes = ", ".join(("depth", "height", "width")[-n:] if n > 1 else ("length",))
    convolution.function.__doc__ = f"""Cross-correlate `input` (batch, channels, {axes}) with `weight`, plus `bias`.

    `padding` is a number for each dimension, or "valid", or "same" (a result of the input's size; stride 1 only).
    """
    transposed.function.__doc__ = (
        f"The transpose of `conv{n}d` as a linear function: its gradient with respect to the input."
    )
    return convolution, transposed


conv1d: Any
conv_transpose1d: Any
conv1d, conv_transpose1d = _declare(1)
conv2d: Any
conv_transpose2d: Any
conv2d, conv_transpose2d = _declare(2)
conv3d: Any
conv_transpose3d: Any
conv3d, conv_transpose3d = _declare(3)


@functional(
    "conv_tbc",
    samples=(
        sample(real(3, 1, 2), real(2, 2, 2), real(2)), sample(real(3, 2, 1), real(2, 1, 2), real(2), pad=1),
        sample(real(3, 0, 2), real(2, 2, 2), real(2)), *COMPLEX,
    ),
)  # fmt: skip
def conv_tbc(self, weight, bias, *, pad=0):
    """Cross-correlate `input` (time, batch, channels) with `weight` (kernel, in, out) along time, plus `bias` (out)."""
    if self.ndim != 3:
        raise RuntimeError(f"Input must have 3 dims: time, batch, in_channel, but got {list(self.shape)}")
    if weight.ndim != 3:
        raise RuntimeError(
            f"Weight tensor must have 3 dims: kernel_width, in_channels, out_channels., but got {list(weight.shape)}"
        )
    if bias.ndim != 1:
        raise RuntimeError(f"Bias must be 1-D, but got {list(bias.shape)}")
    if self.shape[2] != weight.shape[1]:
        raise RuntimeError(
            f"Input dim 2 (input channels) is not == dim 1 in the weight tensor: {self.shape[2]} and {weight.shape[1]}"
        )
    if bias.shape[0] != weight.shape[2]:
        raise RuntimeError(
            f"Bias size must equal dim 2 in the weight tensor (output channels): {bias.shape[0]} and {weight.shape[2]}"
        )
    for other in (weight, bias):
        require_same_dtype(self, other, "conv_tbc")
    length = self.shape[0] + 2 * pad - weight.shape[0] + 1
    if length < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {length}: the kernel of {weight.shape[0]} is longer than "
            f"the padded input of {self.shape[0] + 2 * pad}"
        )
    out = jax.lax.conv_general_dilated(self, weight, (1,), [(pad, pad)], dimension_numbers=("WNC", "WIO", "WNC"))
    return out + bias


conv_tbc.derivative(self=linear, weight=linear, bias=lambda grad: jnp.sum(grad, axis=(0, 1)))
