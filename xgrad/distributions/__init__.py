"""xgrad.distributions: probability distributions with gradients (PyTorch: torch.distributions).

Densities are written with xgrad's operators, and do not wrap a JAX library: so they are recorded, compiled and lazy
like any other code, in any order of derivative.  Numbers are drawn from xgrad's generator; `rsample` of gamma variates
has JAX's implicit gradient.
"""

from . import constraints, transforms
from . import kl_pairs as kl_pairs  # registers its pairs
from .bounded import ContinuousBernoulli, Kumaraswamy, VonMises
from .categorical import Categorical, Multinomial, OneHotCategorical, OneHotCategoricalStraightThrough
from .constraint_registry import biject_to, transform_to
from .continuous import Cauchy, Exponential, Gumbel, Laplace, Normal, StudentT, Uniform
from .correlation import LKJCholesky
from .discrete import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .gamma import Beta, Chi2, Dirichlet, Gamma
from .kl import kl_divergence, register_kl
from .logistic_normal import LogisticNormal
from .low_rank import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal
from .relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from .tailed import FisherSnedecor, GeneralizedPareto, InverseGamma, Pareto, Weibull
from .transformed import HalfCauchy, HalfNormal, Independent, LogNormal, MixtureSameFamily, TransformedDistribution
from .transforms import *  # noqa: F403
from .transforms import __all__ as _transforms
from .wishart import Wishart

__all__ = [
    "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet",
    "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto", "Geometric",
    "Gumbel",
    "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy", "LKJCholesky",
    "Laplace", "LogNormal", "LogisticNormal",
    "LowRankMultivariateNormal", "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial",
    "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "RelaxedBernoulli",
    "RelaxedOneHotCategorical", "StudentT", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart",
    "biject_to", "constraints", "kl_divergence", "register_kl", "transform_to", "transforms", *_transforms,
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
