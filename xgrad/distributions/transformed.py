"""TransformedDistribution, Independent, MixtureSameFamily, LogNormal, HalfNormal, ...: distributions made of others."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from ..base.size import Size
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from . import constraints
from .categorical import Categorical
from .continuous import Cauchy, Normal
from .distribution import Distribution, from_0_to_1
from .transforms import AbsTransform, ComposeTransform, ExpTransform, Transform
from .utils import T, sum_rightmost, without_grad

__all__ = ["HalfCauchy", "HalfNormal", "Independent", "LogNormal", "MixtureSameFamily", "TransformedDistribution"]


class Independent(Distribution):
    """A distribution whose last batch dimensions are part of one draw.

    >>> import xgrad
    >>> from xgrad.distributions import Independent, Normal
    >>> p = Independent(Normal(xgrad.zeros(2, 3), 1.0), 1)
    >>> p.batch_shape, p.event_shape, p.log_prob(xgrad.zeros(2, 3)).shape
    (xgrad.Size([2]), xgrad.Size([3]), xgrad.Size([2]))
    """

    base_dist: Distribution
    reinterpreted_batch_ndims: Any

    arg_constraints: ClassVar[Any] = {}

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch, event, dims = base_distribution.batch_shape, base_distribution.event_shape, reinterpreted_batch_ndims
        if dims > len(batch):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual "
                f"{dims} vs {len(batch)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, dims
        cut = len(batch) - dims
        super().__init__(batch[:cut], (*batch[cut:], *event), validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        inner = self._event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*shape, *inner))
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims

    @property
    def has_rsample(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        support: Any = self.base_dist.support
        dims = self.reinterpreted_batch_ndims
        return constraints.independent(support, dims) if dims else support

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of `transform(x)`, for draws x of a base distribution and one transform or a list of them.

    >>> import xgrad
    >>> from xgrad.distributions import Normal, TransformedDistribution
    >>> from xgrad.distributions.transforms import ExpTransform
    >>> p = TransformedDistribution(Normal(0.0, 1.0), ExpTransform())
    >>> p.log_prob(xgrad.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints: ClassVar[Any] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        if isinstance(transforms, Transform):
            transforms = [transforms]
        if not isinstance(transforms, list) or not all(isinstance(t, Transform) for t in transforms):
            raise ValueError(f"transforms must be a Transform or a list of Transforms, but was {transforms}")
        self.transforms: list[Transform] = transforms
        whole = ComposeTransform(transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        dims = len(base_distribution.event_shape)
        if len(shape) < whole.domain.event_dim:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, but got {shape}."
            )
        forward = Size(whole.forward_shape(shape))
        expanded = Size(whole.inverse_shape(forward))
        if shape != expanded:
            base_distribution = base_distribution.expand(expanded[: len(expanded) - dims])
        if whole.domain.event_dim > dims:
            base_distribution = Independent(base_distribution, whole.domain.event_dim - dims)
        self.base_dist: Any = base_distribution
        event = max(whole.codomain.event_dim, dims + whole.codomain.event_dim - whole.domain.event_dim)
        cut = len(forward) - event
        super().__init__(forward[:cut], forward[cut:], validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        before = shape + self._event_shape
        for transform in reversed(self.transforms):
            before = Size(transform.inverse_shape(before))
        new.base_dist = self.base_dist.expand(before[: len(before) - len(self.base_dist.event_shape)])
        new.transforms = self.transforms

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support, dims = self.transforms[-1].codomain, len(self._event_shape)
        return constraints.independent(support, dims - support.event_dim) if dims > support.event_dim else support

    @property
    def has_rsample(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base_dist.has_rsample

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        dims, total, y = len(self._event_shape), 0.0, self._checked(value)
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            jacobian = transform.log_abs_det_jacobian(x, y)
            total = total - sum_rightmost(jacobian, dims - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))

    def _rising(self, value: Tensor) -> Tensor:
        """Return 1 - value where the transforms fall."""
        sign = math.prod(transform.sign for transform in self.transforms)
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._rising(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._rising(value)))


class LogNormal(TransformedDistribution):
    """The distribution of exp(x) for x of Normal(loc, scale)."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.positive
    has_rsample: Any = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        squared = self.scale.pow(2)
        return T["expm1"](squared) * (2 * self.loc + squared).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class _Half(TransformedDistribution):
    """The absolute value of a distribution around 0."""

    arg_constraints: ClassVar[Any] = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample: Any = True
    _of: Any

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(self._of(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale."""
        return self.base_dist.scale

    @property
    def mode(self) -> Tensor:
        return T["zeros_like"](self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        found = self.base_dist.log_prob(self._checked(value)) + math.log(2)
        return T["where"](value >= 0, found, -math.inf)

    @from_0_to_1
    def cdf(self, value: Tensor) -> Tensor:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """The distribution of |x| for x of Normal(0, scale)."""

    _of = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The distribution of |x| for x of Cauchy(0, scale); it has no mean."""

    _of = Cauchy

    @property
    def mean(self) -> Tensor:
        return T["full_like"](self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance


class MixtureSameFamily(Distribution):
    """A mixture of the distributions along the last batch dimension of `component_distribution`.

    mixture_distribution: a Categorical with their probabilities.  Raises `ValueError` for shapes that don't fit.

    >>> import xgrad
    >>> from xgrad.distributions import Categorical, MixtureSameFamily, Normal
    >>> p = MixtureSameFamily(Categorical(xgrad.ones(2)), Normal(xgrad.tensor([-1.0, 1.0]), 0.5))
    >>> p.mean, p.variance
    (tensor(0.), tensor(1.2500))
    """

    arg_constraints: ClassVar[Any] = {}

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of Distribution")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        weights, batch = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        if any(a != 1 and b != 1 and a != b for a, b in zip(reversed(weights), reversed(batch))):
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({weights}) is not compatible with "
                f"`component_distribution.batch_shape`({batch})"
            )
        known, components = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if known != components:
            raise ValueError(
                f"`mixture_distribution component` ({known}) does not equal `component_distribution.batch_shape[-1]` "
                f"({components})"
            )
        self._num_component = known
        event = component_distribution.event_shape
        self._event_ndims = len(event)
        super().__init__(batch, event, validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        new._component_distribution = self._component_distribution.expand((*shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @constraints.dependent_property
    def support(self) -> Any:
        support: Any = self._component_distribution.support
        return constraints.MixtureSameFamilyConstraint(support)

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def _weighted(self, value: Tensor) -> Tensor:
        probs = self._mixture_distribution.probs
        probs = probs.reshape((*probs.shape, *[1] * self._event_ndims))
        return (probs * value).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        parts = self._component_distribution
        return self._weighted(parts.variance) + self._weighted((parts.mean - self._pad(self.mean)).pow(2.0))

    def cdf(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (self._component_distribution.cdf(self._pad(x)) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        parts = self._component_distribution.log_prob(self._pad(self._checked(x)))
        weights = FUNCTIONS["nn.functional"]["log_softmax"](self._mixture_distribution.logits, dim=-1)
        return T["logsumexp"](parts + weights, -1)

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        dim = len(sample_shape) + len(self._batch_shape)
        which = self._mixture_distribution.expand(self._batch_shape).sample(sample_shape)
        parts = self._component_distribution.sample(sample_shape)
        index = which.reshape((*which.shape, *[1] * (self._event_ndims + 1)))
        return parts.gather(dim, index.expand((*which.shape, 1, *self._event_shape))).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
