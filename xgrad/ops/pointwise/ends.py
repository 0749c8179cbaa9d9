"""quotient, arctan2, unit, ...: JAX functions that stay right for huge and tiny numbers, for operators to compute with.

JAX's derivative of a quotient has 1 / b², which over- or underflows where the result does not, and XLA makes
a / (b * b) of two divisions.  Of complex functions XLA forgets the sign of a zero, which says on which side of a
cut a number is.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ...base.dtypes import INEXACT
from ...base.platforms import traced_for
from . import exponents


def apart(x: Any) -> Any:
    """The same number, which XLA does not rewrite together with the operations around it.

    XLA's algebraic simplifier takes real numbers for granted: it makes x of `(x + c) - c` and of `log(exp(x))`,
    `a / (b * c)` of `(a / b) / c`, and `a * (1 / b)` of a division by one number.  So the results from which it would
    be made are behind a barrier, which XLA's CPU compiler removes before it fuses: it costs nothing.  Other compilers
    would not fuse past it; they do not look through a selection.  (Without the simplifier, the option
    xla_disable_hlo_passes=algsimp, XLA's CPU programs of a softmax end the process.)
    (XLA: xla/hlo/transforms/simplifiers/algebraic_simplifier.cc.)
    """
    if jnp.result_type(x) not in INEXACT:
        return x
    if traced_for() == "cpu":
        return jax.lax.optimization_barrier(x)
    return jnp.where(jnp.isnan(x), jnp.asarray(jnp.nan, x.dtype), x)


def beside_one(compute: Callable[..., Any], a: Any, b: Any) -> Any:
    """compute(a, b), `apart` if one of the two is one number, which XLA may know: `x + 0.0` of -0.0 is 0.0."""
    if jnp.ndim(a) and jnp.ndim(b):
        return compute(a, b)
    return apart(compute(*[x if jnp.ndim(x) else apart(x) for x in (a, b)]))


@jax.custom_jvp
def quotient(a: Any, b: Any) -> Any:
    """a / b, whose derivatives of any order divide one time after the other."""
    # XLA multiplies by 1 / b where one divisor serves many elements, and not where each has its own.
    if jnp.ndim(b) == 0 or jnp.size(b) < jnp.size(a):
        b = jnp.where(jnp.isnan(a), a, b)
    return apart(jnp.divide(a, b))


def _over(x: Any, b: Any) -> Any:
    """x / b, which is linear in x."""
    found = jnp.divide(x, b)
    return jax.lax.optimization_barrier(found) if traced_for() == "cpu" else found


@jax.custom_jvp
def over_twice(a: Any, b: Any) -> Any:
    """(a / b) / b."""
    return quotient(quotient(a, b), b)


def _divided(compute: Any, times: int) -> None:
    """Declare the tangent of a quotient that divides `times` times."""

    @partial(compute.defjvp, symbolic_zeros=True)
    def _(primals: tuple, tangents: tuple) -> tuple:
        (a, b), (da, db) = primals, tangents
        out = compute(a, b)
        moved = jnp.zeros_like(out)
        if not isinstance(da, SymbolicZero):  # an integer has no other tangent
            moved = _over(da, b) if times == 1 else _over(_over(da, b), b)
        return out, moved if isinstance(db, SymbolicZero) else moved - times * _over(out * db, b)


_divided(quotient, 1)
_divided(over_twice, 2)


def over_real(x: Any, length: Any) -> Any:
    """x / length, part by part if x is complex."""
    if jnp.iscomplexobj(x):
        return jax.lax.complex(quotient(x.real, length), quotient(x.imag, length))
    return quotient(x, length)


def unit(x: Any) -> Any:
    """The sign, -1, 0 or 1; of complex numbers, the number over its absolute value."""
    if x.dtype == bool:
        return x
    if not jnp.iscomplexobj(x):
        return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)  # jnp.sign has -0.0 and NaN, PyTorch 0
    zeros = x == 0
    return jnp.where(zeros, 0, over_real(x, jnp.abs(jnp.where(zeros, 1, x))))


@jax.custom_jvp
def arctan2(y: Any, x: Any) -> Any:
    """jnp.arctan2, whose derivative does not square its arguments."""
    return jnp.arctan2(y, x)


@arctan2.defjvp
def _arctan2_tangent(primals: tuple, tangents: tuple) -> tuple:
    y, x = wide = [p.astype(jnp.promote_types(p.dtype, jnp.float32)) for p in primals]
    dy, dx = tangents
    length = jnp.abs(jax.lax.complex(*jnp.broadcast_arrays(*wide)))
    moved = quotient(x, length) * dy - quotient(y, length) * dx
    out = arctan2(*primals)
    return out, jnp.divide(moved, length).astype(out.dtype)


def with_slope(compute: Callable[..., Any], slope: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one array whose derivative is slope(array, result): in both modes, and the next one is its own."""
    function = jax.custom_jvp(compute)

    @function.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        out = function(*primals)
        return out, slope(*primals, out) * tangents[0]

    return function


def folded(compute: Callable[..., Any], slope: Callable[..., Any], odd: bool = False) -> Callable[..., Any]:
    """A function for which f(conj(z)) = conj(f(z)), and f(-z) = -f(z) if it is `odd`, with the signs of zeros.

    Of complex numbers it is computed in the upper half plane, or in the first quadrant.
    """

    def of_complex(x: Any) -> Any:
        signs = [jnp.signbit(part) & side for part, side in ((x.real, odd), (x.imag, True))]

        def turned(z: Any) -> Any:
            return jax.lax.complex(*[jnp.where(s, -part, part) for s, part in zip(signs, (z.real, z.imag))])

        out = compute(turned(x))
        if odd:  # jnp.arctan has a negative zero there
            out = jax.lax.complex(*[jnp.where(part == 0, 0, part) for part in (out.real, out.imag)])
        return turned(out)

    functions = with_slope(compute, slope), with_slope(of_complex, slope)
    return lambda x: functions[jnp.iscomplexobj(x)](x)


def _times(a: Any, b: Any) -> Any:
    """a * b, and 0 where one of them is 0 and the other infinite."""
    return jnp.where((b == 0) & jnp.isinf(a), jnp.sign(a), a) * jnp.where((a == 0) & jnp.isinf(b), jnp.sign(b), b)


def _sine(compute: Callable[..., Any], *parts: Any, sign: int = 1) -> Callable[..., Any]:
    """A sine or cosine of any kind; of complex numbers by real ones, which lose no small part beside a large one."""
    sin, cos, sinh, cosh = parts

    def function(x: Any) -> Any:
        if not jnp.iscomplexobj(x):
            return compute(x)
        return jax.lax.complex(_times(sin(x.real), cosh(x.imag)), _times(sign * cos(x.real), sinh(x.imag)))

    return function


def _rsqrt(x: Any) -> Any:
    return quotient(1.0, jnp.sqrt(x)) if jnp.iscomplexobj(x) else jax.lax.rsqrt(x)


def _arctan(x: Any) -> Any:
    """jnp.arctan, which is infinite near its pole; of complex numbers, in the first quadrant."""
    found = jnp.arctan(x)
    if not jnp.iscomplexobj(x):
        return found
    distance = jnp.abs(jax.lax.complex(x.real, x.imag - 1))
    near = (distance > 0) & (distance < 1e-9)
    return jax.lax.complex(found.real, jnp.where(near, 0.5 * jnp.log(2 / jnp.where(near, distance, 1)), found.imag))


def _arctanh(x: Any) -> Any:
    """jnp.arctanh, likewise: the imaginary part of the inverse tangent of conj(x) * 1j is its real part.

    In float64 by the `log1p` below: with XLA's it is off by 128 roundings.
    """
    if not jnp.iscomplexobj(x):
        return 0.5 * (log1p(x) - log1p(-x)) if x.dtype == jnp.float64 else jnp.arctanh(x)
    return jax.lax.complex(_arctan(jax.lax.complex(x.imag, x.real)).imag, jnp.arctanh(x).imag)


def _root_slope(a: Any, b: Any) -> Any:
    return jax.lax.rsqrt(a) * jax.lax.rsqrt(b)


def _asinh_slope(x: Any) -> Any:
    if jnp.iscomplexobj(x):
        return _root_slope(1 - 1j * x, 1 + 1j * x)
    return quotient(1, jnp.abs(jax.lax.complex(jnp.ones_like(x), x)))


def _acosh_slope(x: Any) -> Any:
    size = x if jnp.iscomplexobj(x) else jnp.abs(x)
    return _root_slope(size - 1, size + 1)


def _atan_slope(x: Any) -> Any:
    return quotient(1, 1 - 1j * x) * quotient(1, 1 + 1j * x) if jnp.iscomplexobj(x) else quotient(1, 1 + x * x)


def _bent(slope: Callable[..., Any], factor: int, power: int) -> Callable[..., Any]:
    """A slope that has the slope factor * x * slope(x) ** power: other forms of that cancel or leave the range."""

    def bend(x: Any, out: Any) -> Any:
        return math.prod([out] * power, start=factor * x)

    function = with_slope(slope, bend)
    return lambda x, _: function(x)


_of_sine = _bent(lambda x: _root_slope(1 - x, 1 + x), 1, 3)

_cosh = with_slope(exponents.cosh, lambda x, _: _sinh(x))
_sinh = with_slope(exponents.sinh, lambda x, _: _cosh(x))

COMPLEX_TOO: dict[str, Callable[..., Any]] = {
    "acos": folded(jnp.arccos, lambda x, _: -_of_sine(x, _)),
    "acosh": folded(jnp.arccosh, _bent(_acosh_slope, -1, 3)),
    "asin": folded(jnp.arcsin, _of_sine, odd=True),
    "asinh": folded(jnp.arcsinh, _bent(_asinh_slope, -1, 3), odd=True),
    "atan": folded(_arctan, _bent(_atan_slope, -2, 2), odd=True),
    "atanh": folded(_arctanh, _bent(lambda x: quotient(1, 1 - x) * quotient(1, 1 + x), 2, 2), odd=True),
    "cos": _sine(jnp.cos, jnp.cos, jnp.sin, _sinh, _cosh, sign=-1),
    "cosh": _sine(_cosh, _cosh, _sinh, jnp.sin, jnp.cos),
    "exp": folded(lambda x: apart(jnp.exp(x)), lambda _, out: out),
    "exp2": folded(lambda x: apart(exponents.exp2(x)), lambda _, out: out * math.log(2)),
    "expm1": folded(jnp.expm1, lambda x, _: jnp.exp(x)),
    "rsqrt": folded(_rsqrt, lambda _, out: -0.5 * out * out * out),
    "sin": _sine(jnp.sin, jnp.sin, jnp.cos, _sinh, _cosh),
    "sinh": _sine(_sinh, _sinh, _cosh, jnp.sin, jnp.cos),
    "sqrt": folded(jnp.sqrt, lambda _, out: quotient(0.5, out)),
    "tan": folded(jnp.tan, lambda _, out: 1 + out * out, odd=True),
    "tanh": folded(jnp.tanh, lambda _, out: 1 - out * out, odd=True),
}

# jax's second derivatives have 1 - sigmoid, which is 0 where sigmoid(-x) is less than a rounding.
sigmoid = with_slope(jax.nn.sigmoid, lambda x, out: out * sigmoid(-x))
log1p_exp = with_slope(jax.nn.softplus, lambda x, _: sigmoid(x))


def log1p(x: Any) -> Any:
    """jax's, and in float64 between -0.5 and -0.25 -log1p of another place: XLA's is off by 120 roundings there."""
    return _log1p_of_doubles(x) if x.dtype == jnp.float64 else jnp.log1p(x)


def _log1p(x: Any) -> Any:
    turned = (x > -0.5) & (x < -0.25)
    found = jnp.log1p(jnp.where(turned, -x / (1 + x), x))
    return jnp.where(turned, -found, found)


_log1p_of_doubles = with_slope(_log1p, lambda x, _: 1 / (1 + x))


@jax.custom_jvp
def logits_loss(x: Any, target: Any, positive: Any, excess: Any) -> Any:
    """The cross entropy of sigmoid(x) and a target, which is positive if it is 1; excess: 1 - target + positive."""
    return (1 - target) * x + excess * log1p_exp(-x)


@logits_loss.defjvp
def _logits_loss_tangent(primals: tuple, tangents: tuple) -> tuple:
    """The tangent, where the tangents of the terms cancel: a small target, or sigmoid(x), beside 1."""
    (x, _, positive, excess), (dx, dt, _, de) = primals, tangents
    return logits_loss(*primals), dx * (excess * sigmoid(x) - positive) - dt * x + de * log1p_exp(-x)
