"""CrossEntropyLoss, MSELoss, ...: modules that compute losses by nn.functional (PyTorch: torch/nn/modules/loss.py).

`reduction` is "mean", "sum" or "none"; `size_average` and `reduce` are PyTorch's old names of these.  A weight is a
buffer, so that `to` moves it and `state_dict` has it.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

from ...ops.nn.loss import reduction_of
from ...tensor import Tensor
from .. import functional as F
from ..linear_cross_entropy_options import LinearCrossEntropyOptions
from ..module import Module
from .declared_module import Face, face
from .distance import PairwiseDistance
from .linear import Linear

_BUFFERS = ("weight", "pos_weight")
_TWO = "input target"
_THREE = "input1 input2 target"
_TRIPLET = "anchor positive negative"


class _Loss(Face):
    """Base class of losses: their `reduction`."""

    _withheld = ("size_average", "reduce")
    _shown = ""
    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        Module.__init__(self)
        self._keep({"size_average": size_average, "reduce": reduce, "reduction": reduction})

    def _keep(self, values: dict[str, Any]) -> None:
        average, reduce = values.pop("size_average", None), values.pop("reduce", None)
        if average is not None or reduce is not None:
            values["reduction"] = _legacy(average, reduce)
        for name in _BUFFERS:
            if name in values:
                self.register_buffer(name, values.pop(name))
        super()._keep(values)


class _WeightedLoss(_Loss):
    """Base class of losses with a weight for each class or each element."""

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


def _legacy(size_average: bool | None, reduce: bool | None) -> str:
    found = reduction_of(size_average, reduce, "mean")
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{found}' instead.", stacklevel=5
    )
    return found


# -- distances --------------------------------------------------------------------------------------------------------


@face("l1_loss", tensors=_TWO)
class L1Loss(_Loss):
    """|input - target|."""

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("mse_loss", tensors=_TWO)
class MSELoss(_Loss):
    """(input - target)².

    >>> import xgrad
    >>> xgrad.nn.MSELoss()(xgrad.tensor([1.0, 2.0]), xgrad.tensor([1.0, 4.0]))
    tensor(2.)
    """

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("smooth_l1_loss", tensors=_TWO)
class SmoothL1Loss(_Loss):
    """|input - target| less beta/2, but half its square over beta where it is below `beta`."""

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"
    beta: float = 1.0


@face("huber_loss", tensors=_TWO)
class HuberLoss(_Loss):
    """Half the squared difference up to `delta`, linear beyond."""

    reduction: str = "mean"
    delta: float = 1.0


# -- likelihoods ------------------------------------------------------------------------------------------------------


@face("cross_entropy", tensors=_TWO)
class CrossEntropyLoss(_WeightedLoss):
    """The negative log-likelihood of classes, for unnormalized scores of shape (N, C, ...) or (C).

    The target has class indices, of shape (N, ...), or probabilities, of the shape of the scores.

    >>> import xgrad
    >>> xgrad.nn.CrossEntropyLoss()(xgrad.zeros(1, 2), xgrad.tensor([1]))
    tensor(0.6931)
    """

    weight: Tensor | None = None
    size_average: bool | None = None
    ignore_index: int = -100
    reduce: bool | None = None
    reduction: str = "mean"
    label_smoothing: float = 0.0


@face("nll_loss", tensors=_TWO)
class NLLLoss(_WeightedLoss):
    """The negative log-likelihood of class indices, for log-probabilities of shape (N, C, ...) or (C)."""

    weight: Tensor | None = None
    size_average: bool | None = None
    ignore_index: int = -100
    reduce: bool | None = None
    reduction: str = "mean"


class NLLLoss2d(NLLLoss):
    """An old name of `NLLLoss`, which warns."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        warnings.warn("NLLLoss2d has been deprecated. Please use NLLLoss instead.", FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


@face("poisson_nll_loss", tensors="log_input target")
class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of counts under a Poisson distribution, whose log rate is the input."""

    log_input: bool = True
    full: bool = False
    size_average: bool | None = None
    eps: float = 1e-8
    reduce: bool | None = None
    reduction: str = "mean"


@face("gaussian_nll_loss", tensors="input target var", kw_only=True)
class GaussianNLLLoss(_Loss):
    """The negative log-likelihood of the target under normal distributions of the mean `input` and variance `var`."""

    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"


@face("kl_div", tensors=_TWO)
class KLDivLoss(_Loss):
    """The Kullback-Leibler divergence of a distribution `target` from the log-probabilities `input`."""

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"
    log_target: bool = False


@face("binary_cross_entropy", tensors=_TWO)
class BCELoss(_WeightedLoss):
    """The negative log-likelihood of 0 and 1 (or between), for probabilities."""

    weight: Tensor | None = None
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("binary_cross_entropy_with_logits", tensors=_TWO)
class BCEWithLogitsLoss(_Loss):
    """The negative log-likelihood of 0 and 1 (or between), for scores whose sigmoid is the probability of 1.

    >>> import xgrad
    >>> xgrad.nn.BCEWithLogitsLoss()(xgrad.zeros(2), xgrad.tensor([0.0, 1.0]))
    tensor(0.6931)
    """

    weight: Tensor | None = None
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None


@face("ctc_loss", tensors="log_probs targets input_lengths target_lengths")
class CTCLoss(_Loss):
    """The negative log-likelihood of a sequence of labels over all alignments with the input (Graves et al. 2006)."""

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False


class LinearCrossEntropyLoss(_WeightedLoss):
    """CrossEntropyLoss of a Linear inside of it, in chunks: all scores are never in memory at once.

    Raises `RuntimeError` for a weight of another shape than (num_classes,) and a smoothing outside of [0, 1].

    >>> import xgrad
    >>> loss = xgrad.nn.LinearCrossEntropyLoss(4, 3)
    >>> loss(xgrad.zeros(2, 4), xgrad.tensor([0, 2]))
    tensor(1.0986, grad_fn=<CrossEntropyLossBackward0>)
    """

    ignore_index: int | None
    label_smoothing: float
    num_classes: int
    out_features: tuple[int, ...]

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
        device: Any = None, dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None,
        ignore_index: int | None = None, label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:  # fmt: skip
        if weight is not None and weight.shape != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features = num_classes, out_features
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.linear: Any = Linear(in_features, math.prod(out_features, start=num_classes), bias, device, dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return `nn.functional.linear_cross_entropy` with the parameters of the Linear."""
        weight, bias, sizes = self.linear.weight, self.linear.bias, (self.num_classes, *self.out_features)
        return F.linear_cross_entropy(
            input, weight.reshape(*sizes, weight.shape[-1]), target, weight=self.weight, reduction=self.reduction,
            linear_bias=None if bias is None else bias.reshape(sizes), ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing, options=self.options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes and options as text."""
        names = ["num_classes", "out_features", "bias", "reduction", "ignore_index", "label_smoothing", "options"]
        shown = {**self.__dict__, "bias": self.linear.bias is not None}
        return ", ".join([f"in_features={self.linear.in_features}", *(f"{name}={shown[name]}" for name in names)])


# -- margins ----------------------------------------------------------------------------------------------------------


@face("margin_ranking_loss", tensors=_THREE)
class MarginRankingLoss(_Loss):
    """max(0, margin - target·(input1 - input2)): the target 1 wants input1 to be larger, -1 the other."""

    margin: float = 0.0
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("hinge_embedding_loss", tensors=_TWO)
class HingeEmbeddingLoss(_Loss):
    """The input, a distance, for the target 1, and max(0, margin - input) for -1."""

    margin: float = 1.0
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("cosine_embedding_loss", tensors=_THREE)
class CosineEmbeddingLoss(_Loss):
    """1 - cos(input1, input2) for the target 1, and max(0, cos(input1, input2) - margin) for -1."""

    margin: float = 0.0
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("soft_margin_loss", tensors=_TWO)
class SoftMarginLoss(_Loss):
    """log(1 + exp(-target·input)), for targets of 1 and -1."""

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("multilabel_margin_loss", tensors=_TWO)
class MultiLabelMarginLoss(_Loss):
    """max(0, 1 - (score of a right class - score of another)), for targets that list the classes up to the first -1."""

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("multilabel_soft_margin_loss", tensors=_TWO)
class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The mean over the classes of BCEWithLogitsLoss."""

    weight: Tensor | None = None
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("multi_margin_loss", tensors=_TWO)
class MultiMarginLoss(_WeightedLoss):
    """max(0, margin - score of the right class + score of another) to the power of `p`, which is 1 or 2."""

    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"

    def _keep(self, values: dict[str, Any]) -> None:
        if values["p"] not in (1, 2):
            raise ValueError(f"only p == 1 and p == 2 supported, got {values['p']}")
        weight = values["weight"]
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D instead")
        super()._keep(values)


class _Triplet(_Loss):
    def _keep(self, values: dict[str, Any]) -> None:
        if values["margin"] <= 0:
            raise ValueError(
                f"{type(self).__name__}: expected margin to be greater than 0, got {values['margin']} instead"
            )
        super()._keep(values)


@face("triplet_margin_loss", tensors=_TRIPLET)
class TripletMarginLoss(_Triplet):
    """max(0, margin + distance(anchor, positive) - distance(anchor, negative)), of p-norms."""

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


@face("triplet_margin_with_distance_loss", tensors=_TRIPLET, kw_only=True)
class TripletMarginWithDistanceLoss(_Triplet):
    """TripletMarginLoss with a distance function of one's own, by default PairwiseDistance()."""

    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"

    def _keep(self, values: dict[str, Any]) -> None:
        if values["distance_function"] is None:
            values["distance_function"] = PairwiseDistance()
        super()._keep(values)
