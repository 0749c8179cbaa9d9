"""Registers KL divergences between distributions of two different classes (PyTorch: torch/distributions/kl.py).

A divergence is an expectation: -entropy(p) - E[log q(x)] for draws x of p.  The logarithm of a density is a sum of a
few functions of x, so a row for each p gives their means, and a row for each q makes the expectation of these.
"""

import math
from collections.abc import Callable
from typing import Any

from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from .bounded import ContinuousBernoulli
from .continuous import Exponential, Gumbel, Laplace, Normal, Uniform
from .discrete import Bernoulli, Binomial, Poisson
from .gamma import Beta, Gamma
from .kl import register_kl
from .tailed import Pareto
from .utils import T, euler_constant

__all__ = ["EXPECTED", "MEANS"]


def _mean_log(p: Any) -> Tensor:
    """Return E[log x] of a uniform distribution."""
    width = p.high - p.low
    return (T["xlogy"](p.high, p.high) - T["xlogy"](p.low, p.low)) / width - 1


def _mean_log_rest(p: Any) -> Tensor:
    """Return E[log(1 - x)] of a uniform distribution."""
    low, high = 1 - p.high, 1 - p.low
    return (T["xlogy"](high, high) - T["xlogy"](low, low)) / (p.high - p.low) - 1


# For each kind of p: the means of x, x², log x, log(1 - x), exp(-x/s).
MEANS: dict[type, dict[str, Callable[..., Tensor]]] = {
    Uniform: {
        "x": lambda p: (p.low + p.high) / 2,
        "x²": lambda p: (p.high.pow(2) + p.high * p.low + p.low.pow(2)) / 3,
        "log": _mean_log, "log rest": _mean_log_rest,
        "exp": lambda p, s: s / (p.high - p.low) * ((-p.low / s).exp() - (-p.high / s).exp()),
    },
    Beta: {
        "x": lambda p: p.mean, "x²": lambda p: p.variance + p.mean.pow(2),
        "log": lambda p: T["digamma"](p.concentration1) - T["digamma"](p.concentration1 + p.concentration0),
    },
    ContinuousBernoulli: {"x": lambda p: p.mean, "x²": lambda p: p.variance + p.mean.pow(2)},
    Exponential: {
        "x": lambda p: 1 / p.rate, "x²": lambda p: 2 / p.rate.pow(2), "log": lambda p: -p.rate.log() - euler_constant,
        "exp": lambda p, s: p.rate * s / (p.rate * s + 1),
    },
    Gamma: {
        "x": lambda p: p.concentration / p.rate,
        "x²": lambda p: p.concentration * (p.concentration + 1) / p.rate.pow(2),
        "exp": lambda p, s: (1 + 1 / (p.rate * s)).pow(-p.concentration),
    },
    Gumbel: {
        "x": lambda p: p.loc + p.scale * euler_constant,
        "x²": lambda p: (p.loc + p.scale * euler_constant).pow(2) + (math.pi * p.scale).pow(2) / 6,
    },
    Normal: {"exp": lambda p, s: (0.5 * (p.scale / s).pow(2) - p.loc / s).exp(), "x": lambda p: p.loc},
    Pareto: {
        "x": lambda p: p.alpha * p.scale / (p.alpha - 1), "x²": lambda p: p.alpha * p.scale.pow(2) / (p.alpha - 2),
        "log": lambda p: p.scale.log() + 1 / p.alpha,
    },
}  # fmt: skip
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def _of_normal(q: Any, mean: Any, p: Any) -> Tensor:
    square = mean["x²"](p) - 2 * q.loc * mean["x"](p) + q.loc.pow(2)
    return -q.scale.log() - _HALF_LOG_2PI - square / (2 * q.scale.pow(2))


def _of_gamma(q: Any, mean: Any, p: Any) -> Tensor:
    a = q.concentration
    return a * q.rate.log() - T["lgamma"](a) + (a - 1) * mean["log"](p) - q.rate * mean["x"](p)


def _of_gumbel(q: Any, mean: Any, p: Any) -> Tensor:
    s = q.scale
    return -s.log() - (mean["x"](p) - q.loc) / s - (q.loc / s).exp() * mean["exp"](p, s)


def _of_beta(q: Any, mean: Any, p: Any) -> Tensor:
    a, b, lgamma = q.concentration1, q.concentration0, T["lgamma"]
    norm = lgamma(a) + lgamma(b) - lgamma(a + b)
    return (a - 1) * mean["log"](p) + (b - 1) * mean["log rest"](p) - norm


# For each kind of q: the mean of its log-density.
EXPECTED: dict[type, Callable[..., Tensor]] = {
    Normal: _of_normal, Gamma: _of_gamma, Gumbel: _of_gumbel, Beta: _of_beta,
    Exponential: lambda q, mean, p: q.rate.log() - q.rate * mean["x"](p),
    ContinuousBernoulli: lambda q, mean, p: mean["x"](p) * q.logits + T["log1p"](-q.probs) + q._log_norm(),
    Uniform: lambda q, mean, p: -(q.high - q.low).log(),
    Pareto: lambda q, mean, p: q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * mean["log"](p),
}  # fmt: skip


def _beyond(p: Any, q: Any) -> Tensor:
    """Return where draws of p, which lie between 0 and 1, are outside of q's support."""
    return (q.low > 0) | (q.high < 1)


# The pairs, and where the divergence is infinite.  PyTorch has infinity for Uniform and ContinuousBernoulli with
# equal ends, too: there the densities are positive together, and this is the finite divergence.
_FINITE: dict[tuple[type, type], Callable[[Any, Any], Tensor] | None] = {
    (Beta, ContinuousBernoulli): None, (Beta, Exponential): None, (Beta, Gamma): None, (Beta, Normal): None,
    (Beta, Uniform): _beyond,
    (ContinuousBernoulli, Exponential): None, (ContinuousBernoulli, Normal): None,
    (ContinuousBernoulli, Uniform): _beyond,
    (Exponential, Gumbel): None, (Gamma, Gumbel): None, (Gamma, Normal): None, (Gumbel, Normal): None,
    (Normal, Gumbel): None,
    (Pareto, Exponential): lambda p, q: p.alpha <= 1,
    (Pareto, Gamma): lambda p, q: p.alpha <= 1,
    (Pareto, Normal): lambda p, q: p.alpha <= 2,
    (Uniform, Beta): lambda p, q: (p.low < 0) | (p.high > 1),
    (Uniform, ContinuousBernoulli): lambda p, q: (p.low < 0) | (p.high > 1),
    (Uniform, Exponential): lambda p, q: p.low < 0,
    (Uniform, Gamma): lambda p, q: p.low < 0,
    (Uniform, Gumbel): None,
    (Uniform, Pareto): lambda p, q: p.low < q.scale,
}  # fmt: skip


def _register(type_p: type, type_q: type, infinite: Callable[[Any, Any], Tensor] | None) -> None:
    means, expected = MEANS[type_p], EXPECTED[type_q]

    @register_kl(type_p, type_q)
    def divergence(p: Any, q: Any) -> Tensor:
        found = -p.entropy() - expected(q, means, p)
        return found if infinite is None else T["where"](infinite(p, q), math.inf, found)


for (_p, _q), _where in _FINITE.items():
    _register(_p, _q, _where)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Tensor:
    distance = (p.loc - q.loc) / p.scale
    far = distance * FUNCTIONS["special"]["erf"](distance / math.sqrt(2))
    near = math.sqrt(2 / math.pi) * (-0.5 * distance.pow(2)).exp()  # E|x - loc| in units of p.scale
    return (far + near) * p.scale / q.scale + (2 * q.scale).log() - p.entropy()


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - p.probs * q.rate.log() + q.rate  # log x! is 0 for both values of p


# Where p has values that q has not, whatever their parameters: the parameter whose shape the infinite result has.
_INFINITE: dict[type, tuple[str, tuple[type, ...]]] = {
    Beta: ("concentration1", (Pareto,)),
    ContinuousBernoulli: ("probs", (Pareto,)),
    Exponential: ("rate", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gamma: ("concentration", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gumbel: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Laplace: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Normal: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Pareto: ("scale", (Beta, ContinuousBernoulli, Uniform)),
    Poisson: ("rate", (Bernoulli, Binomial)),
}


def _infinite(name: str) -> Callable[[Any, Any], Tensor]:
    def divergence(p: Any, q: Any) -> Tensor:
        return T["full_like"](getattr(p, name), math.inf)

    return divergence


for _p, (_name, _others) in _INFINITE.items():
    for _q in _others:
        register_kl(_p, _q)(_infinite(_name))
