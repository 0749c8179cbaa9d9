"""cross_entropy, nll_loss, multi_margin_loss and others: losses whose targets are classes (PyTorch: LossNLL.cpp).

Backward of cross_entropy computes the softmax again from the input: it saves only arguments, and no softmax.

A class out of range raises `IndexError`, of a margin loss `RuntimeError`, if its value can be read without waiting for
a device (on the CPU); elsewhere it makes the loss NaN.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.declare import composite
from ...dispatch.promotion import refuse_bool, require_real_floating, require_same_dtype, scalar
from ...dispatch.samples import between, positive, real, sample, whole
from ...tensor import Tensor
from ..index.index_checks import on_host
from ..pointwise.ends import log1p_exp
from .loss import functional, reduced, reduction_of


def _picked(x: Any, classes: Any, count: int) -> Any:
    """The elements of `x` (batch, classes, ...) at `classes` (batch, ...); NaN where a class is out of range."""
    inside = (classes >= 0) & (classes < count)
    found = jnp.take_along_axis(x, jnp.where(inside, classes, 0)[:, None], axis=1)[:, 0]
    return jnp.where(inside, found, jnp.nan)


def _require_classes(target: Any, name: str) -> None:
    if target.dtype in dtypes.INEXACT or target.dtype == bool:
        raise RuntimeError(
            f"{name}: expected scalar type Long for the class indices of target but found "
            f"{dtypes.torch_name(target.dtype)}"
        )


def _check(name: str, x: Any, target: Any, weight: Any, of_classes: bool) -> None:
    require_real_floating(x, name)
    classes_at = min(x.ndim - 1, 1)
    if x.ndim < 1:
        raise RuntimeError(f"{name}: input tensor should be 1D or more, with a dimension of classes")
    if of_classes:
        _require_classes(target, name)
        wanted = x.shape[:classes_at] + x.shape[classes_at + 1 :]
        if x.ndim > 1 and target.ndim and x.shape[0] != target.shape[0]:
            raise ValueError(
                f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({target.shape[0]})."
            )
        if target.shape != wanted:
            raise RuntimeError(f"{name}: Expected target size {list(wanted)}, got {list(target.shape)}")
    elif target.shape != x.shape:
        raise RuntimeError(
            f"{name}: target of class probabilities must have input's shape {list(x.shape)}, got {list(target.shape)}"
        )
    if weight is not None and weight.shape != (x.shape[classes_at],):
        raise RuntimeError(
            f"{name}: weight tensor should be defined either for all {x.shape[classes_at]} classes or no classes "
            "but got "
            f"weight tensor of shape: {list(weight.shape)}"
        )
    if weight is not None and of_classes:
        require_same_dtype(x, weight, name)


def _negative_log_likelihood(x, log_z, target, weight, ignore_index, reduction, smoothing=None):
    """The loss of log-probabilities x - log_z (batch, classes, ...), each element weighed by its class.

    The difference is not formed for all classes: without it the forward is 4 times faster (32000 classes, CPU).
    """
    count = x.shape[1]
    by_class = jnp.ones((), x.dtype) if weight is None else weight.reshape((-1,) + (1,) * (x.ndim - 2))
    kept = target != ignore_index
    safe = jnp.where(kept, target, 0)
    each = jnp.ones((), x.dtype) if weight is None else weight[jnp.clip(safe, 0, max(count - 1, 0))]
    each = jnp.where(kept, each, 0)
    loss = jnp.where(kept, (log_z - _picked(x, safe, count)) * each, 0) if x.size else jnp.zeros(target.shape, x.dtype)
    if smoothing is not None:
        total = count if weight is None else jnp.sum(weight)
        even = log_z * total - jnp.sum(x * by_class, axis=1)
        loss = (1 - smoothing) * loss + smoothing / count * jnp.where(kept, even, 0)
    if reduction == "mean":
        return jnp.sum(loss) / jnp.sum(each)
    return reduced(loss, None, None, reduction)


def _batched(x: Any, target: Any) -> tuple[Any, Any]:
    """Make a single example a batch of one."""
    return (x[None], target[None]) if x.ndim == 1 else (x, target)


_X, _TARGET = real(2, 3), whole(0, 3, 2)
_OF_CLASSES = (
    sample(_X, _TARGET), sample(_X, _TARGET, positive(3), ignore_index=1), sample(real(3), whole(0, 3)),
    sample(real(1, 3, 2), whole(0, 3, 1, 2), positive(3), reduction="none"),
    sample(real(0, 3), whole(0, 3, 0), reduction="sum"),
)  # fmt: skip
_PARAMETERS = "size_average=None, ignore_index=-100, reduce=None, reduction='mean'"


@functional("nll_loss", function=False, signature=f"input, target, weight=None, {_PARAMETERS}", samples=_OF_CLASSES)
def _nll_loss(self, target, weight=None, *, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    reduction = reduction_of(size_average, reduce, reduction)
    _check("nll_loss", self, target, weight, True)
    log_p, classes = _batched(self, target)
    loss = _negative_log_likelihood(log_p, 0, classes, weight, ignore_index, reduction)
    return loss.reshape(target.shape) if reduction == "none" else loss


@functional(
    "cross_entropy_loss",
    function=False,
    signature=f"input, target, weight=None, {_PARAMETERS}, label_smoothing=None",
    samples=(
        *_OF_CLASSES, sample(_X, _TARGET, positive(3), 0.2), sample(_X, between(0.1, 0.6, 2, 3)),
        sample(_X, between(0.1, 0.6, 2, 3), positive(3), 0.2, reduction="sum"),
        sample(real(3), between(0.1, 0.6, 3), reduction="none"),
    ),
)  # fmt: skip
def _cross_entropy(
    self, target, weight=None, label_smoothing=None, *, size_average=None, ignore_index=-100, reduce=None,
    reduction="mean",
):  # fmt: skip
    """The declared cross entropy.  `label_smoothing` None needs no sum over all classes, unlike 0."""
    reduction = reduction_of(size_average, reduce, reduction)
    label_smoothing = None if label_smoothing is None else scalar(self, label_smoothing, "label_smoothing")
    of_classes = self.shape != target.shape or target.dtype not in dtypes.INEXACT
    _check("cross_entropy", self, target, weight, of_classes)
    x, expected = _batched(self, target)
    if of_classes:
        # The largest logit is subtracted before the exponentials; the loss does not depend on it.
        shifted = x - jax.lax.stop_gradient(jnp.max(x, axis=1, keepdims=True, initial=-jnp.inf))
        log_z = jnp.log(jnp.sum(jnp.exp(shifted), axis=1))
        loss = _negative_log_likelihood(shifted, log_z, expected, weight, ignore_index, reduction, label_smoothing)
        return loss.reshape(target.shape) if reduction == "none" else loss
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    log_p = jax.nn.log_softmax(x, axis=1)
    if label_smoothing is not None:
        expected = expected * (1 - label_smoothing) + label_smoothing / expected.shape[1]
    weighed = log_p if weight is None else log_p * weight.reshape((-1,) + (1,) * (log_p.ndim - 2))
    loss = -jnp.sum(weighed * expected, axis=1)
    if reduction == "mean":
        return jnp.sum(loss) / loss.size
    return loss.reshape(self.shape[:0] if self.ndim == 1 else loss.shape) if reduction == "none" else jnp.sum(loss)


def _check_classes(input: Tensor, target: Tensor, ignore_index: int) -> None:
    if input.ndim:
        check_classes(input.shape[min(input.ndim - 1, 1)], target, ignore_index)


def check_classes(count: int, target: Tensor, ignore_index: int) -> None:
    """Raise `IndexError` for a class out of range."""
    values = on_host(target)
    if values is None or not values.size or values.dtype.kind not in "iu":
        return
    wrong = values[(values != ignore_index) & ((values < 0) | (values >= count))]
    if wrong.size:
        raise IndexError(f"Target {wrong.flat[0]} is out of bounds: there are {count} classes.")


@composite(method=False, namespace="nn.functional")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability, in `input` (batch, classes, ...), of the class in `target` (batch, ...)."""
    _check_classes(input, target, ignore_index)
    return _nll_loss.function(input, target, weight, size_average, ignore_index, reduce, reduction)


@composite(method=False, namespace="nn.functional")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross entropy of logits (batch, classes, ...) and targets: class indices (batch, ...), or probabilities.

    `weight`: one for each class; the mean is weighted.  Elements whose target is `ignore_index` do not count.
    `label_smoothing` mixes the target with the uniform distribution.  A class out of range is an error (on
    accelerators NaN).

    >>> import xgrad
    >>> logits = xgrad.tensor([[2.0, 0.0], [0.0, 2.0]])
    >>> xgrad.nn.functional.cross_entropy(logits, xgrad.tensor([0, 1]))
    tensor(0.1269)
    """
    _check_classes(input, target, ignore_index)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    return _cross_entropy.function(
        input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing or None
    )


# -- margins of classes -----------------------------------------------------------------------------------------------

_LEGACY = "size_average=None, reduce=None, reduction='mean'"


def _check_labels(arrays: tuple, statics: tuple) -> None:
    """Raise for a class out of range; -1 ends the list of a `multilabel_margin_loss`, which has two arguments."""
    values = on_host(arrays[1])
    if values is None or not values.size or values.dtype.kind not in "iu":
        return
    classes = arrays[0].shape[-1] if arrays[0].ndim else 1
    if values.max() >= classes or values.min() < (-1 if len(arrays) == 2 else 0):
        raise RuntimeError(f"target out of range: {values.min()} to {values.max()}, but there are {classes} classes")


@functional(
    signature=f"input, target, p=1, margin=1.0, weight=None, {_LEGACY}",
    check=_check_labels,
    samples=(
        sample(_X, _TARGET), sample(_X, _TARGET, positive(3), 2.5, p=2, reduction="none"), sample(real(3), whole(0, 3)),
    ),
)  # fmt: skip
def multi_margin_loss(self, target, weight=None, margin=1.0, *, p=1, size_average=None, reduce=None, reduction="mean"):
    """sum(max(0, margin - input[right] + input[wrong]) ** p) over the wrong classes, by the number of classes."""
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    require_real_floating(self, "multi_margin_loss")
    _require_classes(target, "multi_margin_loss")
    single = self.ndim < 2
    x = self.reshape(1, -1) if single else self
    classes = target.reshape(-1)
    if classes.shape[0] != x.shape[0] or target.ndim > 1:
        raise RuntimeError(
            f"multi_margin_loss: inconsistent target size {list(target.shape)} for input {list(self.shape)}"
        )
    if weight is not None:
        if weight.shape != x.shape[1:]:
            raise RuntimeError(f"inconsistent weight size, expected {x.shape[1]} but got {list(weight.shape)}")
        require_same_dtype(x, weight, "multi_margin_loss")
    gap = scalar(x, margin, "margin") - _picked(x, classes, x.shape[1])[:, None] + x
    loss = jnp.where(gap > 0, gap**p, 0)
    if weight is not None:
        loss = loss * weight[classes][:, None]
    other = jnp.arange(x.shape[1]) != classes[:, None]
    loss = jnp.sum(jnp.where(other, loss, 0), axis=1) / x.shape[1]
    loss = jnp.where((classes < 0) | (classes >= x.shape[1]), jnp.nan, loss)  # in a program, which cannot raise
    return reduced(loss.reshape(target.shape), size_average, reduce, reduction)


@functional(
    samples=(
        sample(_X, whole(-1, 3, 2, 3)), sample(_X, whole(0, 3, 2, 3), reduction="none"),
        sample(real(5), whole(-1, 4, 5)),
    ),
    check=_check_labels,
)  # fmt: skip
def multilabel_margin_loss(self, target, *, size_average=None, reduce=None, reduction="mean"):
    """The margin loss of several right classes: those that `target` lists before its first -1."""
    if self.shape != target.shape or self.ndim > 2:
        raise RuntimeError(
            f"multilabel_margin_loss: inconsistent target size {list(target.shape)} for input {list(self.shape)}"
        )
    require_real_floating(self, "multilabel_margin_loss")
    _require_classes(target, "multilabel_margin_loss")
    x, classes = (
        self.reshape(-1, self.shape[-1] if self.ndim else 1),
        target.reshape(-1, target.shape[-1] if target.ndim else 1),
    )
    listed = jnp.cumprod(classes >= 0, axis=1).astype(bool)
    safe = jnp.where(listed, classes, 0)
    right = jnp.any((safe[:, :, None] == jnp.arange(x.shape[1])) & listed[:, :, None], axis=1)
    gap = 1 - jnp.take_along_axis(x, safe, axis=1)[:, :, None] + x[:, None, :]
    counted = listed[:, :, None] & ~right[:, None, :] & (gap > 0)
    loss = jnp.sum(jnp.where(counted, gap, 0), axis=(1, 2)) / x.shape[1]
    loss = jnp.where(jnp.any((classes < -1) | (classes >= x.shape[1]), axis=1), jnp.nan, loss)
    return reduced(loss if self.ndim > 1 else loss[0], size_average, reduce, reduction)


@functional(
    signature=f"input, target, weight=None, {_LEGACY}",
    samples=(
        sample(_X, between(0.1, 0.9, 2, 3)), sample(_X, whole(0, 2, 2, 3), positive(3), reduction="none"),
        sample(real(3), between(0.1, 0.9, 3), reduction="sum"),
    ),
)  # fmt: skip
def multilabel_soft_margin_loss(self, target, weight=None, *, size_average=None, reduce=None, reduction="mean"):
    """The binary cross entropy of each class, with logits, mean over the classes (the last dimension)."""
    require_real_floating(self, "multilabel_soft_margin_loss")
    refuse_bool("Subtraction", target)
    if not self.ndim:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    classes = self.ndim - 1
    loss = target * log1p_exp(-self) + (1 - target) * log1p_exp(self)
    loss = loss if weight is None else loss * weight
    return reduced(jnp.sum(loss, axis=classes) / self.shape[classes], size_average, reduce, reduction)
