"""MultiheadAttention: the module of attention with several heads (PyTorch: torch/nn/modules/activation.py)."""

from typing import Any, ClassVar

from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter
from .linear import NonDynamicallyQuantizableLinear

_SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


class MultiheadAttention(Module):
    """Attention of `num_heads` heads: softmax(q kᵀ / √head_dim) v of projected queries, keys and values, projected.

    `embed_dim`, a multiple of `num_heads`, is the size of queries and results; `kdim` and `vdim` are the sizes of keys
    and values, the same by default.  `dropout` leaves out attention weights in training.  `bias`: the projections have
    one; `add_bias_kv`: one more key and value are learned; `add_zero_attn`: one more of zeros.  `batch_first`: tensors
    are (batch, length, size), not (length, batch, size).

    Weights of the first projections start as Xavier's uniform ones, the last one's as `Linear`'s, biases as zeros.
    Raises `ValueError` and `AssertionError` for sizes that cannot be.

    >>> import xgrad
    >>> attention = xgrad.nn.MultiheadAttention(4, 2, batch_first=True)
    >>> x = xgrad.ones(3, 5, 4)
    >>> out, weights = attention(x, x, x)
    >>> out.shape, weights.shape
    (xgrad.Size([3, 5, 4]), xgrad.Size([3, 5, 5]))
    """

    add_zero_attn: bool
    batch_first: bool
    dropout: float
    embed_dim: int
    head_dim: Any
    kdim: Any
    num_heads: int
    vdim: Any

    __constants__: ClassVar[tuple[str, ...]] = ("batch_first",)
    in_proj_weight: Any
    in_proj_bias: Any
    q_proj_weight: Any
    k_proj_weight: Any
    v_proj_weight: Any
    bias_k: Any
    bias_v: Any

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} "
                "instead"
            )
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(f"embed_dim must be divisible by num_heads, but got {embed_dim} and {num_heads}")

        def parameter(*shape: int) -> Any:
            return Parameter(FUNCTIONS[""]["empty"](*shape, device=device, dtype=dtype))

        same = self._qkv_same_embed_dim
        for name, size in zip(_SEPARATE, (embed_dim, self.kdim, self.vdim), strict=True):
            self.register_parameter(name, None if same else parameter(embed_dim, size))
        self.register_parameter("in_proj_weight", parameter(3 * embed_dim, embed_dim) if same else None)
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj: Any = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        if add_bias_kv:
            self.bias_k, self.bias_v = parameter(1, 1, embed_dim), parameter(1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        """Draw new values of all parameters but the weight of the last projection, as PyTorch does."""
        for name in (*_SEPARATE, "in_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return (the output, the weights of attention or, without `need_weights`, None).

        query (length, batch, embed_dim), key (source, batch, kdim) and value (source, batch, vdim), with `batch_first`
        the batch first, or all without a batch.  `key_padding_mask` (batch, source) and `attn_mask` (length, source) or
        (batch * num_heads, length, source) are bool, True where a key is left out, or floats that are added to the
        scores.  `is_causal` says that `attn_mask` is the causal one.  The weights are means over the heads (batch,
        length, source), or the weights of each head without `average_attn_weights`.
        """
        flipped = self.batch_first and query.ndim == 3
        if flipped:  # the same tensor stays the same one: its projection is faster
            same = key is query, value is key
            query = query.transpose(1, 0)
            key = query if same[0] else key.transpose(1, 0)
            value = key if same[1] else value.transpose(1, 0)
        out, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return out.transpose(1, 0) if flipped else out, weights
