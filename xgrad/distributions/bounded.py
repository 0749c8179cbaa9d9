"""Kumaraswamy, ContinuousBernoulli, VonMises: distributions of numbers in an interval, or of angles."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from ..dispatch.call import call
from ..dispatch.operator import Operator
from ..dispatch.tables import FUNCTIONS
from ..random import next_key
from ..tensor import Tensor, from_foreign
from . import constraints
from .discrete import _OfProbability
from .distribution import Distribution, from_0_to_1, zero_beyond
from .exp_family import ExponentialFamily
from .tailed import _ByQuantiles
from .utils import T, broadcast_all, clamp_probs, euler_constant, lazy_property, logits_to_probs, without_grad

__all__ = ["ContinuousBernoulli", "Kumaraswamy", "VonMises"]


class Kumaraswamy(_ByQuantiles):
    """The Kumaraswamy distribution on (0, 1): a·b·x^(a - 1)·(1 - x^a)^(b - 1), much like a beta distribution."""

    concentration1: Any
    concentration0: Any
    arg_constraints: ClassVar[Any] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    support: Any = constraints.unit_interval
    _like = "concentration1"

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.size(), validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        first, b, lgamma = 1 + n / self.concentration1, self.concentration0, T["lgamma"]
        return b * (lgamma(first) + lgamma(b) - lgamma(first + b)).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """The highest place, ((a - 1)/(a·b - 1))^(1/a); nan where a or b is below 1.

        PyTorch 2.13 has the logarithm of a negative number here, and so nan for most parameters.
        """
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & (a * b > 1)
        safe_a, safe_b = T["where"](inside, a, 2.0), T["where"](inside, b, 2.0)
        mode = ((safe_a - 1) / (safe_a * safe_b - 1)).pow(safe_a.reciprocal())
        return T["where"](inside, mode, math.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.pow(2)

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a.log() + b.log() + T["xlogy"](a - 1, value) + FUNCTIONS["special"]["xlog1py"](b - 1, -value.pow(a))

    @from_0_to_1
    def cdf(self, value: Tensor) -> Tensor:
        return 1 - (1 - value.pow(self.concentration1)).pow(self.concentration0)

    def icdf(self, value: Tensor) -> Tensor:
        power = (1 - value).pow(self.concentration0.reciprocal())
        # Near 0 without cancellation; near 1, where log1p has an infinite slope, by the power.
        near = (value < 0.5) | (power > 0.5)
        rest = -T["expm1"](T["log1p"](-T["where"](near, value, 0.0)) / self.concentration0)
        rest = T["where"](near, rest, 1 - power)
        return rest.pow(self.concentration1.reciprocal())

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = T["digamma"](b + 1) + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class ContinuousBernoulli(_OfProbability, _ByQuantiles, ExponentialFamily):
    """The density on [0, 1] that grows as probs^x·(1 - probs)^(1 - x) (https://arxiv.org/abs/1907.06845).

    Near a probability of 1/2, between `lims`, series take the place of formulas that are 0/0 there.

    >>> import xgrad
    >>> p = xgrad.distributions.ContinuousBernoulli(xgrad.tensor([0.2, 0.5]))
    >>> p.log_prob(xgrad.tensor(0.5)), p.mean
    (tensor([-0.0788,  0.0000]), tensor([0.3880, 0.5000]))
    """

    support: Any = constraints.unit_interval
    _like = "_param"
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._set(probs, logits)
        self._lims = lims
        Distribution.__init__(self, self._param.size(), validate_args=validate_args)
        if probs is not None:
            vars(self)["probs"] = self._param = clamp_probs(self._param)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        super()._expand_rest(new, shape)
        new._lims = self._lims

    @lazy_property
    def probs(self) -> Tensor:
        """The probability."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _away(self) -> tuple[Tensor, Tensor]:
        """Return where formulas hold, and probabilities for which they do."""
        low, high = self._lims
        away = (self.probs <= low) | (self.probs > high)
        return away, T["where"](away, self.probs, low)

    def _log_norm(self) -> Tensor:
        away, p = self._away()
        norm = (T["log1p"](-p) - p.log()).abs().log() - (1 - 2 * p).abs().log()
        x = (self.probs - 0.5).pow(2)
        return T["where"](away, norm, math.log(2) + (4 / 3 + 104 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        away, p = self._away()
        x = self.probs - 0.5
        mean = p / (2 * p - 1) + 1 / (T["log1p"](-p) - p.log())
        return T["where"](away, mean, 0.5 + (1 / 3 + 16 / 45 * x.pow(2)) * x)

    @property
    def variance(self) -> Tensor:
        away, p = self._away()
        x = (self.probs - 0.5).pow(2)
        variance = p * (p - 1) / (1 - 2 * p).pow(2) + (T["log1p"](-p) - p.log()).pow(-2)
        return T["where"](away, variance, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        logits, value = broadcast_all(self.logits, value)
        loss = FUNCTIONS["nn.functional"]["binary_cross_entropy_with_logits"]
        return self._log_norm() - loss(logits, value, reduction="none")

    def cdf(self, value: Tensor) -> Tensor:
        away, p = self._away()
        value = self._checked(value)
        inside = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        inside = T["where"](away, inside, value)
        return T["where"](value <= 0, 0.0, T["where"](value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        away, p = self._away()
        rest = T["log1p"](-p)
        inside = (T["log1p"](-p + value * (2 * p - 1)) - rest) / (p.log() - rest)
        return T["where"](away, inside, value)

    def entropy(self) -> Tensor:
        no, yes = T["log1p"](-self.probs), self.probs.log()
        return self.mean * (no - yes) - self._log_norm() - no

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        far, square = x.abs() > 0.3, x.pow(2)
        size = T["where"](far, x.abs(), 1.0)
        formula = x.clamp(min=0) + (-T["expm1"](-size)).log() - size.log()
        series = x / 2 + square * (1 / 24 - square * (1 / 2880 - square * (1 / 181440 - square / 9676800)))
        return T["where"](far, formula, series)


def _angles(key: Any, concentration: Any) -> Any:
    """Return draws about 0, by the rejection of D. J. Best and N. I. Fisher (1979).

    Any r > 1 is right, and theirs accepts most: its rounding does no harm.
    """
    k = jnp.maximum(concentration, 1e-6)  # below it the density is flat to rounding
    tau = 1 + jnp.sqrt(1 + 4 * k**2)
    rho = (tau - jnp.sqrt(2 * tau)) / (2 * k)
    r = jnp.where(k < 0.02, 1 / k + k, (1 + rho**2) / (2 * rho))

    def draw(carry: Any) -> Any:
        key, x, done = carry
        key, own = jax.random.split(key)
        u = jax.random.uniform(own, (3, *k.shape), k.dtype)
        z = jnp.cos(jnp.pi * u[0])
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        accept = (c * (2 - c) > u[1]) | (jnp.log(c / u[1]) + 1 - c >= 0)
        angle = jnp.sign(u[2] - 0.5) * jnp.arccos(jnp.clip(f, -1, 1))
        return key, jnp.where(accept & ~done, angle, x), done | accept

    start = key, jnp.zeros_like(k), jnp.isnan(k)
    return jax.lax.while_loop(lambda carry: ~carry[2].all(), draw, start)[1]


_ANGLES = Operator("angles", _angles, node="AnglesBackward0")


class VonMises(Distribution):
    """The von Mises distribution of angles: exp(concentration·cos(x - loc)) on the circle.

    The densities are of the Bessel functions themselves; PyTorch's are of polynomials that are 1e-7 near to them.
    """

    loc: Any
    concentration: Any
    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The direction."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance: 1 - E[cos(x - loc)]."""
        special = FUNCTIONS["special"]
        return 1 - special["i1e"](self.concentration) / special["i0e"](self.concentration)

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        concentration = self.concentration.expand(self._extended_shape(sample_shape))
        single = concentration.float() if concentration.dtype.itemsize < 4 else concentration
        drawn = call(_ANGLES, (from_foreign(next_key()), single), ()).to(concentration.dtype)
        return (drawn + math.pi + self.loc) % (2 * math.pi) - math.pi

    def log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        norm = math.log(2 * math.pi) + FUNCTIONS["special"]["i0e"](k).log()
        return k * (T["cos"](self._checked(value) - self.loc) - 1) - norm
