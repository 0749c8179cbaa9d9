"""exp2, log2, log10, sinh and cosh: within a few roundings of PyTorch's, where XLA's are not.

XLA has exp2(x) = exp(x * log(2)), log10(x) = log(x) / log(10) and cosh(x) = exp(x - log(2)) + ..., and a rounding of
what goes into an exponential, or comes out of a logarithm, is many of the result: exp2(26.0) was 8 roundings off,
log10(1e15) fell below 15.  Here exponents of 2 are whole numbers, which are exact, and what is left of them is small.
Of complex numbers exp2 and the logarithms are JAX's.  Derivatives are declared where these are used.
"""

import math
from fractions import Fraction
from typing import Any

import jax.numpy as jnp

from ...base.dtypes import FLOATS
from . import bits

_LOG10_2 = Fraction("0.30102999566398119521373889472449302676818988146210854131")


def exp2(x: Any) -> Any:
    """2**n * exp((x - n) * log(2)), where n is the whole number next to x."""
    if x.dtype not in FLOATS:
        return jnp.exp2(x)
    info = jnp.finfo(x.dtype)
    low, high = 2 * info.minexp, 2 * info.maxexp - 2  # of two factors that are normal numbers
    whole = jnp.round(jnp.where(x > low, jnp.minimum(x, high), low))
    return bits.scaled_by_power_of_2(jnp.exp((x - whole) * math.log(2)), whole)


def log2(x: Any) -> Any:
    """n + log2(m), where x = m * 2**n: exact for powers of 2."""
    if x.dtype not in FLOATS:
        return jnp.log2(x)
    mantissa, power = _parts(x)
    return _normal(x, power + jnp.log2(mantissa))


def log10(x: Any) -> Any:
    """n * log10(2) + log10(m), likewise; the first product is the sum of an exact one and a small one."""
    if x.dtype not in FLOATS:
        return jnp.log10(x)
    mantissa, power = _parts(x)
    unit = 2 ** (25 - 8 if x.dtype == jnp.float32 else 54 - 11)  # the mantissa's bits, less the bits of a power
    exact = Fraction(round(_LOG10_2 * unit), unit)
    return _normal(x, power * float(exact) + (power * float(_LOG10_2 - exact) + jnp.log10(mantissa)))


def _parts(x: Any) -> tuple[Any, Any]:
    """m and n, both as floats, with x = m * 2**n and m near 1: near x = 1 the power is 0, so that nothing cancels."""
    rest, power = bits.frexp(x)
    low = rest < math.sqrt(0.5)
    return jnp.where(low, 2 * rest, rest), jnp.where(low, power - 1, power).astype(x.dtype)


def _normal(x: Any, logarithm: Any) -> Any:
    return jnp.where(jnp.abs(x) < jnp.finfo(x.dtype).tiny, -jnp.inf, logarithm)  # XLA flushes subnormal numbers to 0


def _halves_of_exponentials(x: Any) -> tuple[Any, Any]:
    """exp(|x|) / 2 and exp(-|x|) / 2; the first is in the range as long as cosh(x) is."""
    root = jnp.exp(jnp.abs(x) / 2)
    return root / 2 * root, 0.5 / (root * root)


def cosh(x: Any) -> Any:
    """The sum of two halves of exponentials."""
    return sum(_halves_of_exponentials(x))


def sinh(x: Any) -> Any:
    """Their difference; near 0, where they cancel, XLA's."""
    large, small = _halves_of_exponentials(x)
    return jnp.where(jnp.abs(x) < 1, jnp.sinh(x), bits.copysign(large - small, x))
