"""hinge_embedding_loss, triplet_margin_loss, ...: margin losses of scores and distances (PyTorch: Loss.cpp).

Margin losses of classes, such as multi_margin_loss, are in classification.py.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.declare import composite
from ...dispatch.promotion import (
    as_float,
    broadcast_shapes,
    promote,
    promote_float,
    refuse_bool,
    refuse_broader,
    refuse_complex,
    require_floating,
    scalar,
)
from ...dispatch.samples import COMPLEX, real, sample, whole
from ...tensor import Tensor
from ..pointwise.ends import log1p_exp
from ..reduce.distances import pairwise_distance
from ..reduce.norms import p_norm
from .loss import everywhere, functional, reduced

_LEGACY = "size_average=None, reduce=None, reduction='mean'"
_X = real(2, 3)
_SIGNED = (sample(_X, whole(-1, 2, 2, 3)), sample(_X, whole(-1, 2, 2, 3), reduction="none"))


def _positive(x: Any) -> Any:
    """The larger of x and 0, with PyTorch's slope of clamp_min at 0: 1."""
    return jnp.where(x < 0, 0, x)


@everywhere(signature=f"input, target, margin=1.0, {_LEGACY}", samples=_SIGNED)
def hinge_embedding_loss(self, target, margin=1.0, *, size_average=None, reduce=None, reduction="mean"):
    """The input where `target` is 1; the larger of 0 and `margin` - input where `target` is -1."""
    refuse_complex(self, "hinge_embedding_loss")
    refuse_bool("Subtraction", self)
    broadcast_shapes(self.shape, target.shape)
    near = jnp.where(target != -1, self, 0)
    far = jnp.where(target != 1, _positive(scalar(self, margin, "margin") - self), 0)
    return reduced((near + far).astype(self.dtype), size_average, reduce, reduction)


@everywhere(
    signature=f"input1, input2, target, margin=0, {_LEGACY}",
    samples=(
        sample(_X, _X, whole(-1, 2, 2, 3), 0.3), sample(_X, _X, whole(-1, 2, 2, 3), 0.3, reduction="none"),
        sample(real(), real(), whole(1, 2)),
    ),
)  # fmt: skip
def margin_ranking_loss(input1, input2, target, margin=0, *, size_average=None, reduce=None, reduction="mean"):
    """The larger of 0 and `margin` - target * (input1 - input2)."""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{list(input1.shape)}, input2: {list(input2.shape)}, target: {list(target.shape)} "
        )
    refuse_bool("Subtraction", input1, input2)
    loss = as_float(-target * (input1 - input2))
    refuse_complex(loss, "margin_ranking_loss")
    return reduced(_positive(loss + scalar(loss, margin, "margin")), size_average, reduce, reduction)


@everywhere(
    signature=f"input1, input2, target, margin=0, {_LEGACY}",
    samples=(
        sample(_X, _X, whole(-1, 2, 2)), sample(_X, _X, whole(-1, 1, 2), -0.9, reduction="none"),
        sample(real(3), real(3), whole(1, 2)),
    ),
)  # fmt: skip
def cosine_embedding_loss(input1, input2, target, margin=0, *, size_average=None, reduce=None, reduction="mean"):
    """1 - cos(input1, input2) where `target` is 1; the larger of 0 and the cosine - `margin` where `target` is -1."""
    if target.ndim not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.ndim != input2.ndim or input1.ndim != target.ndim + 1:
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    broadcast_shapes(target.shape, broadcast_shapes(input1.shape, input2.shape)[:-1])
    x, y = promote_float(input1, input2)
    refuse_complex(x, "cosine_embedding_loss")
    tiny = 1e-12  # PyTorch's, against 0 / 0; the slope of its root is finite
    product, squares = jnp.sum(x * y, -1), (jnp.sum(x * x, -1) + tiny) * (jnp.sum(y * y, -1) + tiny)
    cosine = product / jnp.sqrt(squares)
    near = jnp.where(target == 1, 1 - cosine, 0)
    far = jnp.where(target == -1, _positive(cosine - scalar(cosine, margin, "margin")), 0)
    return reduced(near + far, size_average, reduce, reduction)


@functional(samples=_SIGNED + COMPLEX)
def soft_margin_loss(self, target, *, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target * input))."""
    require_floating(self, "soft_margin_loss")  # the result has the input's dtype
    refuse_broader(self, target)
    if self.dtype not in dtypes.COMPLEX:
        refuse_complex(target, "soft_margin_loss")
    x, target = promote(self, target)
    return reduced(log1p_exp(-x * target).astype(self.dtype), size_average, reduce, reduction)


def _margin(near: Any, far: Any, margin: Any, how: tuple) -> Any:
    refuse_complex(near, "triplet_margin_loss")
    return reduced(_positive(scalar(near, margin, "margin") + near - far), *how)


def _check_dims(anchor: Any, positive: Any, negative: Any) -> None:
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )


def _check_margin(arrays: tuple, statics: tuple) -> None:
    if arrays[3] <= 0:
        raise ValueError(f"margin must be greater than 0, got {arrays[3]}")


@everywhere(
    signature=f"anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, {_LEGACY}",
    check=_check_margin,
    samples=(
        sample(_X, _X, _X, 3.0), sample(_X, _X, _X, 3.0, swap=True, reduction="none"), sample(_X, _X, _X, 3.0, p=1),
        sample(real(3), real(3), real(3), 3.0, p=3), *COMPLEX,
    ),
)  # fmt: skip
def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, eps=1e-6, *, p=2, swap=False, size_average=None, reduce=None,
    reduction="mean",
):  # fmt: skip
    """The larger of 0 and: distance(anchor, positive) - distance(anchor, negative) + `margin`."""
    _check_dims(anchor, positive, negative)
    for one, two in ((anchor, positive), (anchor, negative)):
        refuse_bool("Subtraction", one, two)
    anchor, positive, negative = promote_float(anchor, positive, negative)
    eps = scalar(anchor, eps, "eps")
    far = p_norm(anchor - negative + eps, p, (-1,), False)
    if swap:
        far = jnp.minimum(far, p_norm(positive - negative + eps, p, (-1,), False))
    return _margin(p_norm(anchor - positive + eps, p, (-1,), False), far, margin, (size_average, reduce, reduction))


@composite(method=False, namespace="nn.functional")
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """triplet_margin_loss with a `distance_function`; the default is `pairwise_distance`."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    _check_dims(anchor, positive, negative)
    distance = distance_function or pairwise_distance.function
    far = distance(anchor, negative)
    swapped = distance(positive, negative) if swap else far
    return _hinge.function(distance(anchor, positive), far, swapped, margin, reduction)


@functional(
    "triplet_hinge",
    function=False,
    samples=(
        sample(real(3), real(3), real(3), 0.7, reduction="mean"), sample(real(), real(), real(), 5.0, reduction="none"),
    ),
)  # fmt: skip
def _hinge(near, far, swapped, margin, *, reduction):
    return _margin(near, jnp.minimum(far, swapped), margin, (None, None, reduction))
