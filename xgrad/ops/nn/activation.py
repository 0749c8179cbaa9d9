"""Activation functions: relu, elu, gelu, silu, glu, rrelu, softmax, ... (PyTorch: Activation.cpp, SoftMax.cpp).

Most derivatives are JAX's: at a kink `jnp.where` picks the branch with PyTorch's slope.  relu and softmax save results.
"""

import math
import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...dispatch.call import call
from ...dispatch.declare import composite, internal, operator
from ...dispatch.inplace import call_inplace
from ...dispatch.promotion import (
    as_float,
    cast,
    require_floating,
    require_real,
    require_real_floating,
    scalar,
    wrap_dim,
)
from ...dispatch.samples import COMPLEX, REAL, key, positive, real, sample, unary
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..create.scalars import fill_value, require_fit_beside
from ..pointwise.ends import COMPLEX_TOO, log1p_exp, sigmoid, with_slope
from ..random.keys import draw_key
from ..reduce.norms import magnitude

functional: Any = partial(operator, namespace="nn.functional", method=False, out=False)
activation: Any = partial(functional, inplace="argument")

_BENT = unary(-5, 8)  # numbers on both sides of the kinks of relu6 and hardsigmoid
_ALONG = (sample(real(2, 3), dim=1), sample(real(2, 3), dim=0), sample(real(), dim=0), sample(real(0, 3), dim=1))


# -- piecewise linear -------------------------------------------------------------------------------------------------


@operator(inplace=True, out=False, samples=REAL)
def relu(self):
    """The larger of each element and 0; its derivative at 0 is 0."""
    require_real(self, "relu")
    return jnp.where(self <= 0, jnp.zeros((), self.dtype), self)


relu.derivative(self=lambda grad, result: jnp.where(result <= 0, 0, grad))


@composite("relu", method=False, namespace="nn.functional")
def _relu(input: Tensor, inplace: bool = False) -> Tensor:
    """The larger of each element and 0, in place if `inplace`."""
    return FUNCTIONS[""]["relu_" if inplace else "relu"](input)


FUNCTIONS["nn.functional"]["relu_"] = FUNCTIONS[""]["relu_"]


def _hardtanh(self, min_val, max_val):
    require_real(self, "hardtanh")
    low, high = (scalar(self, v, name).astype(self.dtype) for v, name in ((min_val, "min_val"), (max_val, "max_val")))
    return jnp.where(self <= low, low, jnp.where(self >= high, high, self))


def _check_limits(arrays: tuple, statics: tuple) -> None:
    x, low, high = arrays
    require_fit_beside(x, low, high)
    if low > high:
        raise ValueError(f"hardtanh: min_val ({low}) must be less than or equal to max_val ({high})")
    if low < 0 and x.dtype.kind == "u":
        raise RuntimeError(f"hardtanh: cannot cut off unsigned integers ({x.dtype.name}) at a negative limit ({low})")


@activation(check=_check_limits, samples=(*REAL, sample(real(2, 3), -0.3, 1.2)))
def hardtanh(self, min_val=-1.0, max_val=1.0):
    """The elements, cut off at `min_val` and `max_val`.

    Raises `ValueError` if `min_val` exceeds `max_val`.
    """
    return _hardtanh(self, min_val, max_val)


@activation(node="HardtanhBackward0", samples=_BENT)
def relu6(self):
    """The elements, cut off at 0 and 6."""
    return _hardtanh(self, 0, 6)


hardtanh.derivative(
    self=lambda grad, result, min_val, max_val: jnp.where((result <= min_val) | (result >= max_val), 0, grad)
)
relu6.derivative(self=lambda grad, result: jnp.where((result <= 0) | (result >= 6), 0, grad))


@activation(samples=(*REAL, sample(real(2, 3), 0.3)))
def leaky_relu(self, negative_slope=0.01):
    """The elements, the negative ones times `negative_slope`."""
    require_real_floating(self, "leaky_relu")
    return jnp.where(self > 0, self, self * scalar(self, negative_slope, "negative_slope"))


_THRESHOLD = (sample(real(2, 3), 0.1, 5.0), sample(real(), 0.1, 5.0), sample(real(0, 3), 0.1, 5.0))


def _fitting(arrays: tuple, statics: tuple) -> tuple:
    self, *numbers = arrays
    return (self, *(fill_value(v, self._dtype) for v in numbers)) if isinstance(self, Tensor) else arrays


@partial(activation, namespace=("nn.functional", ""), check=_fitting)(samples=_THRESHOLD)
def threshold(self, threshold, value):
    """The elements that exceed `threshold`; `value` for the others."""
    require_real(self, "threshold")
    threshold, value = (
        scalar(self, v, name).astype(self.dtype) for v, name in ((threshold, "threshold"), (value, "value"))
    )
    return jnp.where(self <= threshold, value, self)


threshold.derivative(self=lambda grad, self, threshold: jnp.where(self <= threshold, 0, grad))


def _check_lambd(arrays: tuple, statics: tuple) -> None:
    if arrays[1] < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {arrays[1]}.")


_SHRUNK = (*REAL, sample(real(2, 3), 1.2))


@functional(namespace=("nn.functional", ""), method=True, samples=_SHRUNK)
def hardshrink(self, lambd=0.5):
    """The elements outside [-lambd, lambd]; 0 for the others."""
    require_real_floating(self, "hardshrink")
    return jnp.where(jnp.abs(self) <= scalar(self, lambd, "lambd"), 0, self)


@functional(check=_check_lambd, samples=_SHRUNK)
def softshrink(self, lambd=0.5):
    """The elements, moved by `lambd` towards 0; 0 for those inside [-lambd, lambd].

    Raises `RuntimeError` for a negative `lambd`.
    """
    require_real_floating(self, "softshrink")
    lambd = scalar(self, lambd, "lambd")
    return jnp.where(self > lambd, self - lambd, jnp.where(self < -lambd, self + lambd, self * 0))


for _shrink in (hardshrink, softshrink):
    _shrink.derivative(self=lambda grad, self, lambd: jnp.where((self >= -lambd) & (self <= lambd), 0, grad))


@activation(samples=_BENT)
def hardsigmoid(self):
    """x/6 + 1/2, cut off at 0 and 1."""
    require_real_floating(self, "hardsigmoid")
    return jnp.where(self <= -3, 0, jnp.where(self >= 3, 1, self / 6 + 0.5)).astype(self.dtype)


@activation(samples=_BENT)
def hardswish(self):
    """x * hardsigmoid(x)."""
    require_real_floating(self, "hardswish")
    return jnp.where(self <= -3, 0, jnp.where(self >= 3, self, self * (self + 3) / 6))


@functional(
    namespace=("nn.functional", ""),
    method=True,
    node="PreluKernelBackward0",
    samples=(
        sample(real(2, 3), positive(3)), sample(real(2, 3), positive(1)), sample(real(), positive(1)),
        sample(real(0, 3), positive(3)),
    ),
)  # fmt: skip
def prelu(self, weight):
    """The elements, the negative ones times `weight`: one number, or one for each channel (dimension 1)."""
    require_real_floating(self, "prelu")
    if self.dtype != weight.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {self.dtype.name} and {weight.dtype.name}")
    channels = self.shape[1] if self.ndim > 1 else 1
    if weight.ndim > 1 or weight.size not in (1, channels):
        raise RuntimeError(
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.size} and "
            "channel "
            f"size = {channels}."
        )
    w = weight.reshape((-1,) + (1,) * (self.ndim - 2)) if self.ndim > 1 else weight.reshape(())
    return jnp.where(self > 0, self, w * self)


# -- smooth -----------------------------------------------------------------------------------------------------------


def _elu(x: Any, alpha: Any, scale: Any = 1.0, input_scale: Any = 1.0) -> Any:
    require_real_floating(x, "elu")
    # expm1 of large numbers is infinite, and infinity times a zero gradient is NaN: the branch gets none of them.
    negative = COMPLEX_TOO["expm1"](jnp.where(x < 0, x, 0) * input_scale)
    # At 0 the slope is the negative side's, and does not change (PyTorch: elu_double_backward).
    return jnp.where(x > 0, x * scale, jnp.where(x < 0, negative, x * input_scale) * (alpha * scale))


@activation(samples=(*REAL, sample(real(2, 3), 0.7)))
def elu(self, alpha=1.0):
    """x for x > 0, else alpha * (exp(x) - 1)."""
    return _elu(self, scalar(self, alpha, "alpha"))


def _check_alpha(arrays: tuple, statics: tuple) -> None:
    if arrays[1] == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")


@partial(activation, namespace=("nn.functional", ""), check=_check_alpha)(samples=(*REAL, sample(real(2, 3), 0.7)))
def celu(self, alpha=1.0):
    """x for x > 0, else alpha * (exp(x / alpha) - 1).  Raises `RuntimeError` if `alpha` is 0."""
    alpha = scalar(self, alpha, "alpha")
    return _elu(self, alpha, 1.0, 1.0 / alpha)


@partial(activation, namespace=("nn.functional", ""))(node="EluBackward0", samples=REAL)
def selu(self):
    """elu with the scales that keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    return _elu(self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@functional(samples=(*REAL, sample(real(2, 3), approximate="tanh")))
def gelu(self, *, approximate="none"):
    """x times the normal distribution function of x; by a tanh if `approximate="tanh"`.

    >>> import xgrad
    >>> xgrad.nn.functional.gelu(xgrad.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    """
    require_real_floating(self, "gelu")
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, not {approximate!r}.")
    if approximate == "tanh":
        return _gelu_by_tanh(self)
    # jax.nn's gelu uses erfc: a tenth slower, and in the tail other digits than PyTorch's.
    return 0.5 * self * (1 + jax.lax.erf(self * math.sqrt(0.5)))


# gelu by a tanh is x * sigmoid(u), which keeps its digits below 0, with u = k x (1 + c x^2).
_K, _C = math.sqrt(8 / math.pi), 0.044715


def _square_of_gelu(x: Any) -> Any:
    return jnp.minimum(x * x, 2500)  # stays inside the range: beyond 50 the sigmoid is 0 or 1


def _sigmoid_of_gelu(x: Any, sign: int = 1) -> Any:
    return sigmoid(sign * _K * x * (1 + _C * _square_of_gelu(x)))


def _slope_of_gelu(x: Any) -> Any:
    gate = _sigmoid_of_gelu(x)
    return gate + x * gate * (1 - gate) * (_K * (1 + 3 * _C * _square_of_gelu(x)))


def _curvature_of_gelu(x: Any, _: Any) -> Any:
    x = jnp.clip(x, -50, 50)
    gate, rest = _sigmoid_of_gelu(x), _sigmoid_of_gelu(x, -1)  # 1 - gate has no digits left at 8
    first, second = _K * (1 + 3 * _C * _square_of_gelu(x)), 6 * _K * _C * x
    return gate * rest * (2 * first + x * ((rest - gate) * first * first + second))


_gelu_slope = with_slope(_slope_of_gelu, _curvature_of_gelu)
_gelu_by_tanh = with_slope(lambda x: x * _sigmoid_of_gelu(x), lambda x, _: _gelu_slope(x))


@activation(samples=REAL + COMPLEX)
def silu(self):
    """x * sigmoid(x)."""
    require_floating(self, "silu")
    return jax.nn.silu(self) if jnp.iscomplexobj(self) else _silu(self)


# Where sigmoid(x) is below the range, x times it is not.
_silu = with_slope(lambda x: x / (1 + jnp.exp(-x)), lambda x, out: sigmoid(x) + out * (1 - sigmoid(x)))


@activation(samples=REAL)
def mish(self):
    """x * tanh(softplus(x))."""
    require_real_floating(self, "mish")
    low = self < -40  # where softplus(x), its tanh and sigmoid(x) are the same number
    x = jnp.where(low, 0, self)
    return jnp.where(low, _silu(self), x * COMPLEX_TOO["tanh"](log1p_exp(x)))


@functional(samples=(*REAL, sample(real(2, 3), 2.0, 1.0)))
def softplus(self, beta=1.0, threshold=20.0):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x exceeds `threshold`."""
    require_real_floating(self, "softplus")
    beta = scalar(self, beta, "beta")
    linear = self * beta > scalar(self, threshold, "threshold")
    return jnp.where(linear, self, log1p_exp(jnp.where(linear, 0, self * beta)) / beta)


@functional(node="LogSigmoidBackward0", samples=REAL)
def logsigmoid(self):
    """log(sigmoid(x))."""
    require_real_floating(self, "log_sigmoid")
    return -log1p_exp(-self)


@functional(samples=REAL + COMPLEX)
def softsign(self):
    """x / (1 + |x|)."""
    return self / (1 + magnitude(as_float(self)))


@functional(samples=REAL + COMPLEX)
def tanhshrink(self):
    """x - tanh(x)."""
    require_floating(self, "tanhshrink")
    return self - COMPLEX_TOO["tanh"](self)


@functional(samples=(sample(real(2, 4)), sample(real(4, 3), dim=0), sample(real(0, 4))))
def glu(self, *, dim=-1):
    """The first half along `dim` times the sigmoid of the second."""
    require_real_floating(self, "glu")
    if self.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    dim = wrap_dim(dim, self.ndim)
    if self.shape[dim] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {self.shape[dim]}")
    return jax.nn.glu(self, axis=dim)


# -- random -----------------------------------------------------------------------------------------------------------


@internal("rrelu_with_noise", samples=(sample(real(2, 3), key(), 0.125, 0.5), sample(real(), key(), 0.125, 0.5)))
def _rrelu(self, key, lower, upper):
    return jnp.where(self > 0, self, self * jax.random.uniform(key, self.shape, self.dtype, lower, upper))


_rrelu.derivative(
    # The slopes are drawn again from the key, so none are saved.
    self=lambda grad, self, key, lower, upper: grad * _slopes(self, key, lower, upper),
)


def _slopes(x: Any, key: Any, lower: Any, upper: Any) -> Any:
    return jnp.where(x > 0, 1, jax.random.uniform(key, x.shape, x.dtype, lower, upper))


# -- along a dimension ------------------------------------------------------------------------------------------------


def _prepare(x: Any, dim: Any, dtype: Any, name: str) -> tuple[Any, int]:
    """The array in its dtype, with at least one dimension."""
    x = x if dtype is None else cast(x, dtype)
    require_real_floating(x, name)
    return x.reshape(x.shape or (1,)), wrap_dim(dim, x.ndim)


@operator(out=True, samples=_ALONG)
def softmax(self, *, dim, dtype=None):
    """exp(x) over its sum along `dim`; computed in `dtype` if that is given.

    >>> import xgrad
    >>> xgrad.softmax(xgrad.tensor([0.0, 0.0]), dim=0)
    tensor([0.5000, 0.5000])
    """
    x, along = _prepare(self, dim, dtype, "softmax")
    return jax.nn.softmax(x, axis=along).reshape(self.shape)


@operator(out=True, samples=_ALONG)
def log_softmax(self, *, dim, dtype=None):
    """The logarithm of softmax, without its overflow; computed in `dtype` if that is given."""
    x, along = _prepare(self, dim, dtype, "log_softmax")
    return jax.nn.log_softmax(x, axis=along).reshape(self.shape)


@functional("softmin", function=False, node="SoftmaxBackward0", samples=_ALONG)
def _softmin(self, *, dim, dtype=None):
    if self.dtype == bool:
        raise RuntimeError("softmin negates: negation, the `-` operator, on a bool tensor is not supported")
    return softmax(-self, dim=dim, dtype=dtype)


def _along(x: Any, dim: int) -> int | None:
    return wrap_dim(dim, x.ndim) if x.ndim else None


def _total(x: Any, dim: int) -> Any:
    return jnp.sum(x, axis=_along(x, dim), keepdims=x.ndim > 0)


softmax.derivative(self=lambda grad, result, dim: result * (grad - _total(grad * result, dim)))
log_softmax.derivative(self=lambda grad, result, dim: grad - jnp.exp(result) * _total(grad, dim))


def _legacy_dim(name: str, input: Tensor, dim: int | None, stacklevel: int) -> int:
    """PyTorch's dimension where `dim` is None: 0 for 0, 1 and 3 dimensions, else 1; with PyTorch's warning."""
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel + 1,
    )
    return 0 if input.ndim in (0, 1, 3) else 1


@composite("softmax", method=False, namespace="nn.functional")
def _softmax_of_any_dim(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along `dim`: `xgrad.softmax`, computed in `dtype` if that is given.

    Without `dim` it is dimension 0 of a tensor with 0, 1 or 3 dimensions, else 1, and a warning says so.
    """
    return softmax.function(input, _legacy_dim("softmax", input, dim, _stacklevel), dtype)


@composite("log_softmax", method=False, namespace="nn.functional")
def _log_softmax_of_any_dim(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """The logarithm of softmax along `dim`, without its overflow: `xgrad.log_softmax`; `dim` as in `softmax`."""
    return log_softmax.function(input, _legacy_dim("log_softmax", input, dim, _stacklevel), dtype)


@composite("softmin", method=False, namespace="nn.functional")
def _softmin_of_any_dim(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax of -x along `dim`; `dim` as in `softmax`."""
    return _softmin.function(input, _legacy_dim("softmin", input, dim, _stacklevel), dtype)


@composite(method=False, namespace=("nn.functional", ""))
def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """leaky_relu with slopes drawn from [lower, upper] in training, else with their mean."""
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, but got {lower} > {upper}")
    if not training:
        return FUNCTIONS["nn.functional"]["leaky_relu"](input, (lower + upper) / 2, inplace)
    return (call_inplace if inplace else call)(_rrelu.operator, (input, draw_key(), lower, upper), ())


@composite("rrelu_", method=False, namespace=("nn.functional", ""))
def _rrelu_inplace(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """In-place version of `xgrad.rrelu`."""
    return rrelu(input, lower, upper, training, inplace=True)
