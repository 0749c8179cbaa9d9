"""fake_quantize_per_tensor_affine, ..._per_channel_affine: round values to a scaled grid of integers, for training.

Nothing here is a quantized tensor.  The gradient is the straight-through estimator's: the incoming one where the
value lies on the grid, 0 where it was cut off.  Scale and zero point have none.
(PyTorch: FakeQuantPerTensorAffine.cpp, FakeQuantPerChannelAffine.cpp.)
"""

from functools import partial
from typing import Any

import jax.numpy as jnp

from ...config import state
from ...dispatch.argument_kinds import require_int
from ...dispatch.declare import operator
from ...dispatch.promotion import require_real_floating, wrap_dim
from ...dispatch.samples import CONVENTION, fixed, positive, real, sample, whole
from ...tensor import Tensor
from ..index.index_checks import on_host


def _check(function: str, arrays: tuple, statics: tuple) -> None:
    _, scale, zero_point = arrays
    low, high = statics[-2:]
    require_int(function, quant_min=low, quant_max=high)
    if not isinstance(zero_point, Tensor):
        require_int(function, zero_point=zero_point)
    for name, x in (("scale", scale), ("zero_point", zero_point)):
        if state.grad_enabled and isinstance(x, Tensor) and x.requires_grad:
            raise RuntimeError(f"fake quantization is not differentiable with respect to argument '{name}'")
    if low > high:
        raise RuntimeError(f"`quant_min` should be less than or equal to `quant_max`, got {low} and {high}")
    values = on_host(zero_point)
    if values is not None and not ((values >= low) & (values <= high)).all():
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")


def _numbers(scale: Any, zero_point: Any) -> tuple[Any, Any]:
    """Return scale and zero point without dimensions; the zero point as an integer, as PyTorch's kernel reads it."""
    return jnp.reshape(scale, ()), jnp.reshape(zero_point, ()).astype(jnp.int32)


def _on_grid(x: Any, scale: Any, zero_point: Any) -> Any:
    """Return x in units of the scale, from the zero point; computed in float32 at least, as in PyTorch."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    steps = x.astype(wide) * (1 / jnp.asarray(scale, jnp.float32)).astype(wide)
    if jnp.issubdtype(jnp.asarray(zero_point).dtype, jnp.floating):  # only then is the sum rounded
        return jnp.round(steps + jnp.asarray(zero_point, wide))
    return jnp.round(steps) + jnp.asarray(zero_point, wide)


def _quantized(x: Any, scale: Any, zero_point: Any, low: int, high: int, wide: Any) -> Any:
    cut = jnp.fmin(jnp.fmax(_on_grid(x, scale, zero_point), low), high)  # NaN becomes `low`
    return ((cut.astype(wide) - jnp.asarray(zero_point, wide)) * jnp.asarray(scale, jnp.float32)).astype(x.dtype)


def _passed(grad: Any, x: Any, scale: Any, zero_point: Any, low: int, high: int) -> Any:
    at = _on_grid(x, scale, zero_point)
    return jnp.where((at >= low) & (at <= high), grad, 0)


@operator(
    signature="input, scale, zero_point, quant_min, quant_max",
    method=False,
    out=False,
    node="FakeQuantizePerTensorAffineCachemaskBackward0",
    check=partial(_check, "fake_quantize_per_tensor_affine"),
    samples=(
        sample(real(2, 3), 0.1, 1, quant_min=-8, quant_max=7), sample(real(), 0.1, 0, quant_min=-8, quant_max=7),
        sample(real(0, 3), 0.1, 0, quant_min=0, quant_max=255), *CONVENTION,
    ),
)  # fmt: skip
def fake_quantize_per_tensor_affine(self, scale, zero_point, *, quant_min, quant_max):
    """The elements rounded to multiples of `scale`: `scale * (q - zero_point)` for integers q in a range.

    The range is that from `quant_min` to `quant_max`; elements beyond it are cut off, and get no gradient.  `scale` and
    `zero_point` are numbers, or tensors of one element without a gradient.

    >>> import xgrad
    >>> x = xgrad.tensor([-2.0, 0.24, 0.26, 2.0])
    >>> xgrad.fake_quantize_per_tensor_affine(x, 0.5, 0, -2, 3)
    tensor([-1.0000,  0.0000,  0.5000,  1.5000])
    """
    require_real_floating(self, "fake_quantize_per_tensor_affine")
    for x in (scale, zero_point):
        if getattr(x, "size", 1) != 1:
            raise RuntimeError(f"a Tensor with {x.size} elements cannot be converted to Scalar")
    return _quantized(self, *_numbers(scale, zero_point), quant_min, quant_max, jnp.float32)


def _pass_tensor(grad, self, scale, zero_point, quant_min, quant_max):
    return _passed(grad, self, *_numbers(scale, zero_point), quant_min, quant_max)


fake_quantize_per_tensor_affine.derivative(self=_pass_tensor)


def _channels(x: Any, numbers: Any, axis: int) -> Any:
    """Shape a vector of numbers, one for each slice along `axis`, for broadcasting with `x`."""
    return numbers.reshape([-1 if d == axis else 1 for d in range(x.ndim)])


@operator(
    signature="input, scale, zero_point, axis, quant_min, quant_max",
    method=False,
    out=False,
    node="FakeQuantizePerChannelAffineCachemaskBackward0",
    check=partial(_check, "fake_quantize_per_channel_affine"),
    samples=(
        sample(real(2, 3), fixed(positive(3)), whole(0, 3, 3), axis=1, quant_min=-8, quant_max=7),
        sample(real(0, 3), fixed(positive(3)), whole(0, 3, 3), axis=1, quant_min=0, quant_max=255), *CONVENTION,
    ),
)  # fmt: skip
def fake_quantize_per_channel_affine(self, scale, zero_point, *, axis, quant_min, quant_max):
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each slice along `axis`: two vectors.

    >>> import xgrad
    >>> x = xgrad.tensor([[0.3, 0.3], [2.0, 2.0]])
    >>> xgrad.fake_quantize_per_channel_affine(x, xgrad.tensor([0.5, 0.25]), xgrad.tensor([0, 0]), 1, 0, 3)
    tensor([[0.5000, 0.2500],
            [1.5000, 0.7500]])
    """
    require_real_floating(self, "fake_quantize_per_channel_affine")
    for name, x in (("scale", scale), ("zero_point", zero_point)):
        if getattr(x, "ndim", 0) != 1:
            raise RuntimeError(f"{name} should be a 1-D tensor")
    if wrap_dim(axis, self.ndim) != axis:
        raise RuntimeError("`axis` must be between 0 and number of dimensions of input")
    n = self.shape[axis]
    if scale.shape != (n,) or zero_point.shape != (n,):
        raise RuntimeError("dimensions of scale and zero-point are not consistent with input tensor")
    scale, zero_point = (_channels(self, x, axis) for x in (scale, zero_point))
    return _quantized(self, scale, zero_point, quant_min, quant_max, jnp.promote_types(self.dtype, jnp.float32))


def _pass_channels(grad, self, scale, zero_point, axis, quant_min, quant_max):
    scale, zero_point = (_channels(self, x, axis) for x in (scale, zero_point))
    return _passed(grad, self, scale, zero_point, quant_min, quant_max)


fake_quantize_per_channel_affine.derivative(self=_pass_channels)
