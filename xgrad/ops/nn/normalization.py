"""layer_norm, rms_norm, batch_norm, group_norm, ...: operators that normalize tensors (PyTorch: Normalization.cpp).

Backward computes mean and variance again, from the input: only the arguments are saved.  Half precision is computed in
float32, as in PyTorch.
"""

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp

from ...config import state
from ...dispatch.call import call
from ...dispatch.declare import composite, operator
from ...dispatch.inplace import call_inplace
from ...dispatch.plan import pulled_back
from ...dispatch.promotion import conj, refuse_complex, require_floating, require_real_floating, scalar, widen
from ...dispatch.samples import COMPLEX, fixed, positive, real, sample
from ...dispatch.tables import FUNCTIONS
from ...engine.saved_variable import Stopped
from ...execution.programs.barriers import apart
from ...tensor import Tensor

functional: Any = partial(operator, namespace=("nn.functional", ""), method=False, out=False)

_CHANNELS = real(2, 4, 2)
_BY_CHANNEL = (sample(_CHANNELS, real(4), real(4), 1e-2), sample(real(3, 2), None, None, 1e-2))


def _standardize(x: Any, axes: tuple[int, ...], eps: Any) -> tuple[Any, Any, Any]:
    """(`x` with mean 0 and variance 1 over `axes`, the mean, the biased variance)."""
    x = widen(x)
    mean = jnp.mean(x, axis=axes, keepdims=True)
    centred = x - mean
    var = jnp.mean(centred * centred, axis=axes, keepdims=True)
    return centred * jax.lax.rsqrt(var + scalar(var, eps, "eps")), mean, var


def _affine(x: Any, weight: Any, bias: Any, shape: tuple) -> Any:
    if weight is not None:
        x = x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _check_shape(name: str, x: Any, normalized_shape: Any, **parameters: Any) -> tuple[int, ...]:
    """Check `normalized_shape`, and return the dimensions that it covers."""
    if not isinstance(normalized_shape, tuple) or not normalized_shape:
        raise RuntimeError(f"{name}: Expected normalized_shape to be at least 1-dimensional, i.e. a list of sizes")
    n = len(normalized_shape)
    if x.shape[-n:] != normalized_shape:
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape "
            f"[*, {', '.join(map(str, normalized_shape))}], but got input of size{list(x.shape)}"
        )
    for what, value in parameters.items():
        if value is not None and value.shape != normalized_shape:
            raise RuntimeError(
                f"Expected {what} to be of same shape as normalized_shape, but got {what} of shape "
                f"{list(value.shape)} and "
                f"normalized_shape = {list(normalized_shape)}"
            )
    require_floating(x, name)
    return tuple(range(x.ndim - n, x.ndim))


@functional(
    signature="input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True",
    node="NativeLayerNormBackward0",
    samples=(
        sample(real(2, 3), real(3), real(3), 1e-2, normalized_shape=(3,)),
        sample(real(2, 3), normalized_shape=(2, 3)),
        sample(real(0, 3), real(3), normalized_shape=(3,)),
    ),
)
def layer_norm(self, weight=None, bias=None, eps=1e-5, *, normalized_shape):
    """Mean 0 and variance 1 over the last dimensions, of sizes `normalized_shape`; then `* weight + bias`."""
    refuse_complex(self, "layer_norm")
    axes = _check_shape("layer_norm", self, normalized_shape, weight=weight, bias=bias)
    return _affine(_standardize(self, axes, eps)[0], weight, bias, normalized_shape).astype(self.dtype)


def _row_sum(terms, shape, grad, *others):
    """Sum of `terms` over all dimensions but the last ones, which have sizes `shape`."""
    over = tuple(range(grad.ndim - len(shape)))
    return apart(lambda *arrays: jnp.sum(terms(*map(widen, arrays)), axis=over).astype(grad.dtype), grad, *others)


layer_norm.derivative(
    self=lambda grad, function, self, weight, eps: pulled_back(function, [0], [self, weight, None, eps], grad)[0],
    weight=lambda grad, function, self, eps, normalized_shape: _row_sum(
        lambda g, x: g * function(x, None, None, eps), normalized_shape, grad, self
    ),
    bias=lambda grad, normalized_shape: _row_sum(lambda g: g, normalized_shape, grad),
)


@functional(
    signature="input, normalized_shape, weight=None, eps=None",
    samples=(
        sample(real(2, 3), real(3), 1e-2, normalized_shape=(3,)),
        sample(real(2, 3), normalized_shape=(2, 3)),
        sample(real(0, 3), real(3), normalized_shape=(3,)),
        *COMPLEX,
    ),
)
def rms_norm(self, weight=None, eps=None, *, normalized_shape):
    """Mean square 1 over the last dimensions, of sizes `normalized_shape`; then `* weight`.

    `eps` is added to the mean square: by default the machine epsilon of the dtype in which it computes, which is
    float32 for float16 and bfloat16.
    """
    axes = _check_shape("rms_norm", self, normalized_shape, weight=weight)
    eps = float(jnp.finfo(self.dtype).eps) if eps is None else scalar(self, eps, "eps")
    x = self * jax.lax.rsqrt(jnp.mean(self * self, axis=axes, keepdims=True) + eps)
    return _affine(x, weight, None, normalized_shape).astype(self.dtype)


rms_norm.derivative(
    self=lambda grad, function, self, weight, eps: pulled_back(function, [0], [self, weight, eps], grad)[0],
    weight=lambda grad, function, self, eps, normalized_shape: _row_sum(
        lambda g, x: g * conj(function(x, None, eps)), normalized_shape, grad, self
    ),
)


@functional(
    signature="input, num_groups, weight=None, bias=None, eps=1e-05, cudnn_enabled=True",
    node="NativeGroupNormBackward0",
    samples=(
        sample(_CHANNELS, real(4), real(4), 1e-2, num_groups=2),
        sample(real(2, 4), num_groups=2),
        sample(real(0, 4, 2), real(4), num_groups=2),
    ),
)
def group_norm(self, weight=None, bias=None, eps=1e-5, *, num_groups):
    """Mean 0 and variance 1 over each of `num_groups` groups of channels; then `* weight + bias` by channel."""
    if self.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {self.ndim}")
    channels = self.shape[1]
    if num_groups < 1 or channels % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(self.shape)} and num_groups={num_groups}"
        )
    require_real_floating(self, "group_norm")
    _check_channels("group_norm", channels, weight=weight, bias=bias)
    grouped = self.reshape(self.shape[0], num_groups, prod(self.shape[1:]) // num_groups)
    x = _standardize(grouped, (2,), eps)[0].reshape(self.shape)
    return _affine(x, weight, bias, _by_channel(self)).astype(self.dtype)


def _by_channel(x: Any) -> tuple[int, ...]:
    return (-1,) + (1,) * (x.ndim - 2)


def _check_channels(name: str, channels: int, **parameters: Any) -> None:
    for what, value in parameters.items():
        if value is not None and value.size != channels:
            raise RuntimeError(f"{name}: {what} should contain {channels} elements not {value.size}")


# -- with running statistics ------------------------------------------------------------------------------------------


@functional("native_batch_norm", function=False, output_differentiability=(True, False, False), samples=_BY_CHANNEL)
def _by_batch(self, weight, bias, eps):
    """Normalize by the statistics of the batch: (result, mean, unbiased variance)."""
    require_real_floating(self, "batch_norm")
    axes = (0, *range(2, self.ndim))
    x, mean, var = _standardize(self, axes, eps)
    n = self.size // self.shape[1]
    out = _affine(x, weight, bias, _by_channel(self)).astype(self.dtype)
    return out, mean.reshape(-1), var.reshape(-1) * (n / max(n - 1, 1))


def _by_batch_gradient(grads, self, weight, eps):
    # 1.7 times faster than the derived one (float32, 16x64x32x32, CPU); for layer_norm both take the same time.  The
    # statistics have no gradient: only `batch_norm` uses them.
    axes, n = (0, *range(2, self.ndim)), self.size // self.shape[1]
    grad = widen(grads[0])
    x, _, var = _standardize(self, axes, eps)
    of_bias = jnp.sum(grad, axis=axes, keepdims=True)
    of_weight = jnp.sum(grad * x, axis=axes, keepdims=True)
    scale = jax.lax.rsqrt(var + scalar(var, eps, "eps"))
    scale = scale if weight is None else scale * weight.reshape(_by_channel(self))
    of_self = scale * (grad - (of_bias + x * of_weight) / n)
    return of_self, of_weight.reshape(-1), of_bias.reshape(-1)


_by_batch.derivative(all=_by_batch_gradient)


_MEAN, _VAR = fixed(real(4)), fixed(positive(4))


@functional(
    "running_batch_norm",
    function=False,
    node="NativeBatchNormBackward0",
    samples=(sample(_CHANNELS, _MEAN, _VAR, real(4), real(4), 1e-2), sample(real(3, 4), _MEAN, _VAR, None, None, 1e-2)),
)
def _by_running(self, running_mean, running_var, weight, bias, eps):
    """Normalize by the running statistics."""
    require_real_floating(self, "batch_norm")
    shape = _by_channel(self)
    x = (widen(self) - running_mean.reshape(shape)) * jax.lax.rsqrt(
        running_var.reshape(shape) + scalar(running_var, eps, "eps")
    )
    return _affine(x, weight, bias, shape).astype(self.dtype)


@operator(
    "running_statistic",
    method=False,
    function=False,
    differentiable=False,
    samples=(sample(real(4), real(4), 0.1), *COMPLEX),
)
def _follow(self, batch, momentum):
    """The running statistic after a batch."""
    return (1 - momentum) * self + momentum * batch.astype(self.dtype)


@composite(method=False, namespace=("nn.functional", ""))
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Mean 0 and variance 1 for each channel (dimension 1) over the batch; then `* weight + bias`.

    Training uses the statistics of the batch, and updates the running ones in place; otherwise the running ones are
    used.

    Raises `ValueError` for a batch with one value per channel in training, `RuntimeError` for sizes that do not fit.
    """
    shape = tuple(input.shape)
    if training and len(shape) > 1 and prod(shape) and prod(shape) == shape[1]:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(shape)}")
    return batch_normalized(input, running_mean, running_var, weight, bias, training, momentum, eps)


def batch_normalized(
    input: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: Any,
    eps: float,
) -> Tensor:
    """`batch_norm` without its refusal of one value per channel."""
    require_floating(input, "batch_norm")
    shape = tuple(input.shape)
    if not prod(shape):
        out = FUNCTIONS[""]["clone"](input)  # an empty batch has no statistics: the running ones stay
        if weight is not None and prod(weight.shape):  # as in PyTorch: weight and bias get gradients of zeros
            out = out * weight[0]
        return out if bias is None or not prod(bias.shape) else out + bias[0]
    if len(shape) < 2:
        raise RuntimeError(f"batch_norm: expected an input of at least 2 dimensions, but got {list(shape)}")
    given = dict(running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    for what, value in given.items():
        if value is not None and value.shape != (shape[1],):
            raise RuntimeError(f"{what} should contain {shape[1]} elements not {prod(value.shape)}")
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
        return call(_by_running.operator, (input, running_mean, running_var, weight, bias, eps), ())
    arguments, stopped = (input, weight, bias, eps), None
    out: Any
    try:
        out, mean, var = call(_by_batch.operator, arguments, ())
    except Stopped as error:  # PyTorch's kernel updates the statistics before it saves its results
        out, mean, var, stopped = None, None, None, error
    enabled, state.grad_enabled = state.grad_enabled, False
    try:
        if stopped is not None:
            _, mean, var = call(_by_batch.operator, arguments, ())
        for running, batch in ((running_mean, mean), (running_var, var)):
            if running is not None:
                call_inplace(_follow.operator, (running, batch, momentum), ())
    finally:
        state.grad_enabled = enabled
    if stopped is not None:
        raise stopped
    return out


@composite(method=False, namespace=("nn.functional", ""))
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Mean 0 and variance 1 for each channel of each example; then `* weight + bias` by channel.

    With `use_input_stats=False` the running statistics are used; otherwise these are updated in place, by the mean of
    the examples' statistics.
    """
    shape = tuple(input.shape)
    if len(shape) < 2:
        raise RuntimeError(f"instance_norm: expected an input of at least 2 dimensions, but got {list(shape)}")
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if prod(shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {list(shape)}")
    out, mean, var = call(_by_instance.operator, (input, weight, bias, eps), ())
    enabled, state.grad_enabled = state.grad_enabled, False
    try:
        for running, found in ((running_mean, mean), (running_var, var)):
            if running is not None:
                call_inplace(_follow.operator, (running, found, momentum), ())
    finally:
        state.grad_enabled = enabled
    return out


@functional(
    "native_instance_norm",
    function=False,
    samples=(sample(_CHANNELS, real(4), real(4), 1e-2), sample(real(1, 2, 3), None, None, 1e-2)),
)
def _by_instance(self, weight, bias, eps):
    """Normalize each example by its own statistics: (result, mean of their means, mean of their unbiased variances)."""
    require_real_floating(self, "instance_norm")
    _check_channels("instance_norm", self.shape[1], weight=weight, bias=bias)
    x, mean, var = _standardize(self, tuple(range(2, self.ndim)), eps)
    n = prod(self.shape[2:])
    out = _affine(x, weight, bias, _by_channel(self)).astype(self.dtype)
    return out, jnp.mean(mean, axis=0).reshape(-1), jnp.mean(var, axis=0).reshape(-1) * (n / max(n - 1, 1))


_LOCAL = (
    sample(real(1, 3, 2), 0.5, size=2),
    sample(real(1, 3, 2), 0.5, 0.5, 1.5, size=3),
    sample(real(0, 3, 2), size=2),
)


@functional(namespace="nn.functional", signature="input, size, alpha=0.0001, beta=0.75, k=1.0", samples=_LOCAL)
def local_response_norm(self, alpha=1e-4, beta=0.75, k=1.0, *, size):
    """Each element over (k + alpha * the mean square of the `size` channels around it) ** beta."""
    if self.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {self.ndim} dimensions)")
    channels = self.shape[1]
    refuse_complex(self, "local_response_norm")
    low, high = (min(n, channels) for n in (size // 2, size - 1 - size // 2))  # beyond them there are zeros only
    pads = [(0, 0)] * self.ndim
    pads[1] = (low, high)
    squares = jnp.pad(self * self, pads)
    total = sum(jax.lax.slice_in_dim(squares, i, i + channels, axis=1) for i in range(low + high + 1))
    alpha, beta, k = (scalar(self, v, name) for v, name in ((alpha, "alpha"), (beta, "beta"), (k, "k")))
    return self / (k + alpha * total / float(size)) ** beta
