"""Declares functions of xgrad.special (entr, erfcx, log_ndtr, zeta, ...), and the incomplete gamma functions.

Most are `jax.scipy.special`'s under PyTorch's names, with PyTorch's derivatives where jax's differ, and mended where
jax's values are wrong.  (PyTorch: torch/special.)
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.scipy import special as js

from ...dispatch.declare import composite, operator
from ...dispatch.promotion import check_broadcast, promote_float, promote_together, require_floating
from ...dispatch.samples import BINARY_POSITIVE, FIRST_ORDER, POSITIVE, REAL, positive, sample
from ...dispatch.samples import unary as unary_samples
from ...dispatch.tables import FUNCTIONS
from ...tensor import Tensor
from ..reduce import reduction as reduction  # declares logsumexp
from .ends import log1p, quotient, with_slope
from .unary import i1, i1_slope, refuse_complex, series, sine_over, unary


def _erfcx(x: Any) -> Any:
    """erfcx; beyond 8 by its asymptotic series: x * sqrt(pi) * erfcx(x) = 1 - 1!! / (2x²) + 3!! / (2x²)² - ..."""
    near, far = jnp.where(x < 8, x, 8), jnp.where(x < 8, 8, x)
    large, small = jnp.ones_like(x), 0.5 / far / far
    for k in range(12, 0, -1):
        large = 1 - large * (2 * k - 1) * small
    # jax 0.7.2 has no erfcx, and jax 0.12's has second derivatives of single numbers only
    found = jnp.vectorize(js.erfcx)(near) if hasattr(js, "erfcx") else jnp.exp(near * near) * js.erfc(near)
    return jnp.where(x < 8, found, large / (far * math.sqrt(math.pi)))


def _log_ndtr(x: Any) -> Any:
    """jax's has 3e-4 of the value wrong at 4: 1 - ndtr(-x) cancels there."""
    t, low = x * math.sqrt(0.5), x < -1
    tail = jnp.where(low, -t, 1)
    return jnp.where(low, jnp.log(_erfcx(tail) / 2) - tail * tail, jnp.log1p(-0.5 * js.erfc(jnp.where(low, 0, t))))


def _sine_over(x: Any) -> Any:
    infinite = jnp.isinf(x)
    return jnp.where(infinite, 0, sine_over(jnp.where(infinite, 1, x)))


i0e = with_slope(js.i0e, lambda x, out: i1e(x) - jnp.sign(x) * out)
i1e = with_slope(js.i1e, lambda x, out: i1_slope(x, out, i0e, jnp.exp(-jnp.abs(x))) - jnp.sign(x) * out)

_UNARY = {
    # jax's derivative of entr is 0 below 0, and its derivative of |x|, which is part of i0e and i1e, is 1 at 0.
    "entr": (
        with_slope(js.entr, lambda x, _: -1 - jnp.log(x)), "-input * log(input); 0 at 0 and -inf of negative numbers.",
        POSITIVE,
    ),
    "erfcx": (_erfcx, "exp(input**2) * erfc(input), without overflow.", REAL),
    "i0e": (i0e, "exp(-|input|) times the modified Bessel function of the first kind, of order 0.", REAL),
    "i1": (i1, "The modified Bessel function of the first kind, of order 1.", REAL),
    "i1e": (i1e, "exp(-|input|) times the modified Bessel function of the first kind, of order 1.", REAL),
    "log_ndtr": (_log_ndtr, "The logarithm of the normal distribution function.", REAL),
    "ndtr": (js.ndtr, "The normal distribution function.", REAL),
    "ndtri": (
        with_slope(js.ndtri, lambda _, out: math.sqrt(2 * math.pi) * jnp.exp(out * out / 2)),
        "The inverse of the normal distribution function.", unary_samples(0.1, 0.9),
    ),
    "spherical_bessel_j0": (_sine_over, "The spherical Bessel function sin(x) / x, of order 0.", REAL),
}  # fmt: skip

for _name, (_compute, _doc, _samples) in _UNARY.items():
    unary(f"special_{_name}", _compute, _doc, _samples, namespace="special", method=False)


@operator("special_xlog1py", namespace="special", method=False, samples=BINARY_POSITIVE)
def xlog1py(self, other):
    """input * log1p(other); 0 where `input` is 0 and `other` is not NaN."""
    check_broadcast(self, other)
    self, other = promote_float(self, other)
    refuse_complex(self, "xlog1py")
    none = (self == 0) & ((other <= -1) | jnp.isposinf(other))
    return jnp.where(none, 0, self * log1p(jnp.where(none, 0, other)))


xlog1py.derivative(
    self=lambda grad, self, other: _xlog1py_self(grad, self, other),
    other=lambda grad, self, other: quotient(grad * self, other + 1),
)


def _xlog1py_self(grad: Any, self: Any, other: Any) -> Any:
    none = (self == 0) & (other <= -1)
    return jnp.where(none, 0, js.xlog1py(grad, jnp.where(none, 0, other)))


@operator("special_zeta", namespace="special", method=False, samples=(sample(2.0, positive(2, 3)),))
def zeta(self, other):
    """The Hurwitz zeta function of `input` at `other`."""
    check_broadcast(self, other)
    self, other = promote_float(self, other)
    refuse_complex(self, "zeta")
    return _zeta(self, other)


@jax.custom_jvp
def _zeta(x: Any, q: Any) -> Any:
    """jax's zeta, and for q < 0 sums of it: there jax's has too few terms (x = 2, q = -8.9: -7260 for 103.2).

    Only whole x have a value for q < 0.  The terms before 0 are the terms of zeta(x, 1 - part), `part` the fraction of
    q, up to q, with the sign (-1)**x.
    """
    whole, negative = x == jnp.floor(x), (q < 0) & jnp.isfinite(q)
    below = jnp.where(negative, q, -0.5)
    floor, sign = jnp.floor(below), jnp.where(x % 2 == 0, 1, -1)
    found = js.zeta(x, jnp.where(negative, below - floor, q))
    # `found` first: at halves of odd x it is the second term, and both are many times their difference.
    summed = found + sign * js.zeta(x, floor + 1 - below) - sign * js.zeta(x, 1 - below)
    found = jnp.where(negative, jnp.where(whole, summed, jnp.nan), found)
    # The corners in the order of Cephes, which PyTorch follows.
    found = jnp.where((q <= 0) & (q == jnp.floor(q)), jnp.inf, found)
    # jax's terms leave the range where the largest one alone is left: x is large, or q near 0.
    alone = jnp.isnan(found) & (x > 1) & ((q > 0) | (negative & whole))
    found = jnp.where(alone, jnp.where(alone, jnp.where(q > 0, q, q - jnp.round(q)), 1) ** -x, found)
    return jnp.where(x == 1, jnp.inf, jnp.where(x < 1, jnp.nan, found))


def _zeta_tangent(primals: tuple, tangents: tuple) -> Any:
    """Symbolic zeros, because the derivative by x at 1 is infinite, and that by q is not."""
    (x, q), (dx, dq) = primals, tangents
    value, parts = _zeta(x, q), []
    if not isinstance(dx, SymbolicZero):
        parts.append((jax.jvp(lambda x: _zeta.fun(x, q), (x,), (jnp.ones_like(x),))[1], dx))
    if not isinstance(dq, SymbolicZero):
        parts.append((-x * _zeta(x + 1, q), dq))
    ends = (value == 0) & (jnp.isinf(x) | jnp.isinf(q))  # one factor of a slope is infinite, another one 0
    return value, sum(jnp.where(ends, 0, slope) * d for slope, d in parts)


_zeta.defjvp(_zeta_tangent, symbolic_zeros=True)


def _incomplete_gamma(upper: bool, a: Any, x: Any) -> Any:
    """P(a, x) or Q(a, x); for large a by the uniform expansion of N. M. Temme (1979), cut after two terms.

    jax's sums end too early there: of float32 at a = x = 1e6 half of the digits is wrong, from 1e7 on all of them.
    """
    inside = (a > 0) & (x >= 0) & jnp.isfinite(a)
    ends = jnp.where(jnp.isposinf(a) & (x >= 0) & jnp.isfinite(x), 0, jnp.where((a == 0) & (x > 0), 1, jnp.nan))
    a, x = jnp.where(inside, a, 1), jnp.where(inside, x, 1)
    large = (a > (1e5 if a.dtype == jnp.float64 else 200)) & jnp.isfinite(x)
    found = (js.gammaincc if upper else js.gammainc)(jnp.where(large, 1, a), jnp.where(large, 1, x))
    n, part = jnp.where(large, a, 1), jnp.where(large, (x - a) / a, 0)
    part = jnp.maximum(part, jnp.finfo(a.dtype).eps - 1)  # its logarithm is finite: at x = 0 `rest` is 0 times that
    near = jnp.abs(part) < 0.3
    low, high = jnp.where(near, part, 0), jnp.where(near, 1, part)
    far = jnp.sign(high) * jnp.sqrt(2 * (high - jnp.log1p(high)))
    eta = jnp.where(near, low * jnp.sqrt(series(low, 24, lambda k: -(k + 1) / (k + 2))), far)
    c = jnp.where(near, jnp.polyval(jnp.asarray(_TEMME, a.dtype), jnp.where(near, eta, 0)), 1 / high - 1 / far)
    rest = jnp.exp(-n * eta * eta / 2) / jnp.sqrt(2 * math.pi * n) * (c - (1 / 540 + eta / 288) / n)
    sign = 1 if upper else -1
    found = jnp.where(large, 0.5 * js.erfc(sign * eta * jnp.sqrt(n / 2)) + sign * rest, found)
    return jnp.where(inside, found, 1 - ends if upper else ends)


_TEMME = -571 / 261273600, 1 / 25515, -139 / 777600, 1 / 2835, 1 / 864, -2 / 135, 1 / 12, -1 / 3


def _incomplete(name: str, compute: Any, alias: str, doc: str) -> None:
    def function(self, other):
        self, other = promote_together(self, other)
        require_floating(self, name)
        refuse_complex(self, name)
        return compute(self, other)

    function.__doc__ = doc
    operator(name, inplace=True, samples=BINARY_POSITIVE + FIRST_ORDER)(function)
    FUNCTIONS.setdefault("special", {})[alias] = FUNCTIONS[""][name]


_incomplete(
    "igamma",
    partial(_incomplete_gamma, False),
    "gammainc",
    "The regularized lower incomplete gamma function P(input, other).",
)
_incomplete(
    "igammac",
    partial(_incomplete_gamma, True),
    "gammaincc",
    "The regularized upper incomplete gamma function Q(input, other).",
)


@composite("softmax", method=False, namespace="special")
def _softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """exp(x) over its sum along `dim`: `xgrad.softmax`."""
    return FUNCTIONS[""]["softmax"](input, dim, dtype=dtype)


@composite("log_softmax", method=False, namespace="special")
def _log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of softmax along `dim`: `xgrad.log_softmax`."""
    return FUNCTIONS[""]["log_softmax"](input, dim, dtype=dtype)


FUNCTIONS["special"]["logsumexp"] = FUNCTIONS[""]["logsumexp"]
