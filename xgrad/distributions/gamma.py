"""Gamma, Chi2, Beta, Dirichlet: distributions that are drawn from gamma variates, with implicit gradients."""

from collections.abc import Sequence
from typing import Any, ClassVar

from ..base.dtype_info import finfo
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, from_0_to_1, zero_beyond
from .exp_family import ExponentialFamily
from .utils import T, broadcast_all, log_standard_gamma

__all__ = ["Beta", "Chi2", "Dirichlet", "Gamma"]


class Gamma(ExponentialFamily):
    """The gamma distribution with shape `concentration` and inverse scale `rate`."""

    concentration: Any
    rate: Any

    arg_constraints: ClassVar[Any] = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = log_standard_gamma(self.concentration.expand(shape)).exp() / self.rate
        return drawn.clamp(min=finfo(drawn.dtype).tiny)

    def _checked(self, value: Any) -> Tensor:
        return super()._checked(T["as_tensor"](value, dtype=self.rate.dtype, device=self.rate.device))

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return T["xlogy"](a, rate) + T["xlogy"](a - 1, value) - rate * value - T["lgamma"](a)

    @from_0_to_1
    def cdf(self, value: Tensor) -> Tensor:
        return FUNCTIONS["special"]["gammainc"](self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + T["lgamma"](a) + (1.0 - a) * T["digamma"](a)

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return T["lgamma"](x + 1) - (x + 1) * (-y).log()


class Chi2(Gamma):
    """The chi-squared distribution with `df` degrees of freedom."""

    concentration: Any
    rate: Any

    arg_constraints: ClassVar[Any] = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (degrees,) = broadcast_all(df)
        self.concentration, self.rate = broadcast_all(0.5 * degrees, 0.5)
        Distribution.__init__(self, self.concentration.size(), validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2

    def _expand_rest(self, new: Any, shape: Any) -> None:
        new.concentration, new.rate = self.concentration.expand(shape), self.rate.expand(shape)


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution on vectors of probabilities.

    >>> import xgrad
    >>> concentration = xgrad.tensor([0.5, 0.5, 2.0], requires_grad=True)
    >>> p = xgrad.distributions.Dirichlet(concentration)
    >>> p.batch_shape, p.event_shape
    (xgrad.Size([]), xgrad.Size([3]))
    >>> p.rsample().requires_grad
    True
    """

    arg_constraints: ClassVar[Any] = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        least = (self.concentration - 1).clamp(min=0.0)
        mode = least / least.sum(-1, True)
        corner = (self.concentration < 1).all(dim=-1, keepdim=True)
        peak = self.concentration == self.concentration.max(-1, True)[0]
        first = peak & (peak.cumsum(-1) == 1)
        return T["where"](corner, first.to(mode.dtype), mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        logs = log_standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        drawn = FUNCTIONS["nn.functional"]["softmax"](logs, dim=-1)
        info = finfo(drawn.dtype)  # at 0 and 1 the density may be infinite
        return drawn.clamp(min=info.tiny, max=1 - info.eps / 2)

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        a = self.concentration
        return T["xlogy"](a - 1.0, value).sum(-1) + T["lgamma"](a.sum(-1)) - T["lgamma"](a).sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.size(-1)
        total = a.sum(-1)
        return (
            T["lgamma"](a).sum(-1) - T["lgamma"](total) - (k - total) * T["digamma"](total)
            - ((a - 1.0) * T["digamma"](a)).sum(-1)
        )  # fmt: skip

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return T["lgamma"](x).sum(-1) - T["lgamma"](x.sum(-1))


class Beta(ExponentialFamily):
    """The beta distribution on [0, 1] with concentrations of 1 and of 0."""

    arg_constraints: ClassVar[Any] = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }  # fmt: skip
    support: Any = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        pair = T["stack"](broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(pair, validate_args=False)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    def _expand_rest(self, new: Any, shape: Any) -> None:
        new._dirichlet = self._dirichlet.expand(shape)

    @property
    def concentration1(self) -> Tensor:
        """The concentration of 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """The concentration of 0."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape)[..., 0]

    @zero_beyond
    def log_prob(self, value: Tensor) -> Tensor:
        return self._dirichlet.log_prob(T["stack"]([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:
        return T["lgamma"](x) + T["lgamma"](y) - T["lgamma"](x + y)


def sample_dirichlet(concentration: Tensor, generator: Any = None) -> Tensor:
    """Return a draw along the last dimension: PyTorch's `torch._sample_dirichlet`, which torchvision calls."""
    return Dirichlet(concentration).sample()
