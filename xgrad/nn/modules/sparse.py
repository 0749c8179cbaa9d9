"""Embedding, EmbeddingBag: layers that look up vectors by index in a table (PyTorch: torch/nn/modules/sparse.py)."""

from typing import Any, Self

from ...autograd.grad_mode import no_grad
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..module import Module
from ..parameter import Parameter


class _Table(Module):
    """A weight with a vector for each index, drawn from the normal distribution, and zeros for `padding_idx`."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool
    sparse: bool
    weight: Any

    def _hold(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None, norm_type: float,
        scale_grad_by_freq: bool, sparse: bool, weight: Tensor | None, padding_idx: int | None, freeze: bool,
        device: Any, dtype: Any,
    ) -> None:  # fmt: skip
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        shape, n = (num_embeddings, embedding_dim), num_embeddings
        if padding_idx is not None:
            if not -n <= padding_idx < n:
                raise AssertionError(f"padding_idx must be within num_embeddings, got {padding_idx} and {n}")
            padding_idx %= n
        self.padding_idx = padding_idx
        if weight is not None and tuple(weight.shape) != shape:
            raise AssertionError(
                f"Shape of weight does not match num_embeddings and embedding_dim: {tuple(weight.shape)} and {shape}"
            )
        given = FUNCTIONS[""]["empty"](*shape, device=device, dtype=dtype) if weight is None else weight
        self.weight = Parameter(given, requires_grad=not freeze)
        if weight is None:
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new vectors."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    @no_grad()
    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0

    def _unusual(self, **usual: Any) -> list[str]:
        return [f"{name}={getattr(self, name)}" for name in usual if getattr(self, name) != usual[name]]


def _sizes(embeddings: Tensor) -> tuple[int, int]:
    if embeddings.dim() != 2:
        raise AssertionError(f"Embeddings parameter is expected to be 2-dimensional, got {embeddings.dim()}")
    return embeddings.shape[0], embeddings.shape[1]


class Embedding(_Table):
    """A vector for each index: `nn.functional.embedding`.

    `padding_idx`: an index whose vector is zeros and gets no gradient.  `max_norm`: vectors that are longer are scaled
    to it, in the weight, when they are looked up.  `sparse`: the weight's gradient is a sparse tensor.

    >>> import xgrad
    >>> xgrad.nn.Embedding(10, 3, padding_idx=0)(xgrad.tensor([[1, 2, 0]])).shape
    xgrad.Size([1, 3, 3])
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._hold(
            num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, padding_idx,
            _freeze, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        """Return the vectors of the indices, as a last dimension."""
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        """Return the sizes, and what is not as usual, as text."""
        unusual = self._unusual(padding_idx=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, sparse=False)
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}", *unusual])

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Self:  # fmt: skip
        """Return an Embedding with the vectors of a matrix, whose storage it shares; trained unless `freeze`.

        >>> import xgrad
        >>> table = xgrad.nn.Embedding.from_pretrained(xgrad.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> table(xgrad.tensor([1]))
        tensor([[3., 4.]])
        """
        return cls(
            *_sizes(embeddings), _weight=embeddings, _freeze=freeze, padding_idx=padding_idx, max_norm=max_norm,
            norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
        )  # fmt: skip


class EmbeddingBag(_Table):
    """The sum, mean or largest elements (`mode`) of the vectors of each bag of indices: `nn.functional.embedding_bag`.

    A bag is a row of a matrix of indices, or a part of a vector that begins at one of `offsets`.

    >>> import xgrad
    >>> bag = xgrad.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bag(xgrad.tensor([1, 2, 4, 5]), xgrad.tensor([0, 3])).shape
    xgrad.Size([2, 3])
    """

    mode: str
    include_last_offset: bool

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.mode, self.include_last_offset = mode, include_last_offset
        self._hold(
            num_embeddings, embedding_dim, max_norm, norm_type, scale_grad_by_freq, sparse, _weight, padding_idx,
            False, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Return one vector for each bag."""
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes, and what is not as usual, as text."""
        unusual = self._unusual(max_norm=None, norm_type=2, scale_grad_by_freq=False)
        padding = self._unusual(padding_idx=None)
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}", *unusual, f"mode={self.mode!r}", *padding])

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Self:  # fmt: skip
        """Return an EmbeddingBag with the vectors of a matrix, whose storage it shares; trained unless `freeze`."""
        found = cls(
            *_sizes(embeddings), _weight=embeddings, max_norm=max_norm, norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq, mode=mode, sparse=sparse, include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )  # fmt: skip
        found.weight.requires_grad = not freeze
        return found
