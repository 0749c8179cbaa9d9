"""mse_loss, huber_loss, kl_div, binary_cross_entropy, ...: losses with real targets (PyTorch: Loss.cpp).

Losses of classes are in classification.py, losses with a margin in margin_loss.py.

Each is one operator, reduction included.  `reduction` is "mean", "sum" or "none"; the older `size_average` and `reduce`
still say the same.
"""

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...base.dtypes import torch_name
from ...dispatch.declare import operator
from ...dispatch.promotion import (
    as_float,
    broadcast_shapes,
    promote,
    refuse_bool,
    refuse_broader,
    refuse_complex,
    require_float,
    require_floating,
    require_real_floating,
    scalar,
)
from ...dispatch.samples import COMPLEX, between, positive, real, sample, whole
from ..index.index_checks import on_host
from ..pointwise.ends import log1p, logits_loss, quotient
from ..reduce.norms import magnitude

functional: Any = partial(operator, namespace="nn.functional", method=False, out=False)
everywhere: Any = partial(functional, namespace=("nn.functional", ""))


def reduction_of(size_average: Any, reduce: Any, reduction: str) -> str:
    """The reduction, from `reduction` or from PyTorch's older arguments `size_average` and `reduce`."""
    if size_average is not None or reduce is not None:
        return "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction: it is one of 'none', 'mean', 'sum'")
    return reduction


def reduced(loss: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    """Reduce the losses of the elements."""
    reduction = reduction_of(size_average, reduce, reduction)
    if reduction == "mean":
        require_float(loss, "mean")
    return jnp.mean(loss) if reduction == "mean" else jnp.sum(loss) if reduction == "sum" else loss


def _pair(self: Any, target: Any) -> tuple:
    """Promote input and target to a common dtype, and broadcast them."""
    broadcast_shapes(self.shape, target.shape)
    if self.shape != target.shape:
        warnings.warn(
            f"Using a target size ({list(target.shape)}) that is different to the input size ({list(self.shape)}). "
            "This will likely lead to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=2,
        )
    return promote(self, target)


# -- distances --------------------------------------------------------------------------------------------------------


def _check_weight(loss: Any, weight: Any) -> None:
    if weight is not None and weight.shape != loss.shape:
        raise ValueError(f"Weights and input must have the same size: {list(weight.shape)} and {list(loss.shape)}.")


def _weighted(loss: Any, weight: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    """Reduce losses with weights, for which the mean is a weighted one."""
    _check_weight(loss, weight)
    if weight is None:
        return reduced(loss, size_average, reduce, reduction)
    reduction = reduction_of(size_average, reduce, reduction)
    if reduction == "mean":
        return jnp.sum(weight * loss) / jnp.sum(weight)
    return reduced(weight * loss, None, None, reduction)


_LEGACY = "size_average=None, reduce=None, reduction='mean'"
_X = real(2, 3)
_REDUCED = (sample(_X, _X), sample(_X, _X, reduction="sum"), sample(real(), real(), reduction="none"))
_EMPTY = (sample(real(0, 3), real(0, 3), reduction="sum"),)
_WEIGHTED = (*_REDUCED, *_EMPTY, sample(_X, _X, positive(2, 3)), sample(_X, _X, positive(2, 3), reduction="none"))


@functional(signature=f"input, target, {_LEGACY}, weight=None", samples=_WEIGHTED)
def mse_loss(self, target, weight=None, *, size_average=None, reduce=None, reduction="mean"):
    """(input - target) squared."""
    x, target = _pair(self, target)
    require_real_floating(x, "mse_loss")
    return _weighted((x - target) ** 2, weight, size_average, reduce, reduction)


@functional(signature=f"input, target, {_LEGACY}, weight=None", samples=_WEIGHTED + COMPLEX)
def l1_loss(self, target, weight=None, *, size_average=None, reduce=None, reduction="mean"):
    """|input - target|."""
    refuse_bool("Subtraction", self, target)
    x, target = _pair(self, target)
    return _weighted(magnitude(x - target), weight, size_average, reduce, reduction)


def _huber(distance: Any, width: Any) -> Any:
    """distance²/2 up to `width`, linear beyond."""
    size = jnp.abs(distance)
    return jnp.where(size < width, 0.5 * distance * distance, width * (size - 0.5 * width))


def _check_beta(arrays: tuple, statics: tuple) -> None:
    if not arrays[2] >= 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")


def _check_delta(arrays: tuple, statics: tuple) -> None:
    if not arrays[3] > 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")


@functional(
    signature=f"input, target, {_LEGACY}, beta=1.0",
    check=_check_beta,
    samples=(*_REDUCED, *_EMPTY, sample(_X, _X, 0.4), sample(_X, _X, 0.0, reduction="none")),
)
def smooth_l1_loss(self, target, beta=1.0, *, size_average=None, reduce=None, reduction="mean"):
    """The Huber loss over `beta`: |input - target| with its tip rounded off; l1_loss if `beta` is 0."""
    x, target = _pair(self, target)
    require_real_floating(x, "smooth_l1_loss")
    beta = scalar(x, beta, "beta")
    width = jnp.where(beta == 0, 1, beta)
    loss = jnp.where(beta == 0, magnitude(x - target), _huber(x - target, width) / width)
    return reduced(loss, size_average, reduce, reduction)


@functional(
    signature="input, target, reduction='mean', delta=1.0, weight=None",
    check=_check_delta,
    samples=(*_WEIGHTED, sample(_X, _X, None, 0.4)),
)
def huber_loss(self, target, weight=None, delta=1.0, *, reduction="mean"):
    """(input - target)² / 2 for distances up to `delta`, linear beyond."""
    x, target = _pair(self, target)
    require_real_floating(x, "huber_loss")
    require_floating(self, "huber_loss")  # the result has the input's dtype
    loss = _huber(x - target, scalar(x, delta, "delta")).astype(self.dtype)
    _check_weight(loss, weight)
    return reduced(loss if weight is None else weight * loss, None, None, reduction)


# -- of probabilities -------------------------------------------------------------------------------------------------


def _x_log_x(x: Any) -> Any:
    return jnp.where(x > 0, x * jnp.log(jnp.where(x > 0, x, 1)), jnp.where(x == 0, 0, jnp.nan))


@everywhere(
    samples=(
        sample(_X, positive(2, 3)), sample(_X, _X, log_target=True), sample(_X, positive(2, 3), reduction="batchmean"),
        sample(real(), positive(), reduction="batchmean"), sample(real(0, 3), positive(0, 3), reduction="sum"),
    ),
)  # fmt: skip
def kl_div(self, target, *, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target * (log target - input), for log-probabilities; "batchmean" is the sum over the batch's size."""
    for each in (self, target):
        if each.dtype not in dtypes.INEXACT:
            raise RuntimeError("kl_div: Integral inputs not supported.")
    x, target = promote(self, target)
    refuse_complex(x, "kl_div")
    loss = jnp.exp(target) * (target - x) if log_target else _x_log_x(target) - target * x
    if reduction == "batchmean" and size_average is None and reduce is None:
        total = jnp.sum(loss)
        return total / self.shape[0] if self.ndim else total
    return reduced(loss, size_average, reduce, reduction)


def _bounded_logs(x: Any) -> tuple[Any, Any]:
    # PyTorch bounds the logarithms: a wrong probability of 0 or 1 costs 100, not infinity.
    return jnp.maximum(jnp.log(x), -100), jnp.maximum(log1p(-x), -100)


@jax.custom_jvp
def _cross_entropy_of(x: Any, target: Any) -> Any:
    log_x, log_not_x = _bounded_logs(x)
    return (target - 1) * log_not_x - target * log_x


@_cross_entropy_of.defjvp
def _cross_entropy_tangent(primals: tuple, tangents: tuple) -> tuple:
    """The tangent; finite at 0 and 1, where the tangents of the logarithms are infinite."""
    (x, target), (of_x, of_target) = primals, tangents
    inside = (x > 0) & (x < 1)
    at_bounds = jax.lax.stop_gradient(_bounded_logs(x))
    logs = _bounded_logs(jnp.where(inside, x, 0.5))
    log_x, log_not_x = (jnp.where(inside, a, b) for a, b in zip(logs, at_bounds, strict=True))
    return _cross_entropy_of(x, target), of_x * _slope(x, target) + of_target * (log_not_x - log_x)


def _check_probabilities(arrays: tuple, statics: tuple) -> None:
    if arrays[0].shape != arrays[1].shape:
        return  # the function's own error comes first
    for name, x in zip(("input", "target"), arrays[:2], strict=True):
        values = on_host(x)
        # NaN fails the comparison, as in PyTorch.
        if values is not None and values.dtype.kind != "c" and not ((values >= 0) & (values <= 1)).all():
            raise RuntimeError(f"all elements of {name} should be between 0 and 1")


def _slope(x: Any, target: Any) -> Any:
    return (x - target) / jnp.maximum((1 - x) * x, 1e-12)


@functional(
    check=_check_probabilities,
    samples=(
        sample(between(0.1, 0.9, 2, 3), between(0.1, 0.9, 2, 3)),
        sample(between(0.1, 0.9, 2, 3), between(0.1, 0.9, 2, 3), positive(2, 3), reduction="sum"),
        sample(between(0.1, 0.9), between(0.1, 0.9), reduction="none"), sample(real(0, 3), real(0, 3), reduction="sum"),
    ),
)  # fmt: skip
def binary_cross_entropy(self, target, weight=None, *, size_average=None, reduce=None, reduction="mean"):
    """The cross entropy of probabilities and targets in [0, 1]; each logarithm counts as at least -100.

    Other values are an error (on accelerators NaN).
    """
    if self.shape != target.shape:
        raise ValueError(
            f"Using a target size ({list(target.shape)}) that is different to the input size ({list(self.shape)}) is "
            "deprecated. Please ensure they have the same size."
        )
    require_real_floating(self, "binary_cross_entropy")
    if self.dtype != target.dtype:
        raise RuntimeError(f"Found dtype {torch_name(target.dtype)} but expected {torch_name(self.dtype)}")
    loss = _cross_entropy_of(self, target)
    refuse_broader(loss, weight)
    return reduced(loss if weight is None else (loss * weight).astype(loss.dtype), size_average, reduce, reduction)


def _binary_cross_entropy_gradient(grad, self, target, weight, size_average, reduce, reduction):
    slope = _slope(self, target)
    slope = slope if weight is None else slope * weight
    mean = reduction_of(size_average, reduce, reduction) == "mean"
    return grad * slope / (self.size if mean else 1)


binary_cross_entropy.derivative(self=_binary_cross_entropy_gradient)


@everywhere(
    signature=f"input, target, weight=None, {_LEGACY}, pos_weight=None",
    samples=(
        sample(_X, between(0.1, 0.9, 2, 3)), sample(_X, between(0.1, 0.9, 2, 3), positive(2, 3), positive(3)),
        sample(real(), between(0.1, 0.9), reduction="none"), *_EMPTY,
    ),
)  # fmt: skip
def binary_cross_entropy_with_logits(
    self, target, weight=None, pos_weight=None, *, size_average=None, reduce=None, reduction="mean"
):
    """The cross entropy of sigmoid(input) and targets; `pos_weight` weighs the positive ones."""
    if self.shape != target.shape:
        raise ValueError(f"Target size ({list(target.shape)}) must be the same as input size ({list(self.shape)})")
    require_real_floating(self, "binary_cross_entropy_with_logits")
    require_float(target, "binary_cross_entropy_with_logits")
    refuse_broader(self, weight)
    refuse_broader(self, pos_weight)
    if pos_weight is None:
        loss = logits_loss(self, target, target, jnp.ones_like(self))
    else:
        loss = logits_loss(self, target, pos_weight * target, 1 + (pos_weight - 1) * target)
    loss = loss if weight is None else loss * weight
    loss = loss.astype(target.dtype)  # PyTorch begins with 1 - target, and goes on in place
    return reduced(loss, size_average, reduce, reduction)


@everywhere(
    signature="input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction='mean'",
    samples=(
        *_REDUCED,
        *_EMPTY,
        sample(positive(2, 3), real(2, 3), log_input=False, reduction="none"),
        sample(_X, whole(0, 4, 2, 3), full=True), *COMPLEX,
    ),
)  # fmt: skip
def poisson_nll_loss(
    self, target, eps=1e-8, *, log_input=True, full=False, size_average=None, reduce=None, reduction="mean"
):
    """The negative log-likelihood of counts: exp(input) - target * input, or of the rate itself."""
    if log_input:
        refuse_bool("Subtraction", self * target)
        loss = jnp.exp(as_float(self)) - target * self
    else:
        loss = self - target * jnp.log(self + scalar(self, eps, "eps"))
    if full:  # Stirling's approximation of log(target!)
        many = jnp.where(target > 1, target, 2)
        stirling = many * jnp.log(many) - many + 0.5 * jnp.log(2 * jnp.pi * many)
        loss = loss + jnp.where(target > 1, stirling, 0)
    return reduced(loss, size_average, reduce, reduction)


def _check_variance(arrays: tuple, statics: tuple) -> None:
    values = arrays[2] if isinstance(arrays[2], (int, float)) else on_host(arrays[2])
    if values is not None and (np.asarray(values) < 0).any():
        raise ValueError("var has negative entry/entries")


@functional(
    signature="input, target, var, full=False, eps=1e-06, reduction='mean'",
    check=_check_variance,
    samples=(
        sample(_X, _X, positive(2, 3)), sample(_X, _X, positive(2), full=True), sample(_X, _X, positive(2, 1), 0.9),
        sample(real(0, 3), real(0, 3), positive(0, 3), reduction="sum"),
    ),
)  # fmt: skip
def gaussian_nll_loss(self, target, var, eps=1e-6, *, full=False, reduction="mean"):
    """The negative log-likelihood of a normal distribution with mean `input` and variance `var` (at least `eps`)."""
    if getattr(var, "weak_type", False):
        var = jnp.broadcast_to(var, self.shape)
    if var.shape != self.shape:
        if self.shape[:-1] == var.shape:
            var = var[..., None]
        elif self.ndim != var.ndim or [b for a, b in zip(self.shape, var.shape) if a != b] != [1]:
            raise ValueError(f"var is of incorrect size: {list(var.shape)} for an input of size {list(self.shape)}")
    require_real_floating(var, "gaussian_nll_loss")
    refuse_bool("Subtraction", self, target)
    # The bound on var is not differentiated through, as in PyTorch.
    var = var + jax.lax.stop_gradient(jnp.maximum(var, scalar(var, eps, "eps")) - var)
    loss = 0.5 * (jnp.log(var) + quotient(self - target, jnp.sqrt(var)) ** 2)
    if full:
        loss = loss + 0.5 * jnp.log(2 * jnp.pi).astype(loss.dtype)
    return reduced(loss, None, None, reduction)
