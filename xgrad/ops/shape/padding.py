"""pad, unfold, fold, pixel_shuffle, channel_shuffle, ...: pad arrays, cut patches, rearrange channels and positions.

All are linear in the input: their gradients save nothing.
"""

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from ...dispatch.call import call
from ...dispatch.declare import composite, linear, operator
from ...dispatch.promotion import scalar
from ...dispatch.samples import COMPLEX, real, sample
from ...tensor import Tensor
from ..create.scalars import fill_value
from ..nn.convolution import expand

functional: Any = partial(operator, namespace="nn.functional", method=False, out=False)


def _fitting(args: tuple, statics: tuple) -> tuple:
    self, *numbers = args
    return (self, *(fill_value(v, self._dtype) for v in numbers)) if isinstance(self, Tensor) else args


@operator(
    method=False,
    out=False,
    signature="input, pad, value=0",
    check=_fitting,
    samples=(sample(real(2, 3), 1.5, pad=(1, 2)), sample(real(2, 3), pad=(-1, 1, 1, 0)), sample(real(0, 3), pad=(1, 1)))
    + COMPLEX,
)
def constant_pad_nd(self, value=0, *, pad):
    """`value` around the last dimensions: `pad` is (before, after) for the last one, then for the one before it."""
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * self.ndim:
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad length is "
            f"{len(pad)} "
            f"while the input has {self.ndim} dimensions."
        )
    sides = [(pad[2 * i], pad[2 * i + 1], 0) for i in range(len(pad) // 2)]
    sides = [(0, 0, 0)] * (self.ndim - len(sides)) + sides[::-1]
    for size, (low, high, _) in zip(self.shape, sides):
        if size + low + high < 0:
            raise RuntimeError(
                f"The input size {size}, plus negative padding {low} and {high} resulted in a negative output "
                "size, which "
                "is invalid"
            )
    return jax.lax.pad(self, scalar(self, value, "value").astype(self.dtype), sides)


constant_pad_nd.derivative(self=linear)

_NUMPY_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@functional(
    "pad_nd",
    function=False,
    samples=tuple([sample(real(1, 2, 3), pad=(1, 2), mode=m) for m in ("reflect", "replicate", "circular")])
    + (sample(real(2, 2, 3), pad=(-1, 1), mode="reflect"),)
    + COMPLEX,
)
def pad_from_input(self, *, pad, mode):
    """Pad with the input's own elements; a negative width crops."""
    n = len(pad) // 2
    if mode not in _NUMPY_MODES or len(pad) % 2 or self.ndim not in (n + 1, n + 2) or not 1 <= n <= 3:
        if mode not in _NUMPY_MODES:
            raise NotImplementedError(
                f"Unrecognised padding mode {mode}: it is constant, reflect, replicate or circular"
            )
        raise NotImplementedError(
            f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now: got {len(pad)} numbers "
            "for an "
            f"input of {self.ndim} dimensions"
        )
    sides = [(0, 0)] * (self.ndim - n) + [(pad[2 * i], pad[2 * i + 1]) for i in reversed(range(n))]
    for axis, (size, (low, high)) in enumerate(zip(self.shape, sides)):
        limit = {"reflect": size - 1, "circular": size}.get(mode)
        if limit is not None and max(low, high, 0) > limit and axis >= self.ndim - n:
            raise RuntimeError(
                "Padding size should be less than "
                f"{'the corresponding input dimension' if mode == 'reflect' else 'or equal to the input dimension'}, "
                f"but got: padding ({low}, {high}) at dimension {axis} of input {list(self.shape)}"
            )
        if size == 0 and (low > 0 or high > 0):
            raise RuntimeError(
                f"Expected a non-empty dimension {axis} of input {list(self.shape)} to pad in mode {mode}"
            )
        if size + low + high < 1 and size:
            raise RuntimeError(
                f"input {list(self.shape)} is too small for the padding ({low}, {high}) at dimension {axis}"
            )
    if mode == "circular":  # PyTorch crops first, and repeats the rest
        crop = tuple(slice(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(self.shape, sides))
        return jnp.pad(self[crop], [(max(low, 0), max(high, 0)) for low, high in sides], mode="wrap")
    grown = jnp.pad(self, [(max(low, 0), max(high, 0)) for low, high in sides], mode=_NUMPY_MODES[mode])
    crop = tuple(slice(max(-low, 0), size - max(-high, 0)) for size, (low, high) in zip(grown.shape, sides))
    return grown[crop]


pad_from_input.derivative(self=linear)


@composite(method=False, namespace="nn.functional")
def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the last dimensions: `pad` is (before, after) for the last one, then for the one before it, and so on.

    `mode` is "constant" (with `value`), "reflect", "replicate" or "circular".  Negative numbers crop.
    """
    if mode == "constant":
        return constant_pad_nd.function(input, pad, 0 if value is None else value)
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    return call(pad_from_input.operator, (input,), (tuple(pad), mode))


# -- unfold and fold --------------------------------------------------------------------------------------------------


def _patches(x: Any, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple) -> Any:
    """Cut x into patches, (batch, channels, *kernel, *positions): one strided slice for each place in the kernel."""
    x = jnp.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    out = _positions(x.shape[2:], kernel, dilation, (0, 0), stride)
    slices = [
        jax.lax.slice(
            x,
            (0, 0, i * dilation[0], j * dilation[1]),
            (
                *x.shape[:2],
                i * dilation[0] + (out[0] - 1) * stride[0] + 1,
                j * dilation[1] + (out[1] - 1) * stride[1] + 1,
            ),
            (1, 1, *stride),
        )
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    return jnp.stack(slices, axis=2)


def _positions(size: tuple, kernel: tuple, dilation: tuple, padding: tuple, stride: tuple) -> list[int]:
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(size, kernel, dilation, padding, stride)]
    if any(o < 1 for o in out):
        raise RuntimeError(
            f"Given an input with spatial size {list(size)}, kernel_size={list(kernel)}, dilation={list(dilation)}, "
            f"padding={list(padding)}, calculated shape of the array of sliding blocks as {out}, but its "
            "components must "
            "be at least one."
        )
    return out


def _pairs(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> tuple:
    given = (("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding), ("stride", stride))
    found = tuple(expand(value, 2, name) for name, value in given)
    for (name, _), value in zip(given, found):
        if any(v < (0 if name == "padding" else 1) for v in value):
            raise RuntimeError(f"{name} should be greater than zero, but got {list(value)}")
    return found


@functional(
    method=False,
    node="Im2ColBackward0",
    samples=(sample(real(1, 2, 3, 4), kernel_size=2), sample(real(1, 3, 4), kernel_size=(2, 1), padding=1, stride=2))
    + COMPLEX,
)
def unfold(self, *, kernel_size, dilation=1, padding=0, stride=1):
    """Sliding blocks as columns: (batch, channels, height, width) to (batch, channels * kernel, positions).

    PyTorch: `torch.nn.functional.unfold` (im2col); the method `unfold` is another function.
    """
    how = _pairs(kernel_size, dilation, padding, stride)
    if self.ndim not in (3, 4):
        raise RuntimeError(f"Expected 3D or 4D (batch mode) tensor for input, but got {list(self.shape)}")
    x = self if self.ndim == 4 else self[None]
    patches = _patches(x, *how)
    out = patches.reshape(x.shape[0], x.shape[1] * prod(how[0]), prod(patches.shape[3:]))
    return out if self.ndim == 4 else out[0]


@functional(
    node="Col2ImBackward0",
    samples=(
        sample(real(1, 8, 4), output_size=3, kernel_size=2),
        sample(real(4, 2), output_size=(3, 4), kernel_size=2, dilation=(2, 1), stride=2),
    )
    + COMPLEX,
)
def fold(self, *, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """The transpose of `unfold`: columns of blocks, added up where they overlap, to an array of `output_size`."""
    how = _pairs(kernel_size, dilation, padding, stride)
    size = expand(output_size, 2, "output_size")
    if self.ndim not in (2, 3):
        raise RuntimeError(f"Expected 2D or 3D (batch mode) tensor for input, but got {list(self.shape)}")
    columns = self if self.ndim == 3 else self[None]
    kernel = how[0]
    out = _positions(size, *how)
    if columns.shape[1] % prod(kernel) or columns.shape[2] != prod(out):
        raise RuntimeError(
            f"Given output_size={list(size)}, kernel_size={list(kernel)}, dilation={list(how[1])}, "
            f"padding={list(how[2])}, "
            f"stride={list(how[3])}, expected size of input's dimension 1 to be divisible by {prod(kernel)} and "
            "its dimension "
            f"2 to match the calculated number of sliding blocks {' * '.join(map(str, out))} = {prod(out)}, but got "
            f"{list(self.shape)}."
        )
    image = jax.ShapeDtypeStruct((columns.shape[0], columns.shape[1] // prod(kernel), *size), self.dtype)
    blocks = columns.reshape(image.shape[:2] + (prod(kernel), *out))
    found = jax.linear_transpose(lambda x: _patches(x, *how), image)(blocks)[0]
    return found if self.ndim == 3 else found[0]


# -- channels ---------------------------------------------------------------------------------------------------------


@operator(
    method=False,
    out=False,
    namespace=("nn.functional", ""),
    samples=(sample(real(1, 4, 2, 1), upscale_factor=2),) + COMPLEX,
)
def pixel_shuffle(self, *, upscale_factor):
    """(..., channels * r², height, width) to (..., channels, height * r, width * r)."""
    r = upscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-3] % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
            "upscale_factor, but got "
            f"input of size {list(self.shape)} and upscale_factor={r}"
        )
    *lead, c, h, w = self.shape
    x = self.reshape(*lead, c // (r * r), r, r, h, w)
    n = len(lead)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return x.transpose(order).reshape(*lead, c // (r * r), h * r, w * r)


@operator(
    method=False,
    out=False,
    namespace=("nn.functional", ""),
    samples=(sample(real(1, 1, 2, 4), downscale_factor=2),) + COMPLEX,
)
def pixel_unshuffle(self, *, downscale_factor):
    """The inverse of `pixel_shuffle`: (..., channels, height * r, width * r) to (..., channels * r², height, width)."""
    r = downscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-1] % r or self.shape[-2] % r:
        raise RuntimeError(
            "pixel_unshuffle expects height and width to be divisible by downscale_factor, but got input of size "
            f"{list(self.shape)} and downscale_factor={r}"
        )
    *lead, c, h, w = self.shape
    x = self.reshape(*lead, c, h // r, r, w // r, r)
    n = len(lead)
    return x.transpose(*range(n + 1), n + 2, n + 4, n + 1, n + 3).reshape(*lead, c * r * r, h // r, w // r)


@operator(
    method=False,
    out=False,
    namespace=("nn.functional", ""),
    aliases=("native_channel_shuffle",),
    samples=(sample(real(1, 4, 2), groups=2),) + COMPLEX,
)
def channel_shuffle(self, *, groups):
    """Take one channel of each of `groups` groups in turn (dimension 1)."""
    if self.ndim < 3 or groups < 1 or self.shape[1] % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {list(self.shape)} and {groups} groups (the "
            "input needs "
            "more than 2 dimensions)."
        )
    n, c, *rest = self.shape
    return jnp.swapaxes(self.reshape(n, groups, c // groups, *rest), 1, 2).reshape(self.shape)


for _op in (unfold, fold, pixel_shuffle, pixel_unshuffle, channel_shuffle):
    _op.derivative(self=linear)
