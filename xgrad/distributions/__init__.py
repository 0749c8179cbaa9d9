"""xgrad.distributions: probability distributions with gradients (PyTorch: torch.distributions).

Densities are written with xgrad's operators, and do not wrap a JAX library: so they are recorded, compiled and lazy
like any other code, in any order of derivative.  Numbers are drawn from xgrad's generator; `rsample` of gamma variates
has JAX's implicit gradient.
"""

from . import constraints as constraints
from . import kl_pairs as kl_pairs  # registers its pairs
from . import transforms as transforms
from .bounded import ContinuousBernoulli as ContinuousBernoulli
from .bounded import Kumaraswamy as Kumaraswamy
from .bounded import VonMises as VonMises
from .categorical import Categorical as Categorical
from .categorical import Multinomial as Multinomial
from .categorical import OneHotCategorical as OneHotCategorical
from .categorical import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
from .constraint_registry import biject_to as biject_to
from .constraint_registry import transform_to as transform_to
from .continuous import Cauchy as Cauchy
from .continuous import Exponential as Exponential
from .continuous import Gumbel as Gumbel
from .continuous import Laplace as Laplace
from .continuous import Normal as Normal
from .continuous import StudentT as StudentT
from .continuous import Uniform as Uniform
from .correlation import LKJCholesky as LKJCholesky
from .discrete import Bernoulli as Bernoulli
from .discrete import Binomial as Binomial
from .discrete import Geometric as Geometric
from .discrete import NegativeBinomial as NegativeBinomial
from .discrete import Poisson as Poisson
from .distribution import Distribution as Distribution
from .exp_family import ExponentialFamily as ExponentialFamily
from .gamma import Beta as Beta
from .gamma import Chi2 as Chi2
from .gamma import Dirichlet as Dirichlet
from .gamma import Gamma as Gamma
from .kl import kl_divergence as kl_divergence
from .kl import register_kl as register_kl
from .logistic_normal import LogisticNormal as LogisticNormal
from .low_rank import LowRankMultivariateNormal as LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal as MultivariateNormal
from .relaxed import RelaxedBernoulli as RelaxedBernoulli
from .relaxed import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from .tailed import FisherSnedecor as FisherSnedecor
from .tailed import GeneralizedPareto as GeneralizedPareto
from .tailed import InverseGamma as InverseGamma
from .tailed import Pareto as Pareto
from .tailed import Weibull as Weibull
from .transformed import HalfCauchy as HalfCauchy
from .transformed import HalfNormal as HalfNormal
from .transformed import Independent as Independent
from .transformed import LogNormal as LogNormal
from .transformed import MixtureSameFamily as MixtureSameFamily
from .transformed import TransformedDistribution as TransformedDistribution
from .transforms import *  # noqa: F403
from .transforms import __all__ as _transforms
from .wishart import Wishart as Wishart

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
