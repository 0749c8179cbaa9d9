"""Pareto, GeneralizedPareto, Weibull, InverseGamma, FisherSnedecor (F): distributions, most with a heavy tail."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..base.size import Size
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, beyond, from_0_to_1, zero_beyond
from .gamma import Gamma
from .utils import T, broadcast_all, euler_constant, open_uniform

__all__ = ["FisherSnedecor", "GeneralizedPareto", "InverseGamma", "Pareto", "Weibull"]


class _ByQuantiles(Distribution):
    """Draws are quantiles of uniform numbers."""

    has_rsample = True
    _like: str  # the parameter whose dtype the draws have

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.icdf(open_uniform(getattr(self, self._like), self._extended_shape(sample_shape)))


class Pareto(_ByQuantiles):
    """The Pareto distribution: alpha·scale^alpha / value^(alpha + 1) from `scale` on.

    >>> import xgrad
    >>> p = xgrad.distributions.Pareto(1.0, xgrad.tensor([2.0, 3.0]))
    >>> p.mean, p.log_prob(xgrad.tensor(1.0))
    (tensor([2.0000, 1.5000]), tensor([0.6931, 1.0986]))
    """

    scale: Any
    alpha: Any
    arg_constraints: ClassVar[Any] = {"alpha": constraints.positive, "scale": constraints.positive}
    _like = "scale"

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(self.scale.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        return self.alpha.log() + self.alpha * (self.scale / value).log() - value.log()

    @from_0_to_1
    def cdf(self, value: Tensor) -> Tensor:
        return 1 - (self.scale / value).pow(self.alpha)

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-T["log1p"](-value) / self.alpha).exp()

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class GeneralizedPareto(_ByQuantiles):
    """The generalized Pareto distribution of what lies above the threshold `loc`.

    A concentration above 0 gives a heavy tail, 0 an exponential one, and below 0 an end at loc - scale/concentration.
    """

    loc: Any
    scale: Any
    concentration: Any
    arg_constraints: ClassVar[Any] = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real,
    }  # fmt: skip
    _like = "loc"

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.size(), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        c = self.concentration
        upper = T["where"](c < 0, self.loc - self.scale / c, math.inf)
        return constraints.interval(self.loc, upper)

    def _exponential(self) -> tuple[Tensor, Tensor]:
        """Return where the concentration is 0, and a concentration that is 1 there."""
        zero = self.concentration.abs() <= 1e-8
        return zero, T["where"](zero, 1.0, self.concentration)

    @property
    def mean(self) -> Tensor:
        valid = self.concentration < 1
        mean = self.loc + self.scale / (1 - T["where"](valid, self.concentration, 0.5))
        return T["where"](valid, mean, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        valid = self.concentration < 0.5
        c = T["where"](valid, self.concentration, 0.25)
        return T["where"](valid, self.scale.pow(2) / ((1 - c).pow(2) * (1 - 2 * c)), math.nan)

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        zero, c = self._exponential()
        power = 1 / c + 1
        tail = T["where"](power == 0, 0.0, power * T["log1p"](c * z))
        return -self.scale.log() - T["where"](zero, z, tail)

    @beyond(0.0, -math.inf)
    def log_survival_function(self, value: Tensor) -> Tensor:
        """Return log(1 - cdf(value)), of the shape of value and batch."""
        z = (value - self.loc) / self.scale
        zero, c = self._exponential()
        return T["where"](zero, -z, -T["log1p"](c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """Return log(cdf(value)), of the shape of value and batch."""
        return T["log1p"](-self.log_survival_function(value).exp())

    def cdf(self, value: Tensor) -> Tensor:
        return -T["expm1"](self.log_survival_function(value))

    def icdf(self, value: Tensor) -> Tensor:
        zero, c = self._exponential()
        log = T["log1p"](-value)
        return self.loc + self.scale * T["where"](zero, -log, T["expm1"](-c * log) / c)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1


class Weibull(_ByQuantiles):
    """The Weibull distribution: scale·E^(1/concentration), for E of the exponential distribution."""

    scale: Any
    concentration: Any
    arg_constraints: ClassVar[Any] = {"scale": constraints.positive, "concentration": constraints.positive}
    support: Any = constraints.positive
    _like = "scale"

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        super().__init__(self.scale.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * T["lgamma"](1 + self.concentration.reciprocal()).exp()

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** k.reciprocal()

    @property
    def variance(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        spread = T["lgamma"](1 + 2 * inverse).exp() - (2 * T["lgamma"](1 + inverse)).exp()
        return self.scale.pow(2) * spread

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        k, z = self.concentration, value / self.scale
        return (k / self.scale).log() + (k - 1) * z.log() - z.pow(k)

    @from_0_to_1
    def cdf(self, value: Tensor) -> Tensor:
        return -T["expm1"](-((value / self.scale).pow(self.concentration)))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-T["log1p"](-value)).pow(self.concentration.reciprocal())

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return euler_constant * (1 - inverse) + (self.scale * inverse).log() + 1


class InverseGamma(Distribution):
    """The distribution of 1/x for gamma variates x with shape `concentration` and inverse scale `rate`."""

    concentration: Any
    rate: Any
    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return T["where"](a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return T["where"](a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return Gamma(self.concentration, self.rate, validate_args=False).rsample(sample_shape).reciprocal()

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return T["xlogy"](a, self.rate) - T["lgamma"](a) - (a + 1) * value.log() - self.rate / value

    @from_0_to_1
    def cdf(self, value: Tensor) -> Tensor:
        return FUNCTIONS["special"]["gammaincc"](self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + T["lgamma"](a) - (1 + a) * T["digamma"](a)


class FisherSnedecor(Distribution):
    """The F distribution: the ratio of chi-squared variates with `df1` and `df2` degrees, each by its degrees."""

    df1: Any
    df2: Any
    arg_constraints: ClassVar[Any] = {"df1": constraints.positive, "df2": constraints.positive}
    support: Any = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        df2 = T["where"](self.df2 <= 2, math.nan, self.df2)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return T["where"](self.df1 <= 2, math.nan, mode)

    @property
    def variance(self) -> Tensor:
        df1, df2 = self.df1, T["where"](self.df2 <= 4, math.nan, self.df2)
        return 2 * df2.pow(2) * (df1 + df2 - 2) / (df1 * (df2 - 2).pow(2) * (df2 - 4))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = Size(sample_shape)
        over, under = (Gamma(df * 0.5, df * 0.5, validate_args=False).rsample(shape) for df in (self.df1, self.df2))
        return over / under

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio, lgamma = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2, T["lgamma"]
        first = lgamma(a + b) - lgamma(a) - lgamma(b) + a * ratio.log() + (a - 1) * value.log()
        return first - (a + b) * T["log1p"](ratio * value)
