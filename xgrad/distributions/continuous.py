"""Normal, Laplace, Cauchy, Gumbel, StudentT, Uniform, Exponential: distributions of one real number."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..base.dtype_info import finfo
from ..base.size import Size
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, from_0_to_1, zero_beyond
from .exp_family import ExponentialFamily
from .utils import T, broadcast_all, euler_constant, like, log_standard_gamma, open_uniform, value_is_traced

__all__ = ["Cauchy", "Exponential", "Gumbel", "Laplace", "Normal", "StudentT", "Uniform"]

_LOCATED = {"loc": constraints.real, "scale": constraints.positive}


class _Located(Distribution):
    """A location, a scale, and what is drawn and computed of (value - loc) / scale."""

    arg_constraints: ClassVar[Any] = _LOCATED
    support: Any = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.loc + self.scale * self._standard(self._extended_shape(sample_shape))

    def _standard(self, shape: Size) -> Tensor:
        raise NotImplementedError

    def _centered(self, value: Any) -> Tensor:
        return (self._checked(value) - self.loc) / self.scale


class Normal(_Located, ExponentialFamily):
    """The normal distribution with mean `loc` and standard deviation `scale`.

    >>> import xgrad
    >>> from xgrad.distributions import Normal
    >>> loc = xgrad.tensor([0.0, 1.0], requires_grad=True)
    >>> p = Normal(loc, 2.0)
    >>> p.rsample((3,)).shape
    xgrad.Size([3, 2])
    >>> p.log_prob(xgrad.zeros(2)).sum().backward()
    >>> loc.grad
    tensor([ 0.0000, -0.2500])
    """

    support: Any = constraints.real
    _mean_carrier_measure = 0

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2

    def _standard(self, shape: Size) -> Tensor:
        return like(self.loc, shape, "randn")

    def log_prob(self, value: Tensor) -> Tensor:
        return -(self._centered(value) ** 2) / 2 - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + T["erf"](self._centered(value) / math.sqrt(2)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * T["erfinv"](2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.loc / self.scale.pow(2), -0.5 / self.scale.pow(2)

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return -0.25 * x.pow(2) / y + 0.5 * (-math.pi / y).log()


class Laplace(_Located):
    """The Laplace distribution: exp(-|value - loc| / scale) / (2·scale)."""

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def _standard(self, shape: Size) -> Tensor:
        u = 2 * open_uniform(self.loc, shape) - 1
        return -u.sign() * T["log1p"](-u.abs().clamp(max=1 - finfo(u.dtype).eps))

    def log_prob(self, value: Tensor) -> Tensor:
        return -(2 * self.scale).log() - self._centered(value).abs()

    def cdf(self, value: Tensor) -> Tensor:
        x = self._centered(value)
        return 0.5 - 0.5 * x.sign() * T["expm1"](-x.abs())

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * T["log1p"](-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(_Located):
    """The Cauchy distribution, of median `loc` and half width `scale`; it has no mean."""

    @property
    def mean(self) -> Tensor:
        return T["full_like"](self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return T["full_like"](self.loc, math.inf)

    def _standard(self, shape: Size) -> Tensor:
        return T["tan"](math.pi * (open_uniform(self.loc, shape) - 0.5))

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - T["log1p"](self._centered(value) ** 2)

    def cdf(self, value: Tensor) -> Tensor:
        return T["atan"](self._centered(value)) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return T["tan"](math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(_Located):
    """The Gumbel distribution, of the largest of many draws."""

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2

    def _standard(self, shape: Size) -> Tensor:
        return -(-open_uniform(self.loc, shape).log()).log()

    def log_prob(self, value: Tensor) -> Tensor:
        y = -self._centered(value)
        return y - y.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return (-(-self._centered(value)).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)


class StudentT(_Located):
    """Student's t-distribution with `df` degrees of freedom."""

    df: Any
    loc: Any
    scale: Any

    arg_constraints: ClassVar[Any] = {"df": constraints.positive, **_LOCATED}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        Distribution.__init__(self, self.df.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return T["where"](self.df > 1, self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        df = self.df
        finite = self.scale**2 * df / T["where"](df > 2, df - 2, 1.0)
        return T["where"](df > 2, finite, T["where"](df > 1, math.inf, math.nan))

    def _standard(self, shape: Size) -> Tensor:
        gamma = log_standard_gamma((self.df / 2).expand(shape)).exp()
        chi2 = 2 * gamma.clamp(min=finfo(gamma.dtype).tiny)
        return like(self.loc, shape, "randn") * (chi2 / self.df) ** -0.5

    def log_prob(self, value: Tensor) -> Tensor:
        y, df = self._centered(value), self.df
        norm = self.scale.log() + 0.5 * df.log() + 0.5 * math.log(math.pi)
        norm = norm + T["lgamma"](0.5 * df) - T["lgamma"](0.5 * (df + 1))
        return -0.5 * (df + 1) * T["log1p"](y**2 / df) - norm

    def entropy(self) -> Tensor:
        df = self.df
        log_beta = T["lgamma"](0.5 * df) + math.lgamma(0.5) - T["lgamma"](0.5 * (df + 1))
        digammas = T["digamma"](0.5 * (df + 1)) - T["digamma"](0.5 * df)
        return self.scale.log() + 0.5 * (df + 1) * digammas + 0.5 * df.log() + log_beta


class Uniform(Distribution):
    """The uniform distribution on [low, high)."""

    high: Any
    low: Any

    arg_constraints: ClassVar[Any] = dict.fromkeys(
        ("low", "high"), constraints.dependent(is_discrete=False, event_dim=0)
    )
    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.size(), validate_args=validate_args)
        known = not (value_is_traced(self.low) or value_is_traced(self.high))
        if self._validate_args and known and not bool((self.low < self.high).all()):
            raise ValueError(
                f"Expected parameter low of a Uniform to be below high, but found invalid values:\n{self.low}, "
                f"{self.high}"
            )

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return math.nan * self.high

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.low + like(self.low, self._extended_shape(sample_shape), "rand") * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        inside = ((self.low <= value) & (value < self.high)).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        return ((self._checked(value) - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()


class Exponential(ExponentialFamily):
    """The exponential distribution: rate·exp(-rate·value)."""

    rate: Any

    arg_constraints: ClassVar[Any] = {"rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return T["zeros_like"](self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return -T["log1p"](-like(self.rate, self._extended_shape(sample_shape), "rand")) / self.rate

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        return self.rate.log() - self.rate * value

    @from_0_to_1
    def cdf(self, value: Tensor) -> Tensor:
        return -T["expm1"](-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -T["log1p"](-value) / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return -(-x).log()
