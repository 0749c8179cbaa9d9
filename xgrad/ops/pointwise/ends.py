"""Formulas that hold to the ends of the dtypes' ranges, on branch cuts, and beside others in one program.

JAX's derivative of a quotient has 1 / b², which leaves the range where the result does not, and XLA makes a / (b * b)
of two divisions.  Of complex functions XLA forgets the sign of a zero, which says on which side of a cut a number is.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ...dtypes import INEXACT
from ...platforms import traced_for


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


@partial(quotient.defjvp, symbolic_zeros=True)
def _quotient_tangent(primals: tuple, tangents: tuple) -> tuple:
    (a, b), (da, db) = primals, tangents
    out = quotient(a, b)
    moved = jnp.zeros_like(out) if isinstance(da, SymbolicZero) else jnp.divide(da, b)
    return out, moved if isinstance(db, SymbolicZero) else moved - jnp.divide(out * db, b)


def over_twice(a: Any, b: Any) -> Any:
    """(a / b) / b."""
    return quotient(quotient(a, b), b)


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


def folded(compute: Callable[..., Any], slope: Callable[..., Any], odd: bool = False) -> Callable[..., Any]:
    """A function for which f(conj(z)) = conj(f(z)), and f(-z) = -f(z) if it is `odd`, with the signs of zeros.

    It is computed in the upper half plane, or in the first quadrant.  `slope`: of the argument and the result, the
    derivative of complex numbers.
    """

    @jax.custom_jvp
    def of_complex(x: Any) -> Any:
        signs = [jnp.signbit(part) & side for part, side in ((x.real, odd), (x.imag, True))]

        def turned(z: Any) -> Any:
            return jax.lax.complex(*[jnp.where(s, -part, part) for s, part in zip(signs, (z.real, z.imag))])

        out = compute(turned(x))
        if odd:  # jnp.arctan has a negative zero there
            out = jax.lax.complex(*[jnp.where(part == 0, 0, part) for part in (out.real, out.imag)])
        return turned(out)

    @of_complex.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        out = of_complex(*primals)
        return out, slope(*primals, out) * tangents[0]

    return lambda x: of_complex(x) if jnp.iscomplexobj(x) else compute(x)


def _sine(compute: Callable[..., Any], *parts: Any, sign: int = 1) -> Callable[..., Any]:
    """A sine or cosine of any kind; of complex numbers by real ones, which lose no small part beside a large one."""
    sin, cos, sinh, cosh = parts

    def function(x: Any) -> Any:
        if not jnp.iscomplexobj(x):
            return compute(x)
        return jax.lax.complex(sin(x.real) * cosh(x.imag), sign * cos(x.real) * sinh(x.imag))

    return function


def _slope(a: Any, b: Any) -> Any:
    return quotient(1, a) * quotient(1, b)


def _root_slope(a: Any, b: Any) -> Any:
    return jax.lax.rsqrt(a) * jax.lax.rsqrt(b)


COMPLEX_TOO: dict[str, Callable[..., Any]] = {
    "acos": folded(jnp.arccos, lambda x, _: -_root_slope(1 - x, 1 + x)),
    "acosh": folded(jnp.arccosh, lambda x, _: _root_slope(x - 1, x + 1)),
    "asin": folded(jnp.arcsin, lambda x, _: _root_slope(1 - x, 1 + x), odd=True),
    "asinh": folded(jnp.arcsinh, lambda x, _: _root_slope(1 - 1j * x, 1 + 1j * x), odd=True),
    "atan": folded(jnp.arctan, lambda x, _: _slope(1 - 1j * x, 1 + 1j * x), odd=True),
    "atanh": folded(jnp.arctanh, lambda x, _: _slope(1 - x, 1 + x), odd=True),
    "cos": _sine(jnp.cos, jnp.cos, jnp.sin, jnp.sinh, jnp.cosh, sign=-1),
    "cosh": _sine(jnp.cosh, jnp.cosh, jnp.sinh, jnp.sin, jnp.cos),
    "exp": folded(lambda x: apart(jnp.exp(x)), lambda _, out: out),
    "exp2": folded(lambda x: apart(jnp.exp2(x)), lambda _, out: out * math.log(2)),
    "expm1": folded(jnp.expm1, lambda _, out: out + 1),
    "sin": _sine(jnp.sin, jnp.sin, jnp.cos, jnp.sinh, jnp.cosh),
    "sinh": _sine(jnp.sinh, jnp.sinh, jnp.cosh, jnp.sin, jnp.cos),
    "sqrt": folded(jnp.sqrt, lambda _, out: quotient(0.5, out)),
    "tan": folded(jnp.tan, lambda _, out: 1 + out * out, odd=True),
    "tanh": folded(jnp.tanh, lambda _, out: 1 - out * out, odd=True),
}
