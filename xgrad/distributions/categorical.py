"""Categorical, OneHotCategorical, Multinomial: distributions whose draws are indices, one-hot vectors, or counts."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ..base.dtype_info import finfo
from ..base.size import Size
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import T, clamp_probs, lazy_property, logits_to_probs, one_hot, probs_to_logits, without_grad

__all__ = ["Categorical", "Multinomial", "OneHotCategorical", "OneHotCategoricalStraightThrough"]

_PROBABILITIES = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Categorical(Distribution):
    """An index of the last dimension of `probs` (which are normalized) or `logits`, with these probabilities.

    >>> import xgrad
    >>> p = xgrad.distributions.Categorical(logits=xgrad.tensor([0.0, 0.0, -100.0]))
    >>> int(p.sample()) in (0, 1)
    True
    >>> p.log_prob(xgrad.tensor(1)).exp()
    tensor(0.5000)
    """

    arg_constraints: ClassVar[Any] = _PROBABILITIES
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name = "logits" if probs is None else "probs"
        given: Any = logits if probs is None else probs
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        vars(self)[name] = self._param = (
            given / given.sum(-1, keepdim=True) if logits is None else given - T["logsumexp"](given, -1, keepdim=True)
        )
        self._num_events: int = given.size(-1)
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        new._param, new._num_events = vars(new)["probs" if "probs" in vars(new) else "logits"], self._num_events

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.size()

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return T["full"](self._extended_shape(), float("nan"), dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = Size(sample_shape)
        drawn = T["multinomial"](self.probs.reshape(-1, self._num_events), shape.numel(), True).T
        return drawn.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        index = self._checked(value).to(T["empty"](0, dtype=int).dtype).unsqueeze(-1)
        index, logits = T["broadcast_tensors"](index, self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = T["arange"](self._num_events, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class _OverCategorical(Distribution):
    """A distribution with the parameters of a Categorical."""

    _categorical: Categorical

    def _expand_rest(self, new: Any, shape: Any) -> None:
        new._categorical = self._categorical.expand(shape)

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._categorical.param_shape


class OneHotCategorical(_OverCategorical):
    """A one-hot vector."""

    arg_constraints: ClassVar[Any] = _PROBABILITIES
    support: Any = constraints.one_hot
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args=False)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self.probs.argmax(-1), self._event_shape[0], self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return one_hot(self._categorical.sample(sample_shape), self._event_shape[0], self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._categorical.log_prob(self._checked(value).max(-1)[1])

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = T["eye"](n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n, *(1,) * len(self._batch_shape), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose draws have the gradient of the probabilities (https://arxiv.org/abs/1308.3432)."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())


class Multinomial(_OverCategorical):
    """The counts of the categories among `total_count` draws, one number for all."""

    arg_constraints: ClassVar[Any] = _PROBABILITIES

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args=False)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        super()._expand_rest(new, shape)
        new.total_count = self.total_count

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))
        return one_hot(drawn, self._event_shape[0], self.probs.dtype).sum(0)

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        log_choices = T["lgamma"](value.sum(-1) + 1) - T["lgamma"](value + 1).sum(-1)
        logits, value = T["broadcast_tensors"](self.logits, value)
        logits = T["where"]((value == 0) & (logits == -float("inf")), 0.0, logits)
        return log_choices + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = T["tensor"](self.total_count, dtype=self.probs.dtype, device=self.probs.device)
        counts = T["arange"](1.0, self.total_count + 1, dtype=n.dtype, device=self.probs.device)
        counts = counts.view((-1,) + (1,) * self.probs.dim())
        p = clamp_probs(self.probs)
        log_binomial = (
            T["lgamma"](n + 1) - T["lgamma"](counts + 1) - T["lgamma"](n - counts + 1) + counts * p.log()
            + (n - counts) * T["log1p"](-p)
        )  # fmt: skip
        expected = (log_binomial.exp() * T["lgamma"](counts + 1)).sum((0, -1))
        return n * self._categorical.entropy() - T["lgamma"](n + 1) + expected
