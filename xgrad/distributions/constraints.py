"""Constraints: the values that a parameter or a sample may have (PyTorch: torch/distributions/constraints.py)."""

from collections.abc import Callable
from typing import Any

from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor

__all__ = [
    "Constraint", "boolean", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent",
    "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer",
    "one_hot", "positive", "positive_definite", "positive_integer", "real", "real_vector", "simplex",
    "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values.  `event_dim`: the number of last dimensions that are one value; `is_discrete`: of isolated ones.

    >>> import xgrad
    >>> xgrad.distributions.constraints.unit_interval.check(xgrad.tensor([0.5, 2.0]))
    tensor([ True, False])
    """

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """Return a tensor of bools, one for each value."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__.lstrip("_") + "()"


class _Known(Constraint):
    """A constraint that is a function of the value and of bounds."""

    def __init__(
        self, name: str, check: Callable[..., Tensor], discrete: bool = False, event_dim: int = 0, **bounds: Any
    ) -> None:
        self._name, self._check, self._bounds = name, check, bounds
        self.is_discrete, self.event_dim = discrete, event_dim
        vars(self).update(bounds)

    def check(self, value: Tensor) -> Tensor:
        return self._check(value, **self._bounds)

    def __repr__(self) -> str:
        return f"{self._name}({', '.join(f'{name}={bound}' for name, bound in self._bounds.items())})"


class _Dependent(Constraint):
    """A constraint that depends on other parameters, and so can't be checked by itself."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> "_Dependent":
        return _Dependent(is_discrete=is_discrete, event_dim=event_dim)

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property):
    """A property that returns a constraint; its options say what is known of it."""

    event_dim: Any
    is_discrete: Any

    def __init__(self, fn: Any = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        super().__init__(fn)
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, fn: Callable[..., Any]) -> "dependent_property":
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Any) -> bool:
    """Return True for a constraint that depends on other parameters."""
    return isinstance(constraint, (_Dependent, dependent_property))


class independent(Constraint):
    """A constraint on each item of the last dimensions, of which all are one value."""

    base_constraint: Constraint
    reinterpreted_batch_ndims: int

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.is_discrete: Any = base_constraint.is_discrete
        self.event_dim: Any = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result, dims = self.base_constraint.check(value), self.reinterpreted_batch_ndims
        if result.dim() < dims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return result.reshape((*result.shape[: result.dim() - dims], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


def _whole(value: Tensor) -> Tensor:
    return value % 1 == 0


def _is_one_hot(value: Tensor) -> Tensor:
    return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


def _is_lower(value: Tensor) -> Tensor:
    return (value.tril() == value).flatten(-2).all(-1)


def _is_cholesky(value: Tensor) -> Tensor:
    return _is_lower(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


def _is_correlation_factor(value: Tensor) -> Tensor:
    return _is_cholesky(value) & ((value.pow(2).sum(-1) - 1).abs() < 1e-6 * value.shape[-1]).all(-1)


def _is_positive_definite(value: Tensor) -> Tensor:
    symmetric = FUNCTIONS[""]["isclose"](value, value.mT, atol=1e-6).flatten(-2).all(-1)
    if not bool(symmetric.all()):
        return symmetric
    return FUNCTIONS["linalg"]["cholesky_ex"](value).info == 0


def greater_than(lower_bound: Any) -> Constraint:
    """Return the numbers above a bound."""
    return _Known("GreaterThan", lambda x, lower_bound: lower_bound < x, lower_bound=lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Return the numbers from a bound on."""
    return _Known("GreaterThanEq", lambda x, lower_bound: lower_bound <= x, lower_bound=lower_bound)


def less_than(upper_bound: Any) -> Constraint:
    """Return the numbers below a bound."""
    return _Known("LessThan", lambda x, upper_bound: x < upper_bound, upper_bound=upper_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Return the numbers between bounds, with both."""

    def check(x: Tensor, lower_bound: Any, upper_bound: Any) -> Tensor:
        return (lower_bound <= x) & (x <= upper_bound)

    return _Known("Interval", check, lower_bound=lower_bound, upper_bound=upper_bound)


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Return the numbers between bounds, with the lower one."""

    def check(x: Tensor, lower_bound: Any, upper_bound: Any) -> Tensor:
        return (lower_bound <= x) & (x < upper_bound)

    return _Known("HalfOpenInterval", check, lower_bound=lower_bound, upper_bound=upper_bound)


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Return the integers between bounds, with both."""

    def check(x: Tensor, lower_bound: Any, upper_bound: Any) -> Tensor:
        return _whole(x) & (lower_bound <= x) & (x <= upper_bound)

    return _Known("IntegerInterval", check, True, lower_bound=lower_bound, upper_bound=upper_bound)


def multinomial(upper_bound: Any) -> Constraint:
    """Return the vectors of counts whose sum is a bound at most."""

    def check(x: Tensor, upper_bound: Any) -> Tensor:
        return (x >= 0).all(-1) & (x.sum(-1) <= upper_bound)

    return _Known("Multinomial", check, True, 1, upper_bound=upper_bound)


def _integers_from(lower_bound: int) -> Constraint:
    return _Known(
        "IntegerGreaterThan", lambda x, lower_bound: _whole(x) & (x >= lower_bound), True, lower_bound=lower_bound
    )


dependent: Any = _Dependent()
boolean: Constraint = _Known("Boolean", lambda x: (x == 0) | (x == 1), True)
one_hot: Constraint = _Known("OneHot", _is_one_hot, True, 1)
nonnegative_integer: Constraint = _integers_from(0)
positive_integer: Constraint = _integers_from(1)
real: Constraint = _Known("Real", lambda x: x == x)
real_vector: Constraint = independent(real, 1)
positive: Constraint = greater_than(0.0)
nonnegative: Constraint = greater_than_eq(0.0)
unit_interval: Constraint = interval(0.0, 1.0)
simplex: Constraint = _Known("Simplex", lambda x: (x >= 0).all(-1) & ((x.sum(-1) - 1).abs() < 1e-6), False, 1)
lower_triangular: Constraint = _Known("LowerTriangular", _is_lower, False, 2)
lower_cholesky: Constraint = _Known("LowerCholesky", _is_cholesky, False, 2)
corr_cholesky: Constraint = _Known("CorrCholesky", _is_correlation_factor, False, 2)
positive_definite: Constraint = _Known("PositiveDefinite", _is_positive_definite, False, 2)
