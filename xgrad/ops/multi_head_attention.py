"""nn.functional.multi_head_attention_forward: projections, attention by heads, projection.

(PyTorch: torch/nn/functional.py.)  All is made of operators: scores, softmax and products are recorded one by one if
weights are asked for, else as one scaled_dot_product_attention.
"""

from typing import Any

from .. import dtypes
from ..tensor import Tensor
from .dropout import dropout
from .layers import linear, scaled_dot_product_attention
from .registry import FUNCTIONS, composite

_x: dict[str, Any] = FUNCTIONS[""]


def _as_float(mask: Tensor | None, name: str, dtype: Any) -> Tensor | None:
    """A mask as what is added to the scores: where a bool mask is True nothing is seen."""
    if mask is None:
        return None
    if mask.dtype == dtypes.bool:
        return _x["zeros_like"](mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    if mask.dtype not in dtypes.INEXACT:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask


def _project(query: Any, key: Any, value: Any, packed: Any, separate: tuple | None, bias: Any) -> list[Tensor]:
    weights = packed.chunk(3) if separate is None else separate
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [linear.function(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]


def _heads(x: Tensor, heads: int, features: int) -> Tensor:
    """(length, batch, heads * features) as (batch * heads, length, features)."""
    return x.reshape(x.shape[0], -1, features).transpose(0, 1)


def _check(query: Tensor, key: Tensor, value: Tensor, embed: int, heads: int, separate: bool) -> None:
    if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor, with key and "
            f"value of {key.ndim}-D and {value.ndim}-D"
        )
    if query.shape[-1] != embed:
        raise AssertionError(f"was expecting embedding dimension of {embed}, but got {query.shape[-1]}")
    if embed % heads:
        raise AssertionError(f"embed_dim {embed} not divisible by num_heads {heads}")
    if separate and key.shape[:-1] != value.shape[:-1]:
        raise AssertionError(
            f"key's sequence and batch dims {list(key.shape[:-1])} do not match value's {list(value.shape[:-1])}"
        )
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {list(key.shape)} does not match value shape {list(value.shape)}")


@composite(method=False, namespace="nn.functional")
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """(output, attention weights or None) of query (length, batch, features), key and value (sequence, batch, ...).

    Without a batch dimension too.  `attn_mask`: (length, sequence) or (batch * heads, length, sequence), and
    `key_padding_mask`: (batch, sequence), bool (True is not seen) or added to the scores.
    """
    _check(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    single = query.ndim == 2
    if single:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, embed = query.shape
    features = embed // num_heads
    mask = _as_float(attn_mask, "attn_mask", query.dtype)
    padding = _as_float(key_padding_mask, "key_padding_mask", query.dtype)
    if mask is not None:
        wanted = (length, key.shape[0]) if mask.ndim == 2 else (batch * num_heads, length, key.shape[0])
        if mask.ndim not in (2, 3):
            raise RuntimeError(f"attn_mask's dimension {mask.ndim} is not supported")
        if tuple(mask.shape) != wanted:
            raise RuntimeError(
                f"The shape of the {mask.ndim}D attn_mask is {list(mask.shape)}, but should be {wanted}."
            )
        mask = mask.unsqueeze(0) if mask.ndim == 2 else mask
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _project(query, key, value, in_proj_weight, separate, in_proj_bias)
    more = 0
    if (bias_k is None) != (bias_v is None):
        raise AssertionError("bias_k and bias_v are given together, but one of them is None")
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        k, v = (_x["cat"]([x, b.expand(1, batch, -1)]) for x, b in ((k, bias_k), (v, bias_v)))
        more += 1
    q, k, v = (_heads(x, num_heads, features) for x in (q, k, v))
    k, v = k if static_k is None else static_k, v if static_v is None else static_v
    if add_zero_attn:
        k, v = (_x["cat"]([x, x.new_zeros(x.shape[0], 1, features)], 1) for x in (k, v))
        more += 1
    sequence = k.shape[1]
    pad = FUNCTIONS["nn.functional"]["pad"]
    mask = pad(mask, (0, more)) if more and mask is not None else mask
    if padding is not None:
        padding = pad(padding, (0, more)) if more else padding
        padding = padding.reshape(batch, 1, 1, sequence).expand(-1, num_heads, -1, -1).reshape(-1, 1, sequence)
        mask = padding if mask is None else mask + padding
    p = dropout_p if training else 0.0
    weights: Any = None
    if need_weights:
        scores = (q * features**-0.5) @ k.transpose(-2, -1)
        weights = _x["softmax"](scores if mask is None else scores + mask, -1)
        weights = dropout(weights, p) if p else weights
        seen = weights @ v
    else:
        shape = (batch, num_heads, -1, features)
        mask = mask if mask is None or mask.shape[0] == 1 else mask.reshape(batch, num_heads, -1, sequence)
        seen = scaled_dot_product_attention(*(x.reshape(*shape) for x in (q, k, v)), mask, p)
        seen = seen.reshape(batch * num_heads, length, features)
    out = linear.function(seen.transpose(0, 1).reshape(length, batch, embed), out_proj_weight, out_proj_bias)
    if not need_weights:
        return out.squeeze(1) if single else out, None
    weights = weights.reshape(batch, num_heads, length, sequence)
    weights = weights.mean(1) if average_attn_weights else weights
    return (out.squeeze(1), weights.squeeze(0)) if single else (out, weights)
