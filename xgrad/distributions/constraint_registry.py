"""biject_to and transform_to: find a transform from unconstrained real numbers to a constraint's values.

PyTorch: torch/distributions/constraint_registry.py.
"""

from collections.abc import Callable
from typing import Any

from ..config import settings
from . import constraints
from .transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    Transform,
    identity_transform,
)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """A table of transforms by the classes of constraints: called with a constraint it makes the transform to it.

    Raises `NotImplementedError` for a constraint whose class is not in the table.

    >>> import xgrad
    >>> from xgrad.distributions import constraints, transform_to
    >>> t = transform_to(constraints.greater_than(2.0))
    >>> t(xgrad.tensor([0.0, 1.0]))
    tensor([3.0000, 4.7183])
    """

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Transform]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], Transform] | None = None) -> Any:
        """Add the factory of transforms to constraints of a class; without a factory, return a decorator.

        constraint: the class, or an instance of it.  factory: a function of a constraint.  Raises `TypeError` for what
        is not a constraint.

        >>> from xgrad.distributions import ExpTransform, constraints
        >>> registry = ConstraintRegistry()
        >>> _ = registry.register(constraints.positive, lambda constraint: ExpTransform())
        >>> registry(constraints.positive)
        ExpTransform()
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, constraints.Constraint)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        settings.changed()
        return factory

    def __call__(self, constraint: constraints.Constraint) -> Any:
        """Return the transform to a constraint."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _above(constraint: Any) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.lower_bound, 1)])


def _below(constraint: Any) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


def _fill(to: ConstraintRegistry) -> None:
    """Register what both registries have; what is made of other constraints takes their transforms of the same one."""
    rows: dict[Any, Callable[[Any], Transform]] = {
        constraints.real: lambda constraint: identity_transform,
        constraints.greater_than: _above, constraints.greater_than_eq: _above, constraints.less_than: _below,
        constraints.interval: _between, constraints.half_open_interval: _between,
        constraints.corr_cholesky: lambda constraint: CorrCholeskyTransform(),
        constraints.independent: lambda c: IndependentTransform(to(c.base_constraint), c.reinterpreted_batch_ndims),
        constraints.cat: lambda c: CatTransform([to(part) for part in c.cseq], c.dim, c.lengths),
        constraints.stack: lambda c: StackTransform([to(part) for part in c.cseq], c.dim),
    }  # fmt: skip
    for constraint, factory in rows.items():
        to.register(constraint, factory)


_fill(biject_to)
_fill(transform_to)
biject_to.register(constraints.simplex, lambda constraint: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: LowerCholeskyTransform())
for _definite in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_definite, lambda constraint: PositiveDefiniteTransform())
