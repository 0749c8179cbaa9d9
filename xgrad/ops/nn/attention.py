"""Declares nn.functional's linear, bilinear and scaled_dot_product_attention (PyTorch: Linear.cpp, attention.cpp)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, operator
from ...dispatch.declare import linear as linearly
from ...dispatch.promotion import refuse_broader, require_real_floating, require_same_dtype
from ...dispatch.samples import COMPLEX, key, real, sample, truth
from ...execution.programs.half import precision_of
from ...tensor import Tensor
from ..random.keys import draw_key

functional: Any = partial(operator, namespace="nn.functional", method=False, out=False)


@functional(
    samples=(
        sample(real(2, 3), real(4, 3), real(4)), sample(real(2, 2, 3), real(4, 3)), sample(real(3), real(3)),
        sample(real(0, 3), real(4, 3), real(4)), *COMPLEX,
    ),
)  # fmt: skip
def linear(self, weight, bias=None):
    """input @ weight.T + bias, for a weight (out, in), or (in) for one output without a dimension.

    >>> import xgrad
    >>> x, weight = xgrad.ones(1, 2), xgrad.tensor([[1.0, 2.0]])
    >>> xgrad.nn.functional.linear(x, weight, xgrad.tensor([10.0]))
    tensor([[13.]])
    """
    require_same_dtype(self, weight, "linear")
    if weight.ndim not in (1, 2) or not self.ndim or self.shape[-1] != weight.shape[-1]:
        first = (self.size // max(self.shape[-1], 1) if self.ndim else 1, self.shape[-1] if self.ndim else 1)
        second = weight.shape[::-1]
        raise RuntimeError(
            f"linear(): mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, first))} and "
            f"{'x'.join(map(str, second))}): input {list(self.shape)}, weight {list(weight.shape)}"
        )
    out = jnp.matmul(self, weight.T)
    return out if bias is None else out + bias


linear.derivative(self=linearly, weight=linearly, bias=lambda grad: grad)


@functional(
    namespace=("nn.functional", ""),
    samples=(
        sample(real(2, 3), real(2, 2), real(4, 3, 2), real(4)), sample(real(3), real(2), real(4, 3, 2)),
        sample(real(0, 3), real(0, 2), real(4, 3, 2)), *COMPLEX,
    ),
)  # fmt: skip
def bilinear(input1, input2, weight, bias=None):
    """input1 @ weight[k] @ input2 + bias[k] for each output k: weight (out, in1, in2)."""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(
            f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and {list(input2.shape)}"
        )
    if weight.ndim != 3 or input1.shape[-1] != weight.shape[1] or input2.shape[-1] != weight.shape[2]:
        raise RuntimeError(
            f"bilinear(): input sizes do not match weight size: got {input1.shape[-1]} and {input2.shape[-1]} for "
            "a weight "
            f"{list(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {list(bias.shape)}")
    out = jnp.einsum("...i,oij,...j->...o", input1, weight, input2)
    return out if bias is None else out + bias


bilinear.derivative(input1=linearly, input2=linearly, weight=linearly, bias=lambda grad: grad)


# -- attention --------------------------------------------------------------------------------------------------------


def _attended(*others: Any, gqa: bool = False, causal: bool = False) -> Any:
    arrays = (real(2, 2, 3), real(1, 2, 3), real(1, 2, 2)) if gqa else (real(2, 3), real(4, 3), real(4, 2))
    return sample(*arrays, *others, is_causal=causal, enable_gqa=gqa)


_ATTENDED = (
    _attended(None, None, None, None), _attended(truth(2, 4), None, None, 0.5), _attended(real(2, 4), None, None, None),
    _attended(None, None, None, None, causal=True), _attended(None, None, None, None, gqa=True),
    _attended(None, key(), 0.25, None),
)  # fmt: skip


@functional("scaled_dot_product_attention", function=False, samples=_ATTENDED)
def _attention(query, key, value, attn_mask, random, dropout_p, scale, *, is_causal, enable_gqa):
    """Attention whose backward computes the scores again: saved memory grows with the sequence, not with its square.

    Half precisions are operands of products only: the products' sums, and the softmax, are in float32, as PyTorch's.
    """
    require_real_floating(query, "scaled_dot_product_attention")
    if enable_gqa:  # each head of key and value serves several of query
        key, value = (jnp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    wide = jnp.promote_types(query.dtype, jnp.float32)
    options: Any = {"preferred_element_type": wide, "precision": precision_of(query, key, value)}
    scores = jnp.matmul(query, jnp.swapaxes(key, -1, -2), **options) * scale
    refuse_broader(scores, attn_mask)
    allowed: Any = None
    if is_causal:
        allowed = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    elif attn_mask is not None and attn_mask.dtype == bool:
        allowed = attn_mask
    elif attn_mask is not None:
        scores = scores + attn_mask
    if allowed is not None:
        scores = jnp.where(allowed, scores, -jnp.inf)
    if attn_mask is None:  # a causal query has a key
        weights = jax.nn.softmax(scores, axis=-1)
    else:  # a query whose keys are all masked gets zeros, not the NaN of an empty softmax
        nothing = jnp.all(scores == -jnp.inf, axis=-1, keepdims=True)
        weights = jnp.where(nothing, 0, jax.nn.softmax(jnp.where(nothing, 0, scores), axis=-1))
    if random is not None:
        kept = jax.random.bernoulli(random, 1 - dropout_p, weights.shape)
        weights = jnp.where(kept, weights * jnp.where(dropout_p < 1, 1 / (1 - dropout_p), 0), 0)
    return jnp.matmul(weights.astype(value.dtype), value, **options).astype(value.dtype)


@composite(method=False, namespace="nn.functional")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value, over the last two dimensions (sequence, features).

    `attn_mask`: bool (True takes part) or a term added to the scores; `is_causal` instead of it: no query sees later
    keys.  `scale` is 1 / sqrt(features) unless given; `enable_gqa` lets several query heads (dimension -3) share a key
    head.
    """
    if not query._dtype == key._dtype == value._dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype.name} key.dtype: {key.dtype.name} and value.dtype: {value.dtype.name} instead."
        )
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError("Expected query, key, and value to all be at least 2 dimensional")
    if is_causal and attn_mask is not None:
        raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
    if attn_mask is not None and attn_mask._dtype not in (dtypes.bool, dtypes.float32, query._dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{attn_mask.dtype.name} and query.dtype: {query.dtype.name} instead."
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"scaled_dot_product_attention: query {list(query.shape)}, key {list(key.shape)} and value "
            f"{list(value.shape)} "
            "do not fit together: query and key need the same last size, key and value the same sequence"
        )
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    random, p = (draw_key(), float(dropout_p)) if dropout_p else (None, None)
    return call(_attention.operator, (query, key, value, attn_mask, random, p, scale), (is_causal, enable_gqa))
