"""signbit, copysign, frexp, ldexp, power_of_2, scaled_by_power_of_2.

The first four are JAX's functions, except for float64 on a TPU, where they compute from the bits.

JAX takes the bits of float64 as int64, whose shifts and masks a TPU's compiler refuses ("Binary op
shift-right-arithmetic with different element types"); there they are uint64.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.lax import bitcast_convert_type

from ...base.platforms import traced_for

_MANTISSA, _BIAS, _EXPONENTS = 52, 1022, 0x7FF  # bits; of a number in [0.5, 1); a mask
_UP = 54  # a power of two that makes all numbers normal


def _unsigned(dtype: Any) -> bool:
    return dtype == np.float64 and traced_for() == "tpu"


def signbit(x: Any) -> Any:
    """True where the sign bit is set."""
    return bitcast_convert_type(x, jnp.uint64) >> 63 == 1 if _unsigned(x.dtype) else jnp.signbit(x)


def copysign(x: Any, signs: Any) -> Any:
    """The magnitude of `x` with the sign of `signs`."""
    if not _unsigned(signs.dtype):
        return jnp.copysign(x, signs)
    x = jnp.asarray(x, signs.dtype)
    return jnp.where(signbit(x) == signbit(signs), x, -x)


def frexp(x: Any) -> tuple[Any, Any]:
    """Mantissas in [0.5, 1) and exponents of 2; 0 is the exponent of 0, infinities and NaN, which are themselves."""
    if not _unsigned(x.dtype):
        return jnp.frexp(x)
    small = jnp.abs(x) < np.finfo(np.float64).smallest_normal
    bits = bitcast_convert_type(jnp.where(small, x * 2.0**_UP, x), jnp.uint64)
    exponent = (bits >> _MANTISSA & _EXPONENTS).astype(jnp.int32) - _BIAS - jnp.where(small, _UP, 0)
    kept = bits & np.uint64(~(_EXPONENTS << _MANTISSA) & (1 << 64) - 1)
    mantissa = bitcast_convert_type(kept | np.uint64(_BIAS << _MANTISSA), jnp.float64)
    itself = (x == 0) | ~jnp.isfinite(x)
    return jnp.where(itself, x, mantissa), jnp.where(itself, 0, exponent)


def ldexp(x: Any, exponent: Any) -> Any:
    """x * 2**exponent, of integers for which that power is a normal number."""
    if not _unsigned(x.dtype):
        return jnp.ldexp(x, exponent)
    return x * power_of_2(exponent, x.dtype)


def power_of_2(exponent: Any, dtype: Any) -> Any:
    """2**exponent in float32 or float64, of whole numbers for which that is a normal number."""
    info, unsigned = jnp.finfo(dtype), jnp.uint64 if dtype == np.float64 else jnp.uint32
    return bitcast_convert_type((exponent + (info.maxexp - 1)).astype(unsigned) << info.nmant, dtype)


def scaled_by_power_of_2(x: Any, exponent: Any) -> Any:
    """x * 2**exponent, of float32, float64 and complex numbers, in two steps: the power itself may be out of range."""
    info = jnp.finfo(x.dtype)
    half = jnp.clip(exponent // 2, info.minexp, info.maxexp - 1)
    rest = jnp.clip(exponent - half, info.minexp, info.maxexp - 1)
    return x * power_of_2(half, info.dtype) * power_of_2(rest, info.dtype)
