"""Declares pointwise functions of one array (exp, sin, abs, round, ...), most of them from a table.

Functions whose derivative is simplest in terms of their result save that, as PyTorch does; most others save their
input and are differentiated by JAX.  With a constant slope (round, deg2rad) nothing is saved.  (PyTorch: UnaryOps.cpp.)
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special as js

from ...base import dtypes
from ...base.dtypes import torch_name
from ...dispatch.call import call
from ...dispatch.declare import Declared, composite, operator
from ...dispatch.inplace import call_inplace
from ...dispatch.out import call_out
from ...dispatch.promotion import as_float, conj, require_floating, require_real, scalar, widen
from ...dispatch.samples import COMPLEX, POSITIVE, REAL, SINGLE, UNIT, between, positive, sample
from ...dispatch.samples import unary as unary_samples
from ...dispatch.tables import FUNCTIONS
from ...return_types import frexp as frexp_result
from ...tensor import Tensor
from . import bits, exponents
from .arithmetic import zero
from .ends import COMPLEX_TOO, arctan2, log1p, quotient, sigmoid, unit, with_slope

LN2, LN10 = math.log(2), math.log(10)
FROM_ONE = unary_samples(1.2, 3)


def refuse_complex(x: Any, name: str) -> None:
    if x.dtype in dtypes.COMPLEX:
        raise NotImplementedError(f"\"{name}\" not implemented for '{torch_name(x.dtype)}'")


# -- floating-point functions: integers and bools become the default float --------------------------------------


def polygamma_of(n: int) -> Callable[..., Any]:
    """The n-th derivative of the digamma function, whose derivative is the next."""
    return with_slope(partial(_polygamma if n else _digamma, n), lambda x, _: polygamma_of(n + 1)(x))


def _polygamma(n: int, x: Any) -> Any:
    """jax's polygamma; reflected for negative numbers, where its zeta is wrong (n = 1, x = -8.9: -7260 for 103.2)."""
    if n > _MOST_REFLECTED:
        return js.polygamma(n, x)
    negative, far = x <= 0, x > 1e5
    positive = jnp.where(negative, 1 - x, x)
    there = js.polygamma(n, positive) if n else js.digamma(jnp.where(positive == 0, 1, positive))
    reflected = (-1) ** n * (there - math.pi ** (n + 1) * _cot_derivative(n, _cot(jnp.where(negative, x, 0.5))))
    if 0 < n < 20:  # where jax's quotient of powers leaves the range: three terms of the series
        y = n / jnp.where(far, x, 1)
        there = jnp.where(far, -math.factorial(n - 1) * (-y / n) ** n * (1 + y / 2 + y * y * (1 + 1 / n) / 12), there)
    return jnp.where(negative, reflected, there)


_MOST_REFLECTED = 100  # n! has 158 digits


def _cot_derivative(n: int, cot: Any) -> Any:
    """The n-th derivative of the cotangent without its sign, (-1)**n, as a polynomial of the cotangent."""
    coefficients = [0, 1]
    for _ in range(n):  # times 1 + cot² after the derivative
        slope = [k * c for k, c in enumerate(coefficients)][1:]
        coefficients = [a + b for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    total = jnp.full_like(cot, float(coefficients[-1]))
    for coefficient in reversed(coefficients[:-1]):
        total = total * cot + float(coefficient)
    return total


def _cotangent(x: Any) -> Any:
    turn = x - jnp.round(x)
    return jnp.where(jnp.abs(turn) == 0.5, 0, 1 / jnp.tan(math.pi * turn))  # the cotangent of a rounded pi/2 is not 0


# The slope is a polynomial of the result: a quotient loses all digits at -0.5, -1.5, ..., where it is infinite.
_cot = with_slope(_cotangent, lambda _, out: -math.pi * (1 + out * out))


def series(y: Any, terms: int, ratio: Callable[..., Any]) -> Any:
    """1 + y * ratio(1) * (1 + y * ratio(2) * (...)), by Horner's rule."""
    total = jnp.ones_like(y)
    for k in range(terms, 0, -1):
        total = 1 + y * ratio(k) * total
    return total


def sine_over(x: Any) -> Any:
    """sin(x) / x, by its series near 0, where derivatives of the quotient cancel (jnp.sinc has -2e14 at 1e-30)."""
    near = jnp.abs(x) < 0.5
    far = jnp.where(near, 1, x)
    return jnp.where(
        near, series(jnp.where(near, x * x, 0), 8, lambda k: -1 / (2 * k * (2 * k + 1))), jnp.sin(far) / far
    )


# (-1)**k (zeta(k) - 1) / k, from k = 2 on
_OF_LGAMMA = (
    0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986, 0.0028905103307415234,
    -0.001192753911703261, 0.0005096695247430425, -0.00022315475845357939, 9.945751278180853e-05,
    -4.492623673813314e-05, 2.050721277567069e-05, -9.439488275268397e-06, 4.374866789907488e-06,
    -2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07, 2.1207184805554665e-07,
    -1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08, 1.0838659214896955e-08,
    -5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09, 5.731367241678862e-10,
)  # fmt: skip


def _lgamma(x: Any) -> Any:
    """jax's, and from 0 to 8.5 the series around 2, from where a product leads: jax's is 5e-7 at 1 in float32."""
    near = (x > 0) & (x < 8.5)
    there = jnp.where(near, x, 1)
    z = there - jnp.floor(there + 0.5)
    total = jnp.zeros_like(z)
    for coefficient in reversed(_OF_LGAMMA if x.dtype == jnp.float64 else _OF_LGAMMA[:12]):
        total = (total + coefficient) * z
    total = (total + (1 - np.euler_gamma)) * z  # lgamma(2 + z)
    up, down = jnp.where(x < 0.5, there * (there + 1), there), jnp.ones_like(z)
    for k in range(1, 7):
        down = down * jnp.where(there - k >= 1.5, there - k, 1)
    total = jnp.where(x < 1.5, total - jnp.log(up), total + jnp.log(down))
    return jnp.where(near, total, js.gammaln(x))


lgamma = with_slope(_lgamma, lambda x, _: digamma(x))


def _digamma(n: int, x: Any) -> Any:
    """The digamma function; at 0 infinite with the sign of -x, at negative integers NaN, as in PyTorch."""
    result = jnp.where(x == 0, bits.copysign(jnp.inf, -x).astype(x.dtype), _polygamma(n, x))
    return jnp.where((x < 0) & (x == jnp.floor(x)), jnp.nan, result)


digamma: Any = polygamma_of(0)
i0: Any = with_slope(js.i0, lambda x, _: i1(x))
i1: Any = with_slope(js.i1, lambda x, out: i1_slope(x, out))


def i1_slope(x: Any, result: Any, i0: Callable[..., Any] = i0, scale: Any = 1) -> Any:
    """The derivative of i1, by its series near 0, where the quotient cancels."""
    near = jnp.abs(x) < 0.5
    far = jnp.where(near, 1, x)
    small = 0.5 * series(jnp.where(near, x * x / 4, 0), 8, lambda k: (2 * k + 1) / (2 * k - 1) / (k * (k + 1)))
    return jnp.where(near, scale * small, i0(far) - result / far)


def _angle(x: Any) -> Any:
    if x.dtype not in dtypes.COMPLEX:
        return jax.lax.stop_gradient(jnp.where(jnp.isnan(x), x, jnp.where(x < 0, jnp.asarray(math.pi, x.dtype), 0)))
    # arctan2 has no derivative at the origin: PyTorch's is 0 there.
    origin = x == 0
    there = jnp.where(origin, 1, x)
    return jnp.where(origin, jax.lax.stop_gradient(jnp.angle(x)), arctan2(there.imag, there.real))


def unary(name: str, compute: Callable[..., Any], doc: str, samples: tuple[Any, ...], **options: Any) -> Declared:
    """Declare a floating-point function of one array.  With `COMPLEX` beside its samples it takes complex numbers."""
    complex_too, halves = COMPLEX[0] in samples, SINGLE[0] not in samples

    def function(self):
        self = as_float(self)
        if not complex_too:
            refuse_complex(self, name)
        wide = widen(self) if halves else self
        return compute(self) if wide is self else compute(wide).astype(self.dtype)

    function.__doc__ = doc
    return operator(name, pointwise=True, samples=samples, **options)(function)


def _erfinv_slope(out: Any) -> Any:
    return (math.sqrt(math.pi) / 2) * jnp.exp(out * out)


def _erfinv(x: Any) -> Any:
    """XLA's, and a step of Newton's method towards 1, where it is off by 65 roundings, and by 5e5 in float64."""
    found, size = js.erfinv(x), jnp.abs(x)
    step = (js.erfc(jnp.abs(found)) - (1 - size)) * _erfinv_slope(found)
    return jnp.where((size > 0.5) & jnp.isfinite(found), found + jnp.where(x < 0, -step, step), found)


def _floating(
    name: str, compute: Callable, doc: str, *aliases: str, samples: tuple = REAL, real: bool = False
) -> Declared:
    """Declare a function with an in-place form; `real`: it refuses complex numbers."""
    return unary(name, compute, doc, samples if real else samples + COMPLEX, inplace=True, aliases=aliases)


_floating("acos", COMPLEX_TOO["acos"], "The inverse cosine, in radians.", "arccos", samples=UNIT)
_floating("acosh", COMPLEX_TOO["acosh"], "The inverse hyperbolic cosine.", "arccosh", samples=FROM_ONE)
_floating("asin", COMPLEX_TOO["asin"], "The inverse sine, in radians.", "arcsin", samples=UNIT)
_floating("asinh", COMPLEX_TOO["asinh"], "The inverse hyperbolic sine.", "arcsinh")
_floating("atan", COMPLEX_TOO["atan"], "The inverse tangent, in radians.", "arctan")
_floating("atanh", COMPLEX_TOO["atanh"], "The inverse hyperbolic tangent.", "arctanh", samples=UNIT)
_floating("cos", COMPLEX_TOO["cos"], "The cosine of radians.")
_floating("cosh", COMPLEX_TOO["cosh"], "The hyperbolic cosine.")
_floating("deg2rad", jnp.deg2rad, "Degrees as radians.", real=True).derivative(self=lambda grad: grad * (math.pi / 180))
_floating("digamma", digamma, "The logarithmic derivative of the gamma function.", samples=POSITIVE, real=True)
_floating("erf", js.erf, "The error function.", real=True)
_floating("erfc", js.erfc, "1 - erf(input), without cancellation.", real=True)
_floating(
    "erfinv", with_slope(_erfinv, lambda _, out: _erfinv_slope(out)),
    "The inverse of the error function.", samples=UNIT, real=True,
)  # fmt: skip
_floating("exp", COMPLEX_TOO["exp"], "e to the power of the elements.").derivative(
    self=lambda grad, result: grad * conj(result)
)
_floating("exp2", COMPLEX_TOO["exp2"], "2 to the power of the elements.").derivative(
    self=lambda grad, result: grad * conj(result) * LN2
)
_floating("expm1", COMPLEX_TOO["expm1"], "exp(input) - 1, without cancellation near 0.").derivative(
    self=lambda grad, result: grad * conj(result + 1)
)
_floating("i0", i0, "The modified Bessel function of the first kind, of order 0.", real=True)
_floating(
    "lgamma", lgamma, "The logarithm of the gamma function's absolute value.",
    samples=POSITIVE, real=True,
)  # fmt: skip
_floating("log", jnp.log, "The natural logarithm; NaN of negative numbers, -inf of 0.", samples=POSITIVE)
_floating(
    "log10", with_slope(exponents.log10, lambda x, _: quotient(1 / LN10, x)), "The logarithm to base 10.",
    samples=POSITIVE,
)  # fmt: skip
_floating("log1p", log1p, "log(1 + input), without cancellation near 0.", samples=UNIT)
_floating(
    "log2", with_slope(exponents.log2, lambda x, _: quotient(1 / LN2, x)), "The logarithm to base 2.",
    samples=POSITIVE,
)  # fmt: skip
_floating("rad2deg", jnp.rad2deg, "Radians as degrees.", real=True).derivative(self=lambda grad: grad * (180 / math.pi))
_floating("sigmoid", sigmoid, "1 / (1 + exp(-input)).").derivative(
    self=lambda grad, result: grad * conj(result * (1 - result))
)
_floating("sin", COMPLEX_TOO["sin"], "The sine of radians.")
_floating("sinc", lambda x: sine_over(math.pi * x), "sin(pi * input) / (pi * input); 1 at 0.")
_floating("sinh", COMPLEX_TOO["sinh"], "The hyperbolic sine.")
_floating("tan", COMPLEX_TOO["tan"], "The tangent of radians.", samples=UNIT).derivative(
    self=lambda grad, result: grad * conj(1 + result * result)
)
_floating("tanh", COMPLEX_TOO["tanh"], "The hyperbolic tangent.").derivative(
    self=lambda grad, result: grad * conj(1 - result * result)
)

angle: Declared = unary("angle", _angle, "The angle of complex numbers; 0 or pi of real ones.", REAL + COMPLEX)


# -- rounding: integers are as they are -------------------------------------------------------------------------------


def _rounding(name: str, compute: Callable, doc: str, **options: Any) -> None:
    def function(self):
        require_real(self, name)
        return compute(self) if self.dtype in dtypes.FLOATS else self

    function.__doc__ = doc
    operator(name, inplace=True, pointwise=True, samples=REAL, **options)(function).derivative(self=zero)


_rounding("ceil", jnp.ceil, "The smallest integer that is not less.")
_rounding("floor", jnp.floor, "The largest integer that is not greater.")
_rounding("trunc", jnp.trunc, "The integer part.", aliases=("fix",))


@operator(
    inplace=True,
    pointwise=True,
    samples=(*REAL, sample(between(-2, 2, 2, 3), decimals=1), sample(between(-90, 90, 2, 3), decimals=-1)),
)
def round(self, *, decimals=0):
    """The nearest number with that many decimals (a negative number: multiples of 10, 100, ...); ties to the even one.

    >>> import xgrad
    >>> xgrad.round(xgrad.tensor([0.5, 1.5, 2.5]))
    tensor([0., 2., 2.])
    """
    require_real(self, "round")
    if self.dtype not in dtypes.FLOATS:
        if decimals:
            raise NotImplementedError(f"\"round\" not implemented for '{torch_name(self.dtype)}' with decimals")
        return self
    if not decimals:
        return jnp.round(self)
    x = self.astype(jnp.promote_types(self.dtype, jnp.float32))
    places = max(decimals, -decimals)
    power = 10.0**places if places <= 308 else math.inf
    # XLA would multiply by the reciprocal, which is not exact: 53.6 would be 53.600002.
    found = jnp.round(quotient(x, power)) * power if decimals < 0 else quotient(jnp.round(x * power), power)
    return found.astype(self.dtype)


round.derivative(self=zero)


@operator(inplace=True, pointwise=True, samples=REAL)
def frac(self):
    """The part after the point, with the sign of the element."""
    require_floating(self, "frac")
    refuse_complex(self, "frac")
    return self - jnp.trunc(self)


frac.derivative(self=lambda grad: grad)


@operator(outputs=frexp_result, samples=REAL)
def frexp(self):
    """Mantissas in [0.5, 1) and int32 exponents of 2: input = mantissa * 2**exponent."""
    require_floating(self, "frexp")
    refuse_complex(self, "frexp")
    mantissa, exponent = bits.frexp(self)
    return mantissa, exponent.astype(jnp.int32)


# -- signs and parts --------------------------------------------------------------------------------------------------


@operator(inplace=True, aliases=("absolute",), dunder="__abs__", samples=REAL + COMPLEX)
def abs(self):
    """The absolute value; of complex numbers, real.  Its derivative at 0 is 0."""
    if self.dtype == bool:
        raise NotImplementedError("\"abs\" not implemented for 'Bool'")
    return jnp.abs(self) if self.dtype in dtypes.COMPLEX else _magnitude(self)


_magnitude = with_slope(jnp.abs, lambda x, _: unit(x))  # 0 at 0, where jax's is 1


abs.derivative(self=lambda grad, self: grad * unit(self))


@composite("abs_", aliases=("absolute_",))
def _abs_inplace(input: Tensor) -> Tensor:
    """In-place version of `xgrad.abs`; refused for complex tensors, whose absolute value is real."""
    if input.dtype in dtypes.COMPLEX:
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return call_inplace(abs.operator, (input,), ())


@operator(inplace=True, samples=REAL + COMPLEX)
def sgn(self):
    """The sign, -1, 0 or 1; of complex numbers, input / abs(input), and 0 at 0."""
    return unit(self)


@operator(inplace=True, pointwise=True, samples=REAL)
def sign(self):
    """The sign, -1, 0 or 1.  Raises for complex numbers, which have `sgn`."""
    if self.dtype in dtypes.COMPLEX:
        raise NotImplementedError(
            "Unlike NumPy, sign is not intended to support complex numbers. Please use sgn instead."
        )
    return unit(self)


sign.derivative(self=zero)


@operator(differentiable=False, samples=REAL)
def signbit(self):
    """True where the sign bit is set: for negative numbers and for -0.0."""
    refuse_complex(self, "signbit")
    return bits.signbit(self) if self.dtype in dtypes.FLOATS else self < 0


@operator(inplace=True, samples=REAL + COMPLEX)
def nan_to_num(self, nan=0.0, posinf=None, neginf=None):
    """The elements, NaN replaced by `nan`, infinities by `posinf` and `neginf` (None: by the largest numbers)."""
    if self.dtype not in dtypes.INEXACT:
        return self
    infinities = (("posinf", posinf), ("neginf", neginf))
    posinf, neginf = (None if v is None else scalar(self, v, name) for name, v in infinities)
    return jnp.nan_to_num(self, nan=scalar(self, 0.0 if nan is None else nan, "nan"), posinf=posinf, neginf=neginf)


nan_to_num.derivative(self=lambda grad, self: jnp.where(jnp.isfinite(self), grad, 0))


@operator(inplace=True, samples=(*unary_samples(0.1, 0.9), sample(between(0.1, 0.9, 2, 3), 0.2)))
def logit(self, eps=None):
    """log(input / (1 - input)); `input` is first brought into [eps, 1 - eps] if `eps` is given."""
    self = as_float(self)
    refuse_complex(self, "logit")
    if eps is not None:
        eps = scalar(self, eps, "eps")
        self = jnp.where(self < eps, eps, jnp.where(self > 1 - eps, 1 - eps, self))
    return _log_odds(self)


def _log_odds_slope(x: Any, _: Any) -> Any:
    outside = (x < 0) | (x > 1)
    return jnp.where(outside, jnp.nan, quotient(1, jnp.where(outside, 0.5, x * (1 - x))))


_log_odds = with_slope(lambda x: jnp.log(x / (1 - x)), _log_odds_slope)


# -- the gamma function's family --------------------------------------------------------------------------------------


@operator("polygamma", function=False, inplace=True, samples=tuple([sample(positive(2, 3), n=n) for n in (0, 1, 3)]))
def _of_order(self, *, n):
    """The `n`-th derivative of the digamma function."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, got n = {n}")
    self = as_float(self)
    refuse_complex(self, "polygamma")
    return polygamma_of(n)(self)


@composite(method=False, namespace=("", "special"))
def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The `n`-th derivative of the digamma function."""
    op = _of_order.operator
    return call(op, (input,), (n,)) if out is None else call_out(op, (input,), (n,), out)


@operator(inplace=True, samples=(sample(between(1.2, 3, 2, 3), p=3),))
def mvlgamma(self, *, p):
    """The logarithm of the multivariate gamma function of dimension `p`."""
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
    require_real(self, "mvlgamma")
    self = as_float(self)
    # Summed here: js.multigammaln reads values to check its domain.
    shifts = lgamma(self[..., None] - jnp.arange(p, dtype=self.dtype) / 2)
    return (shifts.sum(-1) + p * (p - 1) / 4 * math.log(math.pi)).astype(self.dtype)


# torch.special's names for functions that are declared above.
_SPECIAL = {
    "psi": "digamma", "gammaln": "lgamma", "expit": "sigmoid", "multigammaln": "mvlgamma",
    **{n: n for n in ("digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "i0", "log1p", "logit", "round", "sinc")},
}  # fmt: skip
for _alias, _name in _SPECIAL.items():
    FUNCTIONS.setdefault("special", {})[_alias] = FUNCTIONS[""][_name]
