"""AdaptiveLogSoftmaxWithLoss: a loss over many classes, by a softmax in clusters (PyTorch: nn/modules/adaptive.py)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from .. import functional as F
from ..containers import ModuleList, Sequential
from ..module import Module
from .linear import Linear


class _ASMoutput(NamedTuple):
    """The log-probabilities of the targets, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes, sorted from frequent to rare, in clusters that begin at `cutoffs`.

    The head has the classes before the first cutoff and one entry for each cluster; a cluster's projection is
    `div_value` times smaller than the one before (Grave et al. 2016).  All clusters are evaluated for all samples, so
    that shapes do not depend on values.  (PyTorch evaluates a cluster for its own samples only.)

    Raises `ValueError` unless the cutoffs are increasing integers of [1, n_classes - 1].

    >>> import xgrad
    >>> softmax = xgrad.nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2])
    >>> output, loss = softmax(xgrad.ones(3, 4), xgrad.tensor([0, 2, 5]))
    >>> output.shape, softmax.log_prob(xgrad.ones(3, 4)).shape
    (xgrad.Size([3]), xgrad.Size([3, 6]))
    """

    n_clusters: Any
    shortlist_size: Any

    in_features: int
    n_classes: int
    cutoffs: list[int]
    div_value: float
    head_bias: bool
    head: Linear
    tail: ModuleList

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        starts = list(cutoffs)
        if not starts:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        increasing = all(a < b for a, b in pairwise([0, *starts, n_classes]))
        if not increasing or any(int(c) != c for c in starts):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                f"value is between 1 and n_classes-1, got {starts} and {n_classes}"
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*starts, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = starts[0], len(starts)
        self.head_size: Any = self.shortlist_size + self.n_clusters
        where = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for i, (start, stop) in enumerate(pairwise(self.cutoffs), 1):
            hidden = int(in_features // div_value**i)
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **where),
                    Linear(hidden, stop - start, bias=False, **where),
                )
            )

    def reset_parameters(self) -> None:
        """Draw new values of all parameters."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """Return the log-probabilities of the targets, and the mean of their negatives.

        The input has shape (N, in_features) and the target (N), or both lack the N.  Raises `RuntimeError` for others,
        and for a target that is not a class.
        """
        wanted = {1: 2, 0: 1}.get(target_.dim())
        if wanted is None:
            raise RuntimeError(f"0D or 1D target tensor expected, multi-target not supported, got {target_.dim()}D")
        if input_.dim() != wanted:
            raise RuntimeError(
                f"{target_.dim()}D target tensor expects {wanted}D input tensors, but found inputs with size "
                f"{list(input_.shape)}"
            )
        if wanted == 2 and input_.shape[0] != target_.shape[0]:
            raise RuntimeError(
                "Input and target should have the same size in the batch dimension, got "
                f"{input_.shape[0]} and {target_.shape[0]}."
            )
        low, high = (int(bound) for bound in (target_.min(), target_.max())) if target_.numel() else (0, 0)
        if low < 0 or high >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {high}] were found."
            )
        output = self.log_prob(input_).gather(-1, target_.unsqueeze(-1)).squeeze(-1)
        return _ASMoutput(output, (-output).mean())

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = F.log_softmax(head_output, -1)
        parts = [head[..., : self.shortlist_size]]
        for i, cluster in enumerate(self.tail, self.shortlist_size):
            parts.append(F.log_softmax(cluster(input), -1) + head[..., i : i + 1])
        return FUNCTIONS[""]["cat"](parts, -1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Return the log-probabilities of all classes, of shape (N, n_classes)."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """Return the likeliest class of each sample, given the likeliest entry of the head.

        That is a class of the shortlist, or the likeliest of all classes if the entry is a cluster.
        """
        head = self.head(input)
        first = head.argmax(-1)
        overall = self._get_full_log_prob(input, head).argmax(-1)
        return FUNCTIONS[""]["where"](first < self.shortlist_size, first, overall)
