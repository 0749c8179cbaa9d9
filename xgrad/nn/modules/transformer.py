"""Transformer, TransformerEncoder, ...: encoders and decoders of attention layers (torch/nn/modules/transformer.py).

PyTorch has a faster path of the encoder in evaluation, by nested tensors, which leaves zeros where
`src_key_padding_mask` is true.  Here there is one path; wherever PyTorch would take the faster one, the results at
these positions are set to zero, so that a mean over the positions is the same, and a float mask excludes each position
whose number is not 0, in place of being added.
"""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

from ...autograd.grad_mode import is_grad_enabled
from ...config import state
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..containers import ModuleList
from ..module import Module
from .activation import GELU, ReLU
from .dropout import Dropout
from .linear import Linear
from .multihead_attention import MultiheadAttention
from .normalization import LayerNorm

Activation = str | Callable[[Tensor], Tensor]


def _subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
    return FUNCTIONS[""]["full"]((sz, sz), float("-inf"), dtype=dtype, device=device).triu(1)


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {given}")
    return getattr(F, given)


def _clones(layer: Module, n: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(n)])


class _Layer(Module):
    """The base of the layers of encoder and decoder: blocks, each with a norm before or after, and a dropout."""

    __constants__ = ("norm_first",)
    activation: Any
    self_attn: Any
    norm1: Any
    norm2: Any
    dropout1: Any
    dropout2: Any

    def _hold(
        self, attentions: tuple[str, ...], d_model: int, nhead: int, dim_feedforward: int, dropout: float,
        activation: Activation, layer_norm_eps: float, batch_first: bool, norm_first: bool, bias: bool, place: Any,
    ) -> None:  # fmt: skip
        for name in attentions:
            attention = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place)
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        blocks = range(1, len(attentions) + 2)
        for i in blocks:
            self.add_module(f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place))
        for i in blocks:
            self.add_module(f"dropout{i}", Dropout(dropout))
        self.activation = _activation(activation)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "activation" not in state and "activation" not in state["_modules"]:  # from an old release
            state = {"activation": F.relu, **state}
        super().__setstate__(state)

    def _attend(
        self, attention: Any, dropout: Any, x: Tensor, memory: Tensor, mask: Any, padding: Any, is_causal: bool
    ) -> Tensor:
        out, _ = attention(
            x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
        )
        return dropout(out)

    def _sa_block(self, x: Tensor, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Tensor:
        return self._attend(self.self_attn, self.dropout1, x, x, attn_mask, key_padding_mask, is_causal)

    def _feed(self, x: Tensor, dropout: Any) -> Tensor:
        return dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _added(self, x: Tensor, norm: Any, block: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x plus the block of it, with the norm before the block or after the sum."""
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then two linear layers with an activation between; each is added to its input, with a norm.

    `d_model` is the size of the features, `nhead` the number of heads, `dim_feedforward` the size between the linear
    layers, `activation` "relu", "gelu" or a function.  `norm_first`: the norms are before the blocks and not after the
    sums.  `batch_first`: tensors are (batch, length, d_model), not (length, batch, d_model).

    >>> import xgrad
    >>> layer = xgrad.nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, batch_first=True)
    >>> layer(xgrad.ones(3, 5, 4)).shape
    xgrad.Size([3, 5, 4])
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place = {"device": device, "dtype": dtype}
        self._hold(
            ("self_attn",), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias, place,
        )  # fmt: skip

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the encoded `src`; the masks are as in MultiheadAttention."""
        padding = src_key_padding_mask
        if padding is not None and padding.is_floating_point() and _is_fast(self, src) and not _slow(self):
            src_key_padding_mask = padding.masked_fill(padding != 0, -math.inf)
        x = self._added(src, self.norm1, lambda x: self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self._added(x, self.norm2, self._ff_block)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self._feed(x, self.dropout2)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result, and two linear layers; each is added, with a norm.

    The arguments are the same as in TransformerEncoderLayer.

    >>> import xgrad
    >>> layer = xgrad.nn.TransformerDecoderLayer(4, 2, dim_feedforward=8)
    >>> layer(xgrad.ones(5, 3, 4), xgrad.ones(6, 3, 4)).shape
    xgrad.Size([5, 3, 4])
    """

    multihead_attn: Any
    norm3: Any
    dropout3: Any

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        place = {"device": device, "dtype": dtype}
        self._hold(
            ("self_attn", "multihead_attn"), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
            batch_first, norm_first, bias, place,
        )  # fmt: skip

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the decoded `tgt`, with the encoder's result `memory`; the masks are as in MultiheadAttention."""
        x = self._added(tgt, self.norm1, lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self._added(
            x, self.norm2,
            lambda x: self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal),
        )  # fmt: skip
        return self._added(x, self.norm3, self._ff_block)

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False
    ) -> Tensor:
        return self._attend(self.multihead_attn, self.dropout2, x, mem, attn_mask, key_padding_mask, is_causal)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self._feed(x, self.dropout3)


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, one after the other, and a `norm` at the end if there is one.

    In evaluation, where no gradient is recorded, the result before `norm` is zero at the positions that
    `src_key_padding_mask` excludes, as PyTorch's nested tensors leave it: if they are the last ones of each sequence,
    `mask` is None, and `enable_nested_tensor` is left True.  `mask_check` is accepted: masks are always looked at.

    >>> import xgrad
    >>> layer = xgrad.nn.TransformerEncoderLayer(4, 2, dim_feedforward=8, batch_first=True)
    >>> xgrad.nn.TransformerEncoder(layer, 2)(xgrad.ones(5, 3, 4)).shape
    xgrad.Size([5, 3, 4])
    """

    enable_nested_tensor: bool
    mask_check: bool
    norm: Module | None
    num_layers: int
    use_nested_tensor: Any

    __constants__: ClassVar[tuple[str, ...]] = ("norm",)

    def __init__(
        self, encoder_layer: Any, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers: Any = _clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.use_nested_tensor = enable_nested_tensor, enable_nested_tensor
        self.mask_check = mask_check
        why = _unlike_nested(encoder_layer)
        if enable_nested_tensor and why:
            self.use_nested_tensor = False
            warnings.warn(
                f"enable_nested_tensor is True, but self.use_nested_tensor is False because {why}", stacklevel=2
            )

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the encoded `src`.  `is_causal` says that `mask` is the causal one; the result is the same."""
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=bool(is_causal), src_key_padding_mask=src_key_padding_mask)
        nested = mask is None and getattr(self, "use_nested_tensor", False)
        if src_key_padding_mask is not None and nested and _is_fast(self.layers[0], src):
            output = _zero_padding(output, src_key_padding_mask)
        return output if self.norm is None else self.norm(output)


def _is_fast(layer: Any, src: Tensor) -> bool:
    """Return whether PyTorch takes its path for inference, with such an input."""
    if layer.training or src.dim() != 3 or (state.autocast is not None and "cuda" in state.autocast.enabled):
        return False
    return not is_grad_enabled() or not (src.requires_grad or any(p.requires_grad for p in layer.parameters()))


def _unlike_nested(layer: Any) -> str:
    """Return why PyTorch never makes nested tensors for such layers; "" if it does."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    return "encoder_layer.norm_first was True" if layer.norm_first else _slow(layer)


def _slow(layer: TransformerEncoderLayer) -> str:
    """Return why PyTorch has no path for inference of such a layer; "" if it has."""
    attention = layer.self_attn
    if not attention.batch_first:
        return "encoder_layer.self_attn.batch_first was not True(use batch_first for better inference performance)"
    if not attention._qkv_same_embed_dim:
        return "encoder_layer.self_attn._qkv_same_embed_dim was not True"
    if attention.in_proj_bias is None:
        return "encoder_layer.self_attn was passed bias=False"
    if not (layer.activation is F.relu or layer.activation is F.gelu or isinstance(layer.activation, (ReLU, GELU))):
        return "encoder_layer.activation_relu_or_gelu was not True"
    if layer.norm1.eps != layer.norm2.eps:
        return "encoder_layer.norm1.eps was not equal to encoder_layer.norm2.eps"
    return "encoder_layer.self_attn.num_heads is odd" if attention.num_heads % 2 else ""


def _zero_padding(output: Tensor, padding: Tensor) -> Tensor:
    """Set a batch's positions where `padding` is true to zero, if these are at the ends of sequences alone."""
    padding = padding != 0  # of a mask that is added, too: -inf excludes
    # A tensor, not a bool: a compiled function and a lazy block need not read the mask.
    at_end = (padding[:, 1:] | ~padding[:, :-1]).all()
    return output.masked_fill((padding & at_end).unsqueeze(-1), 0.0)


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, one after the other, and a `norm` at the end if there is one.

    >>> import xgrad
    >>> layer = xgrad.nn.TransformerDecoderLayer(4, 2, dim_feedforward=8)
    >>> xgrad.nn.TransformerDecoder(layer, 2)(xgrad.ones(5, 3, 4), xgrad.ones(6, 3, 4)).shape
    xgrad.Size([5, 3, 4])
    """

    norm: Module | None
    num_layers: int

    __constants__: ClassVar[tuple[str, ...]] = ("norm",)

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers: Any = _clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Return the decoded `tgt`, with the encoder's result `memory`."""
        output = tgt
        for layer in self.layers:
            output = layer(
                output, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder and a decoder with attention to it ("Attention Is All You Need"), of layers of `nhead` heads.

    `custom_encoder` and `custom_decoder` take the place of the usual ones; the other arguments are the layers'.
    All weights start as Xavier's uniform ones.

    >>> import xgrad
    >>> model = xgrad.nn.Transformer(4, 2, 1, 1, dim_feedforward=8, batch_first=True)
    >>> model(xgrad.ones(3, 6, 4), xgrad.ones(3, 5, 4)).shape
    xgrad.Size([3, 5, 4])
    """

    batch_first: bool
    d_model: int
    nhead: int

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = F.relu,
        custom_encoder: Any = None, custom_decoder: Any = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options: Any = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias,
            device, dtype,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder: Any = (
            TransformerEncoder(TransformerEncoderLayer(*options), num_encoder_layers, norm())
            if custom_encoder is None
            else custom_encoder
        )
        self.decoder: Any = (
            TransformerDecoder(TransformerDecoderLayer(*options), num_decoder_layers, norm())
            if custom_decoder is None
            else custom_decoder
        )
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Encode `src` and return the decoded `tgt`; the masks are as in MultiheadAttention.

        Raises `RuntimeError` for another number of features than d_model, and for batches that differ.
        """
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(
                f"the batch number of src and tgt must be equal, but is {src.shape[batch]} and {tgt.shape[batch]}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                f"the feature number of src and tgt must be equal to d_model, {self.d_model}, but is {src.shape[-1]} "
                f"and {tgt.shape[-1]}"
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Return the causal mask (sz, sz): minus infinity above the diagonal, zeros elsewhere.

        >>> import xgrad
        >>> xgrad.nn.Transformer.generate_square_subsequent_mask(2)
        tensor([[0., -inf],
                [0., 0.]])
        """
        return _subsequent_mask(sz, device, dtype)

    def _reset_parameters(self) -> None:
        """Draw new values of the weights."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)
