"""Pointwise functions of two arrays: atan2, hypot, logaddexp, copysign, gcd, complex, ..., and `where`.

Arithmetic is in arithmetic.py, `maximum` and `clamp` are in bounds.py.  (PyTorch: BinaryOps.cpp, TensorCompare.cpp.)
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special as js

from ...base import dtypes
from ...base.dtypes import category, torch_name
from ...dispatch.declare import composite, operator
from ...dispatch.promotion import (
    broadcast_shapes,
    check_broadcast,
    promote_float,
    promote_together,
    require_floating,
    widen,
)
from ...dispatch.samples import BINARY, BINARY_POSITIVE, BINARY_WHOLE, COMPLEX, SINGLE, real, sample, truth
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..create.scalars import require_fit_beside
from . import bits
from .arithmetic import _truncated, zero
from .bounds import ordered
from .ends import arctan2, quotient, sigmoid


def _float_pair(name: str, self: Any, other: Any) -> tuple:
    check_broadcast(self, other)
    return ordered(name, *promote_float(self, other))


# -- angles, logarithms, signs ----------------------------------------------------------------------------------------


@operator(inplace=True, aliases=("arctan2",), samples=BINARY)
def atan2(self, other):
    """The angle of the point (other, input), in [-pi, pi]; its derivative at the origin is 0."""
    self, other = _float_pair("atan2", self, other)
    origin = (self == 0) & (other == 0)
    # Constant at the origin, where the derivative would be 0/0.
    y, x = jnp.where(origin, jax.lax.stop_gradient(self), self), jnp.where(origin, 1, other)
    angle = arctan2(y, x)
    return jnp.where(origin, jax.lax.stop_gradient(jnp.arctan2(self, other)), angle)


@operator(inplace=True, samples=BINARY)
def hypot(self, other):
    """sqrt(input**2 + other**2), without overflow."""
    self, other = ordered("hypot", self, other)
    require_floating(self, "hypot")
    x, y = jnp.broadcast_arrays(widen(self), widen(other))
    # A fifth of jnp.hypot's time on a CPU; with an infinity the result is infinite, beside a NaN too.
    length = jnp.where(jnp.isinf(x) | jnp.isinf(y), jnp.inf, jnp.abs(jax.lax.complex(x, y)))
    return length.astype(self.dtype)


hypot.derivative(
    self=lambda grad, self, result: grad * quotient(self, result),
    other=lambda grad, other, result: grad * quotient(other, result),
)


@operator(samples=BINARY + COMPLEX)
def logaddexp(self, other):
    """log(exp(input) + exp(other)), without overflow."""
    self, other = promote_together(self, other)
    require_floating(self, "logaddexp")
    return _log_of_sum(self, other, _complex_logaddexp if jnp.iscomplexobj(self) else jnp.logaddexp, 1.0)


def _complex_logaddexp(a: Any, b: Any) -> Any:
    """Add to the operand with the greater real part; the imaginary part may be more than one turn."""
    swap = a.real < b.real
    low, high = jnp.where(swap, a, b), jnp.where(swap, b, a)
    infinite = jnp.isinf(low.real) & (low.real == high.real)
    plain = jnp.where(low.real < 0, low, jnp.log(jnp.exp(low) + jnp.exp(high)))
    found = jnp.where(infinite, plain, high + jnp.log1p(jnp.exp(low - high)))
    return jnp.where(jnp.isnan(a) | jnp.isnan(b), jnp.asarray(complex(math.nan, math.nan), a.dtype), found)


@operator(samples=BINARY)
def logaddexp2(self, other):
    """log2(2**input + 2**other), without overflow."""
    self, other = ordered("logaddexp2", self, other)
    require_floating(self, "logaddexp2")
    return _log_of_sum(self, other, jnp.logaddexp2, math.log(2))


@partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _log_of_sum(a: Any, b: Any, compute: Callable, log_base: float) -> Any:
    return compute(a, b)


@_log_of_sum.defjvp
def _log_of_sum_tangent(compute: Callable, log_base: float, primals: tuple, tangents: tuple) -> tuple:
    """The tangent, without the result: jax's rule is wrong beside an infinity, e**a at (a, inf); PyTorch's is 0."""
    ahead = log_base * (primals[0] - primals[1])
    share, rest = sigmoid(ahead), sigmoid(-ahead)
    return _log_of_sum(*primals, compute, log_base), tangents[0] * share + tangents[1] * rest


@operator(inplace=True, namespace=("", "special"), samples=BINARY_POSITIVE)
def xlogy(self, other):
    """input * log(other); 0 where `input` is 0 and `other` is not NaN."""
    self, other = _float_pair("xlogy", self, other)
    none = (self == 0) & ((other <= 0) | jnp.isposinf(other))
    return jnp.where(none, 0, self * jnp.log(jnp.where(none, 1, other)))


xlogy.derivative(
    self=lambda grad, self, other: _xlogy_self(grad, self, other),
    other=lambda grad, self, other: quotient(grad * self, other),
)


def _xlogy_self(grad: Any, self: Any, other: Any) -> Any:
    none = (self == 0) & (other <= 0)
    return jnp.where(none, 0, js.xlogy(grad, jnp.where(none, 1, other)))


@operator(inplace=True, samples=BINARY)
def copysign(self, other):
    """The magnitude of `input` with the sign of `other`; its derivative at 0 is 0."""
    self, other = _float_pair("copysign", self, other)
    signed = bits.copysign(self, other)
    return jnp.where(self == 0, jax.lax.stop_gradient(signed), signed)


copysign.derivative(self=lambda grad, self, result: _copysign_self(grad, self, result), other=zero)


def _copysign_self(grad: Any, self: Any, result: Any) -> Any:
    turned = jnp.where(bits.signbit(self) == bits.signbit(result), grad, -grad)
    return jnp.where(self == 0, 0, jnp.where(jnp.isfinite(self), turned, jnp.nan))


@operator(inplace=True, samples=BINARY[:4])
def heaviside(self, values):
    """The step function: 0 below 0, 1 above, `values` at 0; 0 for NaN."""
    if self.dtype != values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    self, values = ordered("heaviside", self, values)
    return jax.lax.stop_gradient(jnp.where(self == 0, values, (self > 0).astype(self.dtype)))


heaviside.derivative(self=zero, values=zero)


@operator(inplace=True, samples=BINARY)
def nextafter(self, other):
    """The next floating-point number after `input` towards `other`; it moves as `input`, if that is not `other`."""
    self, other = ordered("nextafter", self, other)
    require_floating(self, "nextafter")
    return _next(self, other)


@jax.custom_jvp
def _next(a: Any, b: Any) -> Any:
    return jnp.nextafter(a, b)


@_next.defjvp
def _next_tangent(primals: tuple, tangents: tuple) -> tuple:
    a, b = primals
    out = _next(a, b)
    return out, jnp.broadcast_to(jnp.where(a == b, 0, tangents[0]), out.shape)


@operator(inplace=True, samples=BINARY + COMPLEX)
def ldexp(self, other):
    """input * 2**other."""
    check_broadcast(self, other)
    self, other = promote_float(self, other)
    return self * jnp.power(jnp.asarray(2, other.dtype), other)


@operator(inplace=True, differentiable=False, samples=BINARY_WHOLE)
def gcd(self, other):
    """The greatest common divisor of integers."""
    return _common_divisor(*_integers("gcd", self, other))


@operator(inplace=True, differentiable=False, samples=BINARY_WHOLE)
def lcm(self, other):
    """The least common multiple of integers."""
    self, other = _integers("lcm", self, other)
    divisor = _common_divisor(self, other)
    return jnp.abs(_truncated(self, jnp.where(divisor == 0, 1, divisor)) * other)


def _common_divisor(a: Any, b: Any) -> Any:
    """gcd of unsigned integers: jnp.gcd never ends for the smallest integer, whose absolute value is negative."""
    unsigned = jnp.dtype(f"uint{a.dtype.itemsize * 8}")
    return jnp.gcd(jnp.abs(a).astype(unsigned), jnp.abs(b).astype(unsigned)).astype(a.dtype)


def _integers(name: str, self: Any, other: Any) -> tuple:
    self, other = promote_together(self, other)
    if category(self.dtype) != 1:
        raise NotImplementedError(f"\"{name}\" not implemented for '{torch_name(self.dtype)}'")
    return self, other


# -- complex numbers from their parts ---------------------------------------------------------------------------------


def _parts(a: Any, b: Any) -> None:
    """Raise `RuntimeError` if no complex number has parts of these two dtypes."""
    kinds = [torch_name(x.dtype) for x in (a, b)]
    if not all(k in ("Half", "Float", "Double") for k in kinds):
        raise RuntimeError(
            f"Expected both inputs to be Half, Float or Double tensors but got {kinds[0]} and {kinds[1]}"
        )
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {kinds[0]} but got scalar type {kinds[1]} for second argument"
        )
    broadcast_shapes(a.shape, b.shape)


@operator("complex", method=False, samples=BINARY[:4] + SINGLE)
def _complex(real, imag):
    """The complex numbers with these real and imaginary parts.

    Raises `RuntimeError` unless both are floating-point tensors of one dtype.
    """
    _parts(real, imag)
    wide = jnp.promote_types(real.dtype, jnp.float32)  # complex numbers of two halves do not exist
    return jax.lax.complex(*(x.astype(wide) for x in jnp.broadcast_arrays(real, imag)))


_complex.derivative(real=lambda grad: jnp.real(grad), imag=lambda grad: jnp.imag(grad))


@operator(method=False, samples=BINARY[:4] + SINGLE)
def polar(abs, angle):
    """The complex numbers with these absolute values and angles."""
    _parts(abs, angle)
    if abs.dtype == dtypes.float16:
        raise NotImplementedError("\"polar\" not implemented for 'Half'")
    return jax.lax.complex(abs * jnp.cos(angle), abs * jnp.sin(angle))


# -- choice -----------------------------------------------------------------------------------------------------------


def _check_branches(args: tuple, statics: tuple) -> None:
    _, self, other = args
    require_fit_beside(self, other)
    require_fit_beside(other, self)


@operator(
    "where",
    function=False,
    method=False,
    signature="condition, input, other",
    check=_check_branches,
    samples=(
        sample(truth(2, 3), real(2, 3), real(3)),
        sample(truth(), real(), real()),
        sample(truth(0, 3), real(0, 3), real(3)),
    )
    + COMPLEX,
)
def _where(condition, self, other):
    if condition.dtype not in (bool, dtypes.uint8):
        kind = torch_name(condition.dtype)
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {kind}")
    self, other = promote_together(self, other)
    broadcast_shapes(condition.shape, self.shape, other.shape)
    return jnp.where(condition.astype(bool), self, other)


_where.derivative(
    self=lambda grad, condition: jnp.where(condition.astype(bool), grad, 0),
    other=lambda grad, condition: jnp.where(condition.astype(bool), 0, grad),
)


@composite(method=False)
def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None) -> Any:
    """`input` where `condition` holds, else `other`, broadcast; the branch not taken gets no gradient, NaN included.

    With a condition alone: the indices at which it holds, as `nonzero(as_tuple=True)`.

    >>> import xgrad
    >>> x = xgrad.tensor([-1.0, 2.0])
    >>> xgrad.where(x > 0, x, 0)
    tensor([0., 2.])
    """
    if input is None and other is None:
        return FUNCTIONS[""]["nonzero"](condition, as_tuple=True)
    return _where.function(condition, input, other, out=out)


@composite("where", function=False)
def _where_method(input: Tensor, condition: Tensor, other: Any) -> Tensor:
    """`input` where `condition` holds, else `other`."""
    return _where.function(condition, input, other)
