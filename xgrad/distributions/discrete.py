"""Bernoulli, Binomial, Geometric, Poisson, NegativeBinomial: distributions whose draws are counts, or 0 and 1."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .utils import (
    T,
    broadcast_all,
    lazy_property,
    log_standard_gamma,
    logits_to_probs,
    open_uniform,
    probs_to_logits,
    softplus,
    value_is_traced,
    without_grad,
)

__all__ = ["Bernoulli", "Binomial", "Geometric", "NegativeBinomial", "Poisson"]


class _OfProbability(Distribution):
    """Base class: takes a probability or its log-odds, and computes the other one when it is asked for."""

    arg_constraints: ClassVar[Any] = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _set(self, probs: Any, logits: Any, others: tuple[Any, ...] = ()) -> list[Tensor]:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        *rest, self._param = broadcast_all(*others, logits if probs is None else probs)
        vars(self)["logits" if probs is None else "probs"] = self._param
        return rest

    def _expand_rest(self, new: Any, shape: Any) -> None:
        new._param = vars(new)["probs" if "probs" in vars(new) else "logits"]

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()


class Bernoulli(_OfProbability, ExponentialFamily):
    """1 with probability `probs` (log-odds `logits`), otherwise 0."""

    support: Any = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set(probs, logits)
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs.dtype)
        return T["where"](self.probs == 0.5, float("nan"), mode)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return T["bernoulli"](self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, self._checked(value))
        loss = FUNCTIONS["nn.functional"]["binary_cross_entropy_with_logits"]
        return -loss(logits, value.to(logits.dtype), reduction="none")

    def entropy(self) -> Tensor:
        return FUNCTIONS["nn.functional"]["binary_cross_entropy_with_logits"](self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = T["arange"](2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return softplus(x)


class Geometric(_OfProbability):
    """The number of failures before the first success, whose probability is `probs`."""

    support: Any = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._set(probs, logits)
        super().__init__(self._param.size(), validate_args=validate_args)
        known = probs is not None and not value_is_traced(self.probs)
        if self._validate_args and known and not bool((self.probs > 0).all()):
            raise ValueError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape {tuple(self.probs.shape)}) of "
                f"distribution {self!r} to be positive but found invalid values:\n{self.probs}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return T["zeros_like"](self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        u = open_uniform(self.probs, self._extended_shape(sample_shape))
        return (u.log() / T["log1p"](-self.probs)).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        value, probs = broadcast_all(self._checked(value), self.probs)
        probs = T["where"]((probs == 1) & (value == 0), 0.0, probs)
        return value * T["log1p"](-probs) + self.probs.log()

    def entropy(self) -> Tensor:
        return (
            FUNCTIONS["nn.functional"]["binary_cross_entropy_with_logits"](self.logits, self.probs, reduction="none")
            / self.probs
        )


class Binomial(_OfProbability):
    """The number of successes among `total_count` trials."""

    total_count: Any

    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._set(probs, logits, (total_count,))
        self.total_count = self.total_count.to(self._param.dtype)
        super().__init__(self._param.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        mode = ((self.total_count + 1) * self.probs).floor()
        return T["minimum"](mode, self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return T["binomial"](self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        n, x = self.total_count, self.logits
        choices = T["lgamma"](n + 1) - T["lgamma"](value + 1) - T["lgamma"](n - value + 1)
        return choices + value * x - n * softplus(x)

    def entropy(self) -> Tensor:
        total = int(self.total_count.max().item())
        if not bool((self.total_count.min() == total).item()):
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        total = int(self.total_count.max().item())
        if not bool((self.total_count.min() == total).item()):
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = T["arange"](1 + total, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class Poisson(ExponentialFamily):
    """The number of events in a time in which `rate` of them are expected."""

    rate: Any

    arg_constraints: ClassVar[Any] = {"rate": constraints.nonnegative}
    support: Any = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return T["poisson"](self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        rate, value = broadcast_all(self.rate, self._checked(value))
        return T["xlogy"](value, rate) - rate - T["lgamma"](value + 1)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return x.exp()


class NegativeBinomial(_OfProbability):
    """The number of successes, each of probability `probs`, before `total_count` (nonnegative) failures."""

    total_count: Any
    arg_constraints: ClassVar[Any] = {
        "total_count": constraints.nonnegative, "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }  # fmt: skip
    support: Any = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (count,) = self._set(probs, logits, (total_count,))
        self.total_count = count.to(self._param.dtype)
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / T["sigmoid"](-self.logits)

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        rate = (log_standard_gamma(self.total_count.expand(shape)) + self.logits).exp()
        return T["poisson"](rate)

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        n, log_sigmoid, lgamma = self.total_count, FUNCTIONS["nn.functional"]["logsigmoid"], T["lgamma"]
        ways = lgamma(n + value) - lgamma(1.0 + value) - lgamma(n)
        ways = T["where"](n + value == 0, 0.0, ways)
        return n * log_sigmoid(-self.logits) + value * log_sigmoid(self.logits) + ways
