"""kl_divergence: computes a divergence by a closed form that `register_kl` registered (torch/distributions/kl.py)."""

import math
import warnings
from collections.abc import Callable
from typing import Any

from ..config import settings
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from .bounded import ContinuousBernoulli
from .categorical import Categorical, OneHotCategorical
from .continuous import Cauchy, Exponential, Gumbel, Laplace, Normal, Uniform
from .discrete import Bernoulli, Binomial, Geometric, Poisson
from .distribution import Distribution
from .exp_family import ExponentialFamily, bregman_divergence
from .gamma import Beta, Dirichlet, Gamma
from .low_rank import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal, solve_lower
from .tailed import InverseGamma, Pareto
from .transformed import HalfNormal, Independent, TransformedDistribution
from .utils import T, euler_constant, softplus, sum_rightmost, value_is_traced

__all__ = ["kl_divergence", "register_kl"]

_TABLE: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}
_FOUND: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}  # what `_find` has found


def register_kl(type_p: type, type_q: type) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Return a decorator: the function (p, q) gives the divergence of distributions of these types, and of subclasses.

    Raises `TypeError` for types that are not distributions.

    >>> from xgrad.distributions import Normal, kl_divergence, register_kl
    >>> class Mine(Normal):
    ...     pass
    >>> @register_kl(Mine, Normal)
    ... def _(p, q):
    ...     return p.loc * 0
    >>> kl_divergence(Mine(1.0, 1.0), Normal(0.0, 1.0))
    tensor(0.)
    """
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        _TABLE[type_p, type_q] = function
        _FOUND.clear()
        settings.changed()
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return the Kullback-Leibler divergence ∫ p·log(p/q), of the shape of the batches.

    The function for the nearest classes of both is taken, p's before q's; a RuntimeWarning says where q's before p's
    would be another one.  Raises `NotImplementedError` if there is none.

    >>> from xgrad.distributions import Normal, kl_divergence
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    kinds = type(p), type(q)
    function = _FOUND.get(kinds)
    if function is None:
        function = _FOUND[kinds] = _find(*kinds)
    return function(p, q)


def _find(type_p: type, type_q: type) -> Callable[[Any, Any], Tensor]:
    pairs = [(a, b) for a in type_p.__mro__ for b in type_q.__mro__ if (a, b) in _TABLE]
    if not pairs:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {type_p.__name__} and q type {type_q.__name__}"
        )
    nearest, order = pairs[0], type_q.__mro__
    other = min(pairs, key=lambda pair: order.index(pair[1]))  # the first of those with the nearest class of q
    if _TABLE[nearest] is not _TABLE[other]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({nearest[0].__name__}, {other[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _TABLE[nearest]


register_kl(ExponentialFamily, ExponentialFamily)(bregman_divergence)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    one = T["where"](p.probs == 0, 0.0, T["where"](q.probs == 0, math.inf, one))
    zero = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return one + T["where"](p.probs == 1, 0.0, T["where"](q.probs == 1, math.inf, zero))


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    fewer, more = p.total_count < q.total_count, p.total_count > q.total_count
    if not value_is_traced(fewer) and bool(fewer.any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    found = p.total_count * (p.probs * (p.logits - q.logits) + T["log1p"](-p.probs) - T["log1p"](-q.probs))
    return T["where"](more, math.inf, T["where"](fewer, math.nan, found))  # nan where no error can be raised


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    term = p.probs * (p.logits - q.logits)
    term = T["where"]((q.probs == 0).expand(term.shape), math.inf, term)
    return T["where"]((p.probs == 0).expand(term.shape), 0.0, term).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - T["log1p"](-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio = p.scale / q.scale
    near, far = q.loc / q.scale, p.loc / q.scale
    term = (near - far + T["lgamma"](1 + ratio)).exp()
    return -ratio.log() - near + far + ratio * euler_constant + term - (1 + euler_constant)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log() + T["lgamma"](b) - T["lgamma"](a) + (a - b) * T["digamma"](a)
        + (q.rate - p.rate) * (a / p.rate)
    )  # fmt: skip


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Tensor:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = T["lgamma"](total) - T["lgamma"](b.sum(-1)) + (T["lgamma"](b) - T["lgamma"](a)).sum(-1)
    return norms + ((a - b) * (T["digamma"](a) - T["digamma"](total).unsqueeze(-1))).sum(-1)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return T["where"]((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p: Any, q: Any) -> Tensor:
    if p.event_shape != q.event_shape:
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed"
        )
    n, batch = p.event_shape[0], T["broadcast_shapes"](p.batch_shape, q.batch_shape)
    ours, theirs = (d._unbroadcasted_scale_tril.expand((*batch, n, n)) for d in (p, q))
    traces = FUNCTIONS["linalg"]["solve_triangular"](theirs, ours, upper=False).pow(2).sum((-2, -1))
    distance = solve_lower(theirs, (q.loc - p.loc).expand((*batch, n))).pow(2).sum(-1)
    return q._half_log_det() - p._half_log_det() + 0.5 * (traces + distance - n)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            "KL of Independents with different numbers of reinterpreted batch dimensions is not implemented"
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL of distributions with different transforms is not implemented")
    extra = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), extra)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return (
        -q.concentration * ratio.log()
        + ratio
        + T["lgamma"](q.concentration)
        + q.concentration * euler_constant
        - (1 + euler_constant)
    )


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Tensor:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Tensor:
    width = p.high - p.low
    log_density = (math.sqrt(2 * math.pi) * q.scale / width).log()
    square = (width.pow(2) / 12 + ((p.high + p.low - 2 * q.loc) / 2).pow(2)) / (2 * q.scale.pow(2))
    return log_density + square


@register_kl(Exponential, Normal)
def _exponential_normal(p: Any, q: Any) -> Tensor:
    variance, rate = q.scale.pow(2), p.rate.pow(2)
    first = 0.5 * (rate * variance * 2 * math.pi).log()
    return first - 1 + (1 / rate - q.loc / p.rate + q.loc.pow(2) / 2) / variance


@register_kl(Laplace, Normal)
def _laplace_normal(p: Any, q: Any) -> Tensor:
    variance = q.scale.pow(2)
    ratio = p.scale.pow(2) / variance
    return -0.5 * (2 * ratio / math.pi).log() + ratio + 0.5 * (p.loc - q.loc).pow(2) / variance - 1


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return T["where"](p.scale < q.scale, math.inf, found)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    own = p._log_norm() + T["log1p"](-p.probs)
    return p.mean * (p.logits - q.logits) + own - q._log_norm() - T["log1p"](-q.probs)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p: Any, q: Any) -> Tensor:
    solved = q._solved()  # the inverse of q's covariance is D⁻¹ - solvedᵀ·solved
    traces = (p.cov_diag / q.cov_diag).sum(-1) + (p.cov_factor.pow(2) / q.cov_diag.unsqueeze(-1)).sum((-2, -1))
    traces = traces - (solved.pow(2) * p.cov_diag.unsqueeze(-2)).sum((-2, -1))
    traces = traces - (solved @ p.cov_factor).pow(2).sum((-2, -1))
    return 0.5 * (q._log_det() - p._log_det() + q._distance(q.loc - p.loc) - p.event_shape[0] + traces)


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _of_low_rank(p: Any, q: Any) -> Tensor:
    factor, solved = p._unbroadcasted_scale_tril, q._solved()
    traces = (factor.pow(2) / q.cov_diag.unsqueeze(-1)).sum((-2, -1)) - (solved @ factor).pow(2).sum((-2, -1))
    gap = q._log_det() - 2 * p._half_log_det() + q._distance(q.loc - p.loc)
    return 0.5 * (gap - p.event_shape[0] + traces)


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _from_low_rank(p: Any, q: Any) -> Tensor:
    solve, factor = FUNCTIONS["linalg"]["solve_triangular"], q._unbroadcasted_scale_tril
    batch = T["broadcast_shapes"](p.batch_shape, q.batch_shape)
    parts = factor, p.cov_factor, T["diag_embed"](p.cov_diag.sqrt()), (q.loc - p.loc).unsqueeze(-1)
    factor, *parts = (x.expand((*batch, *x.shape[-2:])) for x in parts)
    traces = solve(factor, T["cat"](parts, -1), upper=False).pow(2).sum((-2, -1))
    return 0.5 * (2 * q._half_log_det() - p._log_det() - p.event_shape[0] + traces)


@register_kl(InverseGamma, InverseGamma)
def _inverse_gamma(p: Any, q: Any) -> Tensor:
    p, q = (Gamma(d.concentration, d.rate, validate_args=False) for d in (p, q))
    return kl_divergence(p, q)
