"""RelaxedBernoulli, RelaxedOneHotCategorical, ...: discrete distributions made continuous, so draws have gradients.

Gumbel-softmax: https://arxiv.org/abs/1611.00712
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from ..tensor import Tensor
from . import constraints
from .categorical import Categorical, _OverCategorical
from .discrete import _OfProbability
from .distribution import Distribution
from .transformed import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform
from .utils import T, broadcast_all, clamp_probs, like, softplus

__all__ = ["ExpRelaxedCategorical", "LogitRelaxedBernoulli", "RelaxedBernoulli", "RelaxedOneHotCategorical"]


class LogitRelaxedBernoulli(_OfProbability):
    """The log-odds of a RelaxedBernoulli."""

    support: Any = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Tensor, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        self._set(probs, logits)
        Distribution.__init__(self, self._param.size(), validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        super()._expand_rest(new, shape)
        new.temperature = self.temperature

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        u, probs = clamp_probs(like(self.probs, shape, "rand")), clamp_probs(self.probs.expand(shape))
        return (u.log() - T["log1p"](-u) + probs.log() - T["log1p"](-probs)) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        difference = logits - value * self.temperature
        return self.temperature.log() + difference - 2 * softplus(difference)


class _Relaxed(TransformedDistribution):
    """The parameters of the distribution that is transformed."""

    @property
    def temperature(self) -> Tensor:
        """The temperature: draws of a low one are nearly discrete."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log-odds, or logarithms of probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.base_dist.probs


class RelaxedBernoulli(_Relaxed):
    """A number between 0 and 1 that goes to Bernoulli's 0 or 1 as the temperature goes to 0."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample: Any = True

    def __init__(
        self, temperature: Tensor, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(_OverCategorical):
    """The logarithm of a RelaxedOneHotCategorical."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Tensor,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        super()._expand_rest(new, shape)
        new.temperature = self.temperature

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = clamp_probs(like(self.logits, self._extended_shape(sample_shape), "rand"))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - T["logsumexp"](scores, -1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self._categorical._num_events
        logits, value = broadcast_all(self.logits, self._checked(value))
        scale = T["lgamma"](T["full_like"](self.temperature, float(k))) + (k - 1) * self.temperature.log()
        score = logits - value * self.temperature
        return (score - T["logsumexp"](score, -1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(_Relaxed):
    """Probabilities that go to a one-hot vector as the temperature goes to 0.

    >>> import xgrad
    >>> logits = xgrad.zeros(3, requires_grad=True)
    >>> p = xgrad.distributions.RelaxedOneHotCategorical(xgrad.tensor(0.5), logits=logits)
    >>> p.rsample((4,)).shape, p.rsample().requires_grad
    (xgrad.Size([4, 3]), True)
    """

    arg_constraints: ClassVar[Any] = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.simplex
    has_rsample: Any = True

    def __init__(
        self,
        temperature: Tensor,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
