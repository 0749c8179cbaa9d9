"""LogisticNormal: the distribution of probability vectors that stick-breaking makes of normal ones.

(PyTorch: torch/distributions/logistic_normal.py.)
"""

from typing import Any, ClassVar

from ..tensor import Tensor
from . import constraints
from .continuous import Normal
from .transformed import TransformedDistribution
from .transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """Vectors of probabilities: what a `StickBreakingTransform` makes of Normal(loc, scale), with one number more.

    >>> import xgrad
    >>> p = xgrad.distributions.LogisticNormal(xgrad.zeros(3), xgrad.ones(3))
    >>> p.event_shape, p.log_prob(xgrad.full((4,), 0.25))
    (xgrad.Size([4]), tensor(2.7884))
    """

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex
    has_rsample: Any = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the normal distributions."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviations of the normal distributions."""
        return self.base_dist.base_dist.scale
