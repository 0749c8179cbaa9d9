"""linear_cross_entropy: computes the cross entropy of a linear layer's result, whole or in chunks of the batch.

In chunks only one chunk's logits exist at a time, in backward too, which computes them again; PyTorch computes the
gradients in forward and saves them.  (PyTorch: torch/nn/modules/linear_cross_entropy.py.)
"""

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite
from ...dispatch.promotion import require_real_floating
from ...dispatch.samples import positive, real, sample, whole
from ...execution.programs.half import precision_of
from ...tensor import Tensor
from .attention import linear
from .classification import _cross_entropy, check_classes, cross_entropy
from .loss import functional

_ARRAYS = (real(3, 2), real(4, 2), whole(0, 4, 3))
_SAMPLES = (
    sample(*_ARRAYS, rows=2, acc_dtype=np.dtype("float64")),
    sample(*_ARRAYS, real(4), positive(4), rows=3, ignore_index=1, acc_dtype=np.dtype("float64")),
    sample(*_ARRAYS, real(4), rows=2, reduction="none", acc_dtype=np.dtype("float64")),
)


@functional("linear_cross_entropy", function=False, samples=_SAMPLES)
def _in_chunks(
    self, weight, target, bias=None, class_weight=None, *, reduction="mean", ignore_index=-100, rows=1, acc_dtype=None
):
    require_real_floating(self, "linear_cross_entropy")
    batch = self.shape[0]
    chunks = -(-batch // rows)
    # The rows that fill up the last chunk are ignored.
    missing = chunks * rows - batch
    x = jnp.pad(self, ((0, missing), (0, 0))).reshape(chunks, rows, -1)
    classes = jnp.pad(target, (0, missing), constant_values=ignore_index).reshape(chunks, rows)
    wide = None if class_weight is None else class_weight.astype(acc_dtype)

    @jax.checkpoint
    def losses(part: tuple) -> Any:
        logits = jnp.matmul(
            part[0], weight.T, preferred_element_type=acc_dtype, precision=precision_of(part[0], weight)
        )
        logits = logits if bias is None else logits + bias.astype(acc_dtype)
        return _cross_entropy(logits, part[1], wide, ignore_index=ignore_index, reduction="none")

    found = jax.lax.map(losses, (x, classes)).reshape(-1)[:batch]
    if reduction == "none":
        return found.astype(self.dtype)
    kept = target != ignore_index
    each = kept if wide is None else jnp.where(kept, wide[jnp.where(kept, target, 0)], 0)
    total = jnp.sum(found)
    return (total / jnp.sum(each) if reduction == "mean" else total).astype(self.dtype)


def _check(input: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, ignore_index: int | None) -> None:
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if weight.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {weight.ndim}")
    if input.shape[-1] != weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {input.shape[-1]} and {weight.shape[-1]}, respectively"
        )
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:-1]):
        raise RuntimeError(f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}")
    if weight.ndim > 2 and input.ndim < 2:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires batched input, "
            f"(N, {input.shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )
    if ignore_index is not None and tuple(target.shape) == (*input.shape[:-1], *weight.shape[:-1]):
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")


@composite(method=False, namespace="nn.functional")
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target, ...)`.

    input: (features) or (batch, features); linear_weight: (classes, features) or (classes, d1, ..., features);
    target: classes, or probabilities of the logits' shape.  With `options` (`nn.LinearCrossEntropyOptions`) the batch
    is cut into chunks, which spares the memory of the logits; where that is not possible (probabilities, smoothing,
    d1), a warning says so.

    >>> import xgrad
    >>> x, w = xgrad.tensor([[1.0, 0.0]]), xgrad.tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> xgrad.nn.functional.linear_cross_entropy(x, w, xgrad.tensor([0]))
    tensor(0.1269)
    """
    _check(input, linear_weight, target, linear_bias, ignore_index)
    ignored = -100 if ignore_index is None else ignore_index
    classes, beyond = linear_weight.shape[0], tuple(linear_weight.shape[1:-1])
    if options is not None:
        of_classes = target.dtype in (dtypes.int64, dtypes.int32)
        if not beyond and of_classes and not label_smoothing and reduction in ("mean", "sum", "none"):
            return _chunked(input, linear_weight, target, linear_bias, weight, reduction, ignored, options)
        warnings.warn(
            "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, "
            "label_smoothing == 0, integers as target, out_features == (). Got "
            f"reduction={reduction!r}, label_smoothing={label_smoothing}, target.dtype={target.dtype}, "
            f"out_features={beyond}.",
            stacklevel=2,
        )
    if beyond:
        linear_weight = linear_weight.reshape(math.prod(beyond, start=classes), input.shape[-1])
        linear_bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear.function(input, linear_weight, linear_bias).reshape(*input.shape[:-1], classes, *beyond)
    return cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


def _chunked(input, linear_weight, target, bias, weight, reduction, ignored, options) -> Tensor:
    check_classes(linear_weight.shape[0], target, ignored)
    single = input.ndim == 1
    if single:
        input, target = input.unsqueeze(0), target.unsqueeze(0)
    half = input.dtype in (dtypes.float16, dtypes.bfloat16)
    acc_dtype = dtypes.as_dtype(options.acc_dtype or (dtypes.float32 if half else input.dtype))
    rows = options.rows(input.shape[0], input.shape[1], linear_weight.shape[0])
    statics = (reduction, ignored, rows, acc_dtype)
    found = call(_in_chunks.operator, (input, linear_weight, target, bias, weight), statics)
    return found.squeeze(0) if single and reduction == "none" else found
