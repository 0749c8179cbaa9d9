"""maximum, minimum, fmax, fmin take the larger or smaller of two elements; clamp, clamp_min, clamp_max limit elements.

Ties: `maximum` and `minimum` halve the gradient, `fmax`, `fmin` and `clamp` give it to `input`.
(PyTorch: BinaryOps.cpp, TensorCompare.cpp.)
"""

from typing import Any

import jax.numpy as jnp

from ...base import dtypes
from ...dispatch.declare import operator
from ...dispatch.promotion import promote_together
from ...dispatch.samples import BINARY, between, real, sample
from ...tensor import Tensor
from ..create.scalars import require_fit_beside


def ordered(name: str, *operands: Any) -> tuple[Any, ...]:
    """Promote the operands to their common dtype.  Raises `NotImplementedError` for complex numbers."""
    operands = promote_together(*operands)
    if operands[0].dtype in dtypes.COMPLEX:
        raise NotImplementedError(f"{name} is not supported for complex types: complex numbers have no order")
    return operands


# -- extrema ----------------------------------------------------------------------------------------------------------


@operator(samples=BINARY)
def maximum(self, other):
    """The larger of the two elements; NaN if one is."""
    return jnp.maximum(*ordered("maximum", self, other))


@operator(samples=BINARY)
def minimum(self, other):
    """The smaller of the two elements; NaN if one is."""
    return jnp.minimum(*ordered("minimum", self, other))


@operator(samples=BINARY)
def fmax(self, other):
    """The larger of the two elements; the other one if one is NaN."""
    self, other = ordered("fmax", self, other)
    return jnp.where(_first_of(self, other, True), self, other)


@operator(samples=BINARY)
def fmin(self, other):
    """The smaller of the two elements; the other one if one is NaN."""
    self, other = ordered("fmin", self, other)
    return jnp.where(_first_of(self, other, False), self, other)


def _share(grad: Any, loses: Any, ties: Any) -> Any:
    return jnp.where(loses, 0, jnp.where(ties, grad / 2, grad))


def _first_of(a: Any, b: Any, larger: bool) -> Any:
    """True where fmax or fmin picks the first operand, which it does for ties."""
    return (a >= b if larger else a <= b) | jnp.isnan(b)


maximum.derivative(
    self=lambda grad, self, other: _share(grad, self < other, self == other),
    other=lambda grad, self, other: _share(grad, other < self, self == other),
)
minimum.derivative(
    self=lambda grad, self, other: _share(grad, self > other, self == other),
    other=lambda grad, self, other: _share(grad, other > self, self == other),
)
fmax.derivative(
    self=lambda grad, self, other: jnp.where(_first_of(self, other, True), grad, 0),
    other=lambda grad, self, other: jnp.where(_first_of(self, other, True), 0, grad),
)
fmin.derivative(
    self=lambda grad, self, other: jnp.where(_first_of(self, other, False), grad, 0),
    other=lambda grad, self, other: jnp.where(_first_of(self, other, False), 0, grad),
)


# -- bounds -----------------------------------------------------------------------------------------------------------


def _from_below(x: Any, low: Any) -> Any:
    """Return `x`, or `low` where that is larger or NaN; at equality `x`, with its derivative."""
    return jnp.where((x < low) | jnp.isnan(low), low, x)


def _from_above(x: Any, high: Any) -> Any:
    return jnp.where((x > high) | jnp.isnan(high), high, x)


_BOUNDS = (sample(real(2, 3), -0.6), sample(real(2, 3), real(3)), sample(real(), real()), sample(real(0, 3), 0.5))


def _check_bounds(args: tuple, statics: tuple) -> None:
    """Raise for bools as PyTorch does, unless the only bound is a tensor, because it then calls maximum or minimum.

    Raise for integers beyond the dtype, too, which would wrap around; a bound beyond the floats has no effect.
    """
    dtype = getattr(args[0], "dtype", None)
    if dtype in dtypes.INTEGERS:
        require_fit_beside(*args)
    if dtype != dtypes.bool:
        return
    bounds = [b for b in args[1:] if b is not None]
    numbers = [b for b in bounds if isinstance(b, bool)]
    tensors = [b for b in bounds if isinstance(b, Tensor) and b.dtype == dtypes.bool]
    if len(numbers) + len(tensors) == len(bounds) and (numbers or len(tensors) > 1):
        raise NotImplementedError("\"clamp\" not implemented for 'Bool'")


@operator(
    inplace=True,
    aliases=("clip",),
    check=_check_bounds,
    samples=(
        *_BOUNDS,
        sample(real(2, 3), -0.6, 0.6),
        sample(real(2, 3), None, 0.6),
        sample(real(2, 3), between(-1.3, -0.3, 3), between(0.3, 1.4, 2, 1)),
    ),
)
def clamp(self, min=None, max=None):
    """The elements, none below `min` or above `max` (numbers, tensors, or None); `max` wins if they cross.

    The derivative at a bound is 1.

    >>> import xgrad
    >>> xgrad.clamp(xgrad.tensor([-1.0, 0.5, 2.0]), min=0, max=1)
    tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    self, *bounds = ordered("clamp", self, *(b for b in (min, max) if b is not None))
    if min is not None:
        self = _from_below(self, bounds[0])
    return self if max is None else _from_above(self, bounds[-1])


@operator(inplace=True, check=_check_bounds, samples=_BOUNDS)
def clamp_min(self, min):
    """The elements, none below `min`."""
    return _from_below(*ordered("clamp_min", self, min))


@operator(inplace=True, check=_check_bounds, samples=_BOUNDS)
def clamp_max(self, max):
    """The elements, none above `max`."""
    return _from_above(*ordered("clamp_max", self, max))


def _within(self: Any, min: Any, max: Any) -> Any:
    inside = True if min is None else self >= min
    return inside if max is None else inside & (self <= max)


clamp.derivative(
    self=lambda grad, self, min, max: jnp.where(_within(self, min, max), grad, 0),
    min=lambda grad, self, min, max: jnp.where((self < min) & (True if max is None else min < max), grad, 0),
    max=lambda grad, self, min, max: jnp.where((self > max) | (False if min is None else max < min), grad, 0),
)
clamp_min.derivative(
    self=lambda grad, self, min: jnp.where(self >= min, grad, 0),
    min=lambda grad, self, min: jnp.where(self < min, grad, 0),
)
clamp_max.derivative(
    self=lambda grad, self, max: jnp.where(self <= max, grad, 0),
    max=lambda grad, self, max: jnp.where(self > max, grad, 0),
)
