"""multi_head_attention_forward: attention of several heads, with its projections (PyTorch: torch/nn/functional.py).

It is composed of `linear`, `scaled_dot_product_attention` and, if the attention weights are wanted, `softmax`.
"""

import warnings
from typing import Any

from ...base import dtypes
from ...dispatch.declare import composite
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor

_x: dict[str, Any] = FUNCTIONS[""]
_nn: dict[str, Any] = FUNCTIONS["nn.functional"]


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _is_batched(query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, heads: int) -> bool:
    """Return whether the shapes have a batch dimension.  Raises `AssertionError` for shapes that fit neither case."""
    _require(
        query.ndim in (2, 3),
        f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor",
    )
    n = query.ndim
    kind = "batched (3-D)" if n == 3 else "unbatched (2-D)"
    _require(
        key.ndim == value.ndim == n,
        f"For {kind} `query`, expected `key` and `value` to be {n}-D but found {key.ndim}-D and {value.ndim}-D tensors "
        "respectively",
    )
    if padding is not None:
        _require(
            padding.ndim == n - 1,
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {n - 1}-D but found {padding.ndim}-D "
            "tensor instead",
        )
    if mask is not None:
        _require(
            mask.ndim in (2, 3),
            f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.ndim}-D tensor instead",
        )
        wanted = (heads, query.shape[0], key.shape[0])
        if n == 2 and mask.ndim == 3:
            _require(
                tuple(mask.shape) == wanted, f"Expected `attn_mask` shape to be {wanted} but got {list(mask.shape)}"
            )
    return n == 3


def _added(mask: Tensor | None, name: str, dtype: Any) -> Tensor | None:
    """Convert a mask to a term of the scores: minus infinity where a bool mask is true, which excludes the key."""
    if mask is None:
        return None
    _require(
        mask.dtype == dtypes.bool or mask.dtype in dtypes.FLOATS,
        f"only bool and floating types of {name} are supported, but got {dtypes.torch_name(mask._dtype)}",
    )
    if mask.dtype != dtypes.bool:
        return mask
    return _x["zeros_like"](mask, dtype=dtype).masked_fill(mask, float("-inf"))


def _projected(
    query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Any, separate: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Project query, key and value, by the rows of one weight, or each by its own."""
    linear, size = _nn["linear"], query.shape[-1]
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    if not separate:
        (packed,) = weights
        _require(packed is not None, "use_separate_proj_weight is False but in_proj_weight is None")
        _require(
            tuple(packed.shape) == (3 * size, size),
            f"expecting in_proj_weight of shape {(3 * size, size)}, but got {list(packed.shape)}",
        )
        if query is key and key is value:  # one product computes all three
            return tuple(linear(query, packed, bias).chunk(3, -1))
        weights = packed.chunk(3)
    else:
        for x, weight, name in zip((query, key, value), weights, ("query", "key", "value"), strict=True):
            _require(weight is not None, f"use_separate_proj_weight is True but {name[0]}_proj_weight is None")
            wanted = (size, x.shape[-1])
            _require(
                tuple(weight.shape) == wanted,
                f"expecting {name} weights shape of {wanted}, but got {list(weight.shape)}",
            )
    q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _longer(mask: Tensor | None) -> Tensor | None:
    """Extend a mask by one key, which takes part."""
    return None if mask is None else _nn["pad"](mask, (0, 1))


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
    """Attention of `num_heads` heads: query (length, batch, size), key and value (source, batch, size of each).

    The batch dimension may be missing.  `in_proj_weight` (3 * size, size) projects all three; with
    `use_separate_proj_weight` each has a weight of its own.  `bias_k`, `bias_v` (1, 1, size) are one more key and
    value, `add_zero_attn` one of zeros; `static_k`, `static_v` (batch * heads, source, size / heads) take the place of
    the projected ones.  Masks are bool (True is left out) or added to the scores: `key_padding_mask` (batch, source),
    `attn_mask` (length, source) or (batch * heads, length, source).  `is_causal` says that `attn_mask` is the causal
    one, and may be used in its place.

    Gives (the output, the weights of attention): the mean over the heads (batch, length, source), without
    `average_attn_weights` the weights of each head; None without `need_weights`.
    """
    batched = _is_batched(query, key, value, key_padding_mask, attn_mask, num_heads)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint: the weights of attention need the mask")
    if not batched:
        same = query is key, key is value
        query = query.unsqueeze(1)
        key = query if same[0] else key.unsqueeze(1)
        value = key if same[1] else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, size = query.shape
    width = size // num_heads
    _require(size == embed_dim_to_check, f"was expecting embedding dimension of {embed_dim_to_check}, but got {size}")
    _require(width * num_heads == size, f"embed_dim {size} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        _require(
            key.shape[:2] == value.shape[:2],
            f"key's sequence and batch dims {list(key.shape[:2])} do not match value's {list(value.shape[:2])}",
        )
    else:
        _require(
            key.shape == value.shape,
            f"key shape {list(key.shape)} does not match value shape {list(value.shape)}",
        )
    if key.shape[1] != batch:
        raise RuntimeError(f"the batch of key, {key.shape[1]}, is not query's, {batch}: a shape is invalid")
    if attn_mask is not None and key_padding_mask is not None and attn_mask.dtype != key_padding_mask.dtype:
        warnings.warn(
            "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead.",
            stacklevel=2,
        )
    key_padding_mask = _added(key_padding_mask, "key_padding_mask", query.dtype)
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the kernel makes its own causal mask
    else:
        attn_mask, is_causal = _added(attn_mask, "attn_mask", query.dtype), False
    if attn_mask is not None:
        wanted = (length, key.shape[0]) if attn_mask.ndim == 2 else (batch * num_heads, length, key.shape[0])
        if tuple(attn_mask.shape) != wanted:
            raise RuntimeError(
                f"The shape of the {attn_mask.ndim}D attn_mask is {list(attn_mask.shape)}, but should be {wanted}."
            )
        attn_mask = attn_mask.unsqueeze(0) if attn_mask.ndim == 2 else attn_mask

    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else (in_proj_weight,)
    q, k, v = _projected(query, key, value, weights, in_proj_bias, use_separate_proj_weight)
    if bias_k is not None and bias_v is not None:
        _require(static_k is None, "bias cannot be added to static key.")
        _require(static_v is None, "bias cannot be added to static value.")
        k, v = (_x["cat"]([x, more.expand(1, batch, size)]) for x, more in ((k, bias_k), (v, bias_v)))
        attn_mask, key_padding_mask = _longer(attn_mask), _longer(key_padding_mask)
    else:
        _require(bias_k is None, "bias_k is set but bias_v is None")
        _require(bias_v is None, "bias_v is set but bias_k is None")

    def by_head(x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], batch * num_heads, width).transpose(0, 1)

    q, k, v = by_head(q), by_head(k) if static_k is None else static_k, by_head(v) if static_v is None else static_v
    for x, name in ((static_k, "static_k"), (static_v, "static_v")):
        for dim, wanted in ((0, batch * num_heads), (2, width)):
            _require(
                x is None or x.shape[dim] == wanted,
                f"expecting {name}.size({dim}) of {wanted}, but got {x is not None and x.shape[dim]}",
            )
    if add_zero_attn:
        zeros = _x["zeros"](batch * num_heads, 1, width, dtype=k.dtype, device=k.device)
        k, v = _x["cat"]([k, zeros], 1), _x["cat"]([v, zeros], 1)
        attn_mask, key_padding_mask = _longer(attn_mask), _longer(key_padding_mask)
    source = k.shape[1]
    if key_padding_mask is not None:
        _require(
            key_padding_mask.shape[0] == batch,
            f"Expected key_padded_mask.shape[0] to be {batch}, but got {key_padding_mask.shape[0]}",
        )
        _require(
            key_padding_mask.shape[1] == source,
            f"Expected key_padded_mask.shape[1] to be {source}, but got {key_padding_mask.shape[1]}",
        )
        padding = key_padding_mask.reshape(batch, 1, 1, source).expand(-1, num_heads, -1, -1)
        padding = padding.reshape(batch * num_heads, 1, source)
        attn_mask = padding if attn_mask is None else attn_mask + padding

    dropout_p = dropout_p if training else 0.0
    attention: Tensor | None = None
    if need_weights:
        scores = (q * width**-0.5) @ k.transpose(1, 2)
        taken = _nn["softmax"](scores if attn_mask is None else scores + attn_mask, -1)
        taken = _nn["dropout"](taken, dropout_p) if dropout_p else taken
        out = taken @ v
        by_heads = taken.reshape(batch, num_heads, length, source)
        attention = by_heads.mean(1) if average_attn_weights else by_heads
    else:
        q, k, v = (x.reshape(batch, num_heads, x.shape[1], width) for x in (q, k, v))
        if attn_mask is not None:
            many = attn_mask.shape[0] > 1
            attn_mask = attn_mask.reshape(batch if many else 1, num_heads if many else 1, -1, source)
        out = _nn["scaled_dot_product_attention"](q, k, v, attn_mask, dropout_p, is_causal)
        out = out.reshape(batch * num_heads, length, width)
    out = _nn["linear"](out.transpose(0, 1).reshape(length, batch, size), out_proj_weight, out_proj_bias)
    if not batched:
        return out.squeeze(1), None if attention is None else attention.squeeze(0)
    return out, attention
