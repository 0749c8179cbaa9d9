"""Operators for powers and roots: pow, float_power, square, sqrt, rsqrt, reciprocal.

`pow` is two operators under one name: a number for which PyTorch has a short cut is a static argument, any other an
array, so that a loop over exponents compiles once.  Roots and reciprocals save their result.  (PyTorch: Pow.cpp.)
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ...base import dtypes
from ...base.dtypes import as_dtype, category, torch_name
from ...dispatch.declare import composite, operator, variant
from ...dispatch.inplace import call_inplace
from ...dispatch.operands import is_operand
from ...dispatch.operator import Operator
from ...dispatch.promotion import as_float, check_broadcast, conj, promote_float, promote_together, require_real
from ...dispatch.samples import BINARY_POSITIVE, COMPLEX, POSITIVE, REAL, positive, real, sample, truth
from ...tensor import Tensor
from .arithmetic import run
from .ends import COMPLEX_TOO, apart, quotient

# PyTorch's short cuts (pow_tensor_scalar_optimized_kernel): a few products are faster than a logarithm, and exact.
_SHORT = {
    0.5: COMPLEX_TOO["sqrt"],
    -0.5: jax.lax.rsqrt,
    **{n: partial(jax.lax.integer_pow, y=n) for n in (2, 3, -1, -2)},
}
_NEGATIVE = "Integers to negative integer powers are not allowed."


def _as_number(x: Any) -> Any:
    """Convert bools to integers."""
    return x.astype(dtypes.default_integer()) if x.dtype == bool else x


def _short_pow(self, *, exponent):
    if self.dtype not in dtypes.INEXACT and exponent < 0:
        raise RuntimeError(_NEGATIVE)
    return apart(_SHORT[exponent](_as_number(self)))


def _integer_pow(base: Any, exponent: Any) -> Any:
    """Integers to the power of integers; a negative power of all but 1 and -1 is 0."""
    base, exponent = jnp.broadcast_arrays(base, exponent)

    def step(state: tuple) -> tuple:
        result, square, left = state
        return jnp.where(left & 1 == 1, result * square, result), square * square, left >> 1

    # By squaring, to the last bit: jnp.power uses six bits of the exponent, and gives 2**64 = 1.
    start = (jnp.ones_like(base), base, jnp.maximum(exponent, 0))
    result = jax.lax.while_loop(lambda state: jnp.any(state[2] > 0), step, start)[0]
    unit = jnp.where(base == 1, 1, jnp.where(base == -1, 1 - 2 * (exponent & 1), 0)).astype(base.dtype)
    return jnp.where(exponent < 0, unit, result)


def _pow(self, exponent):
    self, exponent = promote_together(self, exponent)
    if self.dtype in dtypes.INEXACT:
        return _power(self, exponent)
    require_real(self, "pow")
    return _integer_pow(self, exponent)


@jax.custom_jvp
def _power(base: Any, exponent: Any) -> Any:
    """jnp.power; complex ones by the exponential, because jnp.power has NaN beside an infinity and at 0."""
    if not jnp.iscomplexobj(base):
        return apart(jnp.power(base, exponent))
    zero = base == 0
    found = COMPLEX_TOO["exp"](exponent * jnp.log(jnp.where(zero, 1, base)))
    at_zero = jnp.where(exponent == 0, 1, jnp.where(exponent.real > 0, 0, jnp.power(base, exponent)))
    return jnp.where(zero, at_zero, found)


@partial(_power.defjvp, symbolic_zeros=True)
def _power_tangent(primals: tuple, tangents: tuple) -> tuple:
    """The tangent, which is 0 at 0**0, where the tangent of jnp.power is NaN."""
    out = _power(*primals)
    terms = [f(*primals) * t for f, t in zip((_slope, _growth), tangents) if not isinstance(t, SymbolicZero)]
    return out, sum(terms) if terms else jnp.zeros_like(out)


def _slope(base: Any, exponent: Any) -> Any:
    """The derivative by the base: 0 where the exponent is 0."""
    flat = exponent == 0
    return jnp.where(flat, 0, exponent * _power(base, jnp.where(flat, 1, exponent - 1)))


def _growth(base: Any, exponent: Any) -> Any:
    """The derivative by the exponent; 0 where the base is 0 and the exponent is not negative."""
    flat = (base == 0) & (jnp.real(exponent) >= 0)
    return jnp.where(flat, 0, _power(base, exponent) * jnp.log(jnp.where(flat, 1, base)))


def _pow_self(grad: Any, self: Any, exponent: Any) -> Any:
    return grad * conj(_slope(*promote_float(self, exponent)))


def _pow_exponent(grad: Any, self: Any, exponent: Any) -> Any:
    return grad * conj(_growth(*promote_float(self, exponent)))


def _truth_pow(self, *, exponent):
    return self if exponent else jnp.ones_like(self)


_POWERS = (*BINARY_POSITIVE, sample(positive(2, 3), 1.5), sample(1.5, real(2, 3)))
_short = variant("pow", _short_pow, samples=tuple([sample(positive(2, 3), exponent=n) for n in _SHORT]) + COMPLEX)
_general = variant("pow", _pow, samples=_POWERS + COMPLEX)
_truth = variant(
    "pow", _truth_pow, differentiable=False, samples=tuple([sample(truth(2, 3), exponent=e) for e in (True, False)])
)
_general.derivative(self=_pow_self, exponent=_pow_exponent)


def _power_of(input: Any, exponent: Any) -> tuple[Operator, tuple, tuple]:
    """The operator for these arguments, with its array and static arguments."""
    kind = exponent.__class__
    if kind is bool and isinstance(input, Tensor) and input.dtype == dtypes.bool:
        return _truth, (input,), (exponent,)  # PyTorch ignores the dtype for 0 and 1, and has no other power of bools
    if (kind is int or kind is float) and isinstance(input, Tensor):
        # Of an integer tensor, x ** 2.0 is a float, so it is not x * x.
        if exponent in _SHORT and (kind is int or input.dtype in dtypes.INEXACT):
            return _short, (input,), (exponent,)
        if kind is int and exponent < 0 and input.dtype not in dtypes.INEXACT:
            raise RuntimeError(_NEGATIVE)
    return _general, (input, exponent), ()


@composite
def pow(input: Any, exponent: Any, *, out: Tensor | None = None) -> Tensor:
    """input to the power of `exponent`, broadcast; one of the two may be a number.

    Raises `RuntimeError` for integers to a negative integer power.

    >>> import xgrad
    >>> xgrad.pow(xgrad.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])
    """
    op, args, statics = _power_of(input, exponent)
    return run(op, args, out, statics)


@composite("pow_", function=False, method_aliases=("__ipow__",))
def _pow_inplace(input: Tensor, exponent: Any) -> Tensor:
    """In-place version of `xgrad.pow`."""
    return call_inplace(*_power_of(input, exponent))


@composite("__pow__", function=False)
def _pow_operator(input: Tensor, exponent: Any) -> Tensor:
    return pow(input, exponent) if is_operand(exponent) else NotImplemented


@composite("__rpow__", function=False)
def _rpow_operator(input: Tensor, base: Any) -> Tensor:
    return pow(base, input) if is_operand(base) else NotImplemented


@operator(inplace=True, samples=_POWERS + COMPLEX)
def float_power(self, exponent):
    """input to the power of `exponent`, computed in float64 or complex128."""
    check_broadcast(self, exponent)
    either = category(jnp.asarray(self).dtype) == 3 or category(jnp.asarray(exponent).dtype) == 3
    dtype = as_dtype(dtypes.complex128 if either else dtypes.float64)
    return _power(jnp.asarray(self).astype(dtype), jnp.asarray(exponent).astype(dtype))


# The gradient has the dtype of the result: what it is multiplied by is computed in that dtype too.
float_power.derivative(
    self=lambda grad, self, exponent: _pow_self(grad, self.astype(grad.dtype), exponent),
    exponent=lambda grad, self, exponent: _pow_exponent(grad, jnp.asarray(self).astype(grad.dtype), exponent),
)


@composite("float_power_")
def _float_power_inplace(input: Tensor, exponent: Any) -> Tensor:
    """In-place version of `xgrad.float_power`, for float64 and complex128 tensors."""
    other = exponent.dtype if hasattr(exponent, "dtype") else np.dtype(type(exponent))
    wanted = dtypes.complex128 if 3 in (category(input._dtype), category(other)) else dtypes.float64
    if input.dtype != wanted:
        given, result = torch_name(input._dtype), torch_name(wanted)
        raise RuntimeError(
            f"the base given to float_power_ has dtype {given} but the operation's result requires dtype {result}"
        )
    return call_inplace(float_power.operator, (input, exponent), ())


@operator(inplace=True, node="PowBackward0", samples=REAL + COMPLEX)
def square(self):
    """input * input."""
    self = _as_number(self)
    return self * self


@operator(inplace=True, pointwise=True, samples=POSITIVE + COMPLEX)
def sqrt(self):
    """The square root; NaN of negative numbers."""
    return COMPLEX_TOO["sqrt"](as_float(self))


@operator(inplace=True, pointwise=True, samples=POSITIVE + COMPLEX)
def rsqrt(self):
    """1 / sqrt(input)."""
    return COMPLEX_TOO["rsqrt"](as_float(self))


@operator(inplace=True, pointwise=True, samples=POSITIVE + COMPLEX)
def reciprocal(self):
    """1 / input; integers give floats."""
    return quotient(1.0, as_float(self))


sqrt.derivative(self=lambda grad, result: grad / conj(2 * result))
rsqrt.derivative(self=lambda grad, result: -0.5 * grad * conj(result * result * result))
reciprocal.derivative(self=lambda grad, result: -grad * conj(result * result))
