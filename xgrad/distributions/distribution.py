"""Distribution: the base class of distributions (PyTorch: torch/distributions/distribution.py)."""

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from ..base.size import Size
from ..config import settings
from ..tensor import Tensor
from .constraints import Constraint, is_dependent
from .utils import T, lazy_property, value_is_traced, without_grad


def beyond(below: float, above: float) -> Callable[..., Any]:
    """Make a function of a value check it, and give these numbers, without a gradient, beyond the support's bounds."""

    def decorate(function: Callable[..., Tensor]) -> Callable[..., Any]:
        @functools.wraps(function)
        def bounded(self: Any, value: Any) -> Tensor:
            value, (low, high) = T["as_tensor"](self._checked(value)), self._bounds()
            outside = (value < low) | (value > high)
            width = (high - low).clamp(max=1) if isinstance(high, Tensor) else 1
            # A place inside of the support, where the formula has a value and derivatives.
            found = T["where"](outside, below, function(self, T["where"](outside, low + width / 2, value)))
            return found if above == below else T["where"](value > high, above, found)

        return bounded

    return decorate


zero_beyond: Callable[..., Any] = beyond(-math.inf, -math.inf)  # of a `log_prob`
from_0_to_1: Callable[..., Any] = beyond(0.0, 1.0)  # of a `cdf`


class Distribution:
    """The base class of distributions.

    batch_shape: the shape of independent distributions with their own parameters; event_shape: the shape of one draw.
    validate_args: check parameters and arguments of `log_prob`, which reads their values; on by default.  Where values
    are not known (in `xgrad.compile`, `vmap`), only the type and the shape of `log_prob`'s argument are checked.

    A subclass has `arg_constraints`, `support`, `rsample` or `sample`, and `log_prob`.
    """

    has_rsample: bool = False
    has_enumerate_support: bool = False
    arg_constraints: ClassVar[Any] = None
    _validate_args: bool = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Switch the checks of distributions that are made without `validate_args`."""
        if value not in (True, False):
            raise ValueError(f"expected True or False, but got {value!r}")
        Distribution._validate_args = value
        settings.changed()

    def __init__(
        self, batch_shape: Sequence[int] = (), event_shape: Sequence[int] = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    @without_grad
    def _check_parameters(self) -> None:
        if self.arg_constraints is None:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize "
                "the distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        found = []
        for name, constraint in self.arg_constraints.items():
            if is_dependent(constraint):
                continue
            if name not in vars(self) and isinstance(getattr(type(self), name, None), lazy_property):
                continue
            value = getattr(self, name)
            if not value_is_traced(value):
                found.append((name, constraint, value, constraint.check(value).all()))
        if _all_true([valid for *_, valid in found]):
            return
        name, constraint, value = next(entry[:3] for entry in found if not bool(entry[3]))
        raise ValueError(
            f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
            f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
        )

    # ------------------------------------------------------------ shapes

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of parameters."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw."""
        return self._event_shape

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Self:
        """Return this distribution with its parameters expanded to a larger batch."""
        new = self._get_checked_instance(type(self), _instance)
        shape = Size(batch_shape)
        for name, constraint in (self.arg_constraints or {}).items():
            value = vars(self).get(name)
            if isinstance(value, Tensor):
                event = value.shape[value.dim() - constraint.event_dim :]
                vars(new)[name] = value.expand((*shape, *event))
        self._expand_rest(new, shape)
        new._batch_shape, new._event_shape = shape, self._event_shape
        new._validate_args = self._validate_args
        return new

    def _expand_rest(self, new: Any, shape: Size) -> None:
        """Set what a subclass has beside its parameters."""

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is not None:
            return _instance
        own = next(kind for kind in type(self).__mro__ if "__init__" in vars(kind))
        if not own.__module__.startswith("xgrad.") and "expand" not in vars(own):
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {own.__mro__[1].__name__} that defines a custom __init__ method "
                "must also define a custom .expand() method."
            )
        return object.__new__(type(self))

    # ------------------------------------------------------------ what subclasses have

    @property
    def support(self) -> Constraint | None:
        """The constraint on draws."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    @without_grad
    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return draws of the shape sample_shape + batch_shape + event_shape, without gradients."""
        return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """Return n draws; PyTorch's old form of `sample((n,))`."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2)
        return self.sample((n,))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return draws that are differentiable with respect to the parameters."""
        raise NotImplementedError

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the density or probability at a value."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability of values up to this one."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """Return the value whose `cdf` is this one."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all values of a discrete distribution along a new first dimension."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """Return the entropy, in nats."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """Return the exponential of the entropy."""
        return self.entropy().exp()

    def _validate_sample(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, event = value.shape, self._event_shape
        if shape[len(shape) - len(event) :] != event:
            raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {event}.")
        expected = self._batch_shape + event
        if any(i != 1 and j != 1 and i != j for i, j in zip(reversed(shape), reversed(expected))):
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {expected}.")
        if value_is_traced(value) or any(isinstance(x, Tensor) and value_is_traced(x) for x in vars(self).values()):
            return
        self._check_support(value)

    def _checked(self, value: Any) -> Any:
        """Return the value, checked if arguments are."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _bounds(self) -> list[Any]:
        """Return the ends of the support, without their gradients, which are infinite where an end is."""
        support = self.support
        ends = getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)
        return [end.detach() if isinstance(end, Tensor) else end for end in ends]

    @without_grad
    def _check_support(self, value: Tensor) -> None:
        support = self.support
        assert support is not None
        if not bool(support.check(value).all()):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def __repr__(self) -> str:
        own = ((name, vars(self).get(name)) for name in self.arg_constraints or {})
        shown = (f"{n}: {v if v.numel() == 1 else v.size()}" for n, v in own if isinstance(v, Tensor))
        return f"{type(self).__name__}({', '.join(shown)})"


def _all_true(checks: list[Tensor]) -> bool:
    """Return True if all are; the values are read once."""
    if not checks:
        return True
    return bool(checks[0]) if len(checks) == 1 else bool(T["stack"](checks).all())


__all__ = ["Distribution"]
