"""Declares xgrad.special's Chebyshev, Hermite, Laguerre and Legendre polynomials, with a degree for each element.

One recurrence computes them all, and their derivatives to any order: the d-th derivative of

    c[k] p[k+1] = (a[k] x + b[k]) p[k] - e[k] p[k-1]

is the same recurrence with d a[k] p[k]^(d-1) added.  Chebyshev polynomials of high degree are sines and cosines.
(PyTorch: ATen/native/Math.h; it has no derivatives.)
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...dispatch.declare import operator
from ...dispatch.promotion import check_broadcast, promote_float, require_32_bits
from ...dispatch.samples import SINGLE, between, sample, whole
from .unary import refuse_complex


class _Family(NamedTuple):
    """`first`: slope and constant of the polynomial of degree 1.  `step`: (a, b, c, e) for k."""

    first: tuple[float, float]
    step: Callable[[Any], tuple[Any, ...]]
    # (x, its value for a degree), for each x where the values are integers
    ends: tuple[tuple[int, Callable[..., Any]], ...] = ()
    wave: Callable[..., Any] | None = None  # the value at cos(angle), for a degree and an angle
    limited: bool = False  # above the degree 128 (in float64: 512) PyTorch gives NaN


def _sign(n: Any) -> Any:
    return 1 - 2 * (n % 2)


def _chebyshev(first: tuple, wave: Callable, high: Callable, low: Callable) -> _Family:
    """Make a family of Chebyshev polynomials.  `high`, `low`: the absolute values at 1 and -1."""
    return _Family(first, lambda k: (2, 0, 1, 1), ((1, high), (-1, lambda n: _sign(n) * low(n))), wave)


def _one(n: Any) -> Any:
    return jnp.ones_like(n)


_FAMILIES = {
    "chebyshev_polynomial_t": _chebyshev((1, 0), lambda n, angle: jnp.cos(n * angle), _one, _one),
    "chebyshev_polynomial_u": _chebyshev(
        (2, 0), lambda n, angle: jnp.sin((n + 1) * angle) / jnp.sin(angle), lambda n: n + 1, lambda n: n + 1
    ),
    "chebyshev_polynomial_v": _chebyshev(
        (2, -1), lambda n, angle: jnp.cos((n + 0.5) * angle) / jnp.cos(angle / 2), _one, lambda n: 2 * n + 1
    ),
    "chebyshev_polynomial_w": _chebyshev(
        (2, 1), lambda n, angle: jnp.sin((n + 0.5) * angle) / jnp.sin(angle / 2), lambda n: 2 * n + 1, _one
    ),
    "hermite_polynomial_h": _Family((2, 0), lambda k: (2, 0, 1, 2 * k), limited=True),
    "hermite_polynomial_he": _Family((1, 0), lambda k: (1, 0, 1, k), limited=True),
    "laguerre_polynomial_l": _Family((-1, 1), lambda k: (-1, 2 * k + 1, k + 1, k), ((0, _one),)),
    "legendre_polynomial_p": _Family((1, 0), lambda k: (2 * k + 1, 0, k + 1, k), ((1, _one), (-1, _sign))),
}


def _jets(family: _Family, x: Any, n: Any, order: int) -> Any:
    """The `order`-th derivative.  The loop carries all derivatives up to it, of two neighbouring polynomials."""
    slope, constant = family.first
    zero, one = jnp.zeros_like(x), jnp.ones_like(x)
    start = [one, *[zero] * order], [slope * x + constant, slope * one, *[zero] * order][: order + 1]

    def going(k: Any, q: list) -> Any:
        return (k < n) & ~jnp.isnan(q[0])

    def body(carry: tuple) -> tuple:
        k, p, q = carry
        a, b, c, e = family.step(k)
        r = [((a * x + b) * q[d] + (d * a * q[d - 1] if d else 0) - e * p[d]) / c for d in range(order + 1)]
        more = going(k, q)
        return (
            k + 1,
            [jnp.where(more, new, old) for new, old in zip(q, p)],
            [jnp.where(more, new, old) for new, old in zip(r, q)],
        )

    carry = (jnp.ones((), x.dtype), *start)
    _, _, found = jax.lax.while_loop(lambda carry: going(carry[0], carry[2]).any(), body, carry)
    return jnp.where(n < 0, 0, jnp.where(n == 0, 0 if order else 1, found[order]))


def _waves(wave: Callable, inside: Any, x: Any, n: Any) -> Any:
    """The values where `inside` is true, if anywhere: sines and cosines cost as much as ten steps of the recurrence."""
    return jax.lax.cond(inside.any(), lambda: wave(n, jnp.arccos(jnp.where(inside, x, 0))), lambda: jnp.zeros_like(x))


@functools.cache
def _derivative(name: str, order: int) -> Callable:
    """Make the `order`-th derivative of a family: a function of x and n, with its derivative as its own jvp."""
    family = _FAMILIES[name]

    @jax.custom_jvp
    def value(x: Any, n: Any) -> Any:
        known = []  # (where, value): elements that take no part in the loop, however high their degrees
        if not order:
            known = [((x == at) & (n > 0), end(n)) for at, end in family.ends]
        if family.wave is not None and not order:
            inside = (n > 8) & (x > -1) & (x < 1)
            known.append((inside, _waves(family.wave, inside, x, n)))
        if family.limited:
            known.append((n > (512 if x.dtype == jnp.float64 else 128), jnp.nan))
        degree = n
        for where, _ in known:
            degree = jnp.where(where, 0, degree)
        found = _jets(family, x, degree, order)
        for where, exact in known:
            found = jnp.where(where, exact, found)
        return found

    @value.defjvp
    def tangent(primals: tuple, tangents: tuple) -> tuple:
        return value(*primals), _derivative(name, order + 1)(*primals) * tangents[0]

    return value


_SAMPLES = (
    sample(between(-0.9, 0.9, 2, 3), 3), sample(between(-0.9, 0.9, 2, 3), whole(0, 4, 3)),
    sample(between(-0.9, 0.9, 0, 3), whole(0, 4, 3)),
) + SINGLE  # fmt: skip


def _declare(name: str, symbol: str, doc: str, shifted: bool = False) -> None:
    public = f"shifted_{name}" if shifted else name

    def function(self, n):
        check_broadcast(self, n)
        x, n = promote_float(self, n)
        refuse_complex(x, public)
        require_32_bits(x, public)
        x, n = jnp.broadcast_arrays(x, n)
        degree = jnp.where(jnp.isfinite(n), jnp.trunc(n), -1)
        return _derivative(name, 0)(2 * x - 1 if shifted else x, degree)

    function.__doc__ = f"{doc} {symbol}(input), of a degree `n` for each element; 0 where that is negative."
    operator(f"special_{public}", namespace="special", method=False, samples=_SAMPLES)(function)


_KINDS = {"t": "first", "u": "second", "v": "third", "w": "fourth"}
for _letter, _kind in _KINDS.items():
    _name, _title = f"chebyshev_polynomial_{_letter}", f"hebyshev polynomial of the {_kind} kind,"
    _declare(_name, f"{_letter.upper()}_n", f"The C{_title}")
    _declare(_name, f"{_letter.upper()}*_n", f"The shifted C{_title}", shifted=True)
_declare("hermite_polynomial_h", "H_n", "The physicists' Hermite polynomial")
_declare("hermite_polynomial_he", "He_n", "The probabilists' Hermite polynomial")
_declare("laguerre_polynomial_l", "L_n", "The Laguerre polynomial")
_declare("legendre_polynomial_p", "P_n", "The Legendre polynomial")
