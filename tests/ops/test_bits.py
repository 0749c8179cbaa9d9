"""Signs, exponents and powers of two as a TPU's compiler takes them of float64 are those of NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

from xgrad.base.limits import x64_for_now
from xgrad.base.platforms import tracing_for
from xgrad.ops.pointwise import bits

# XLA's CPU takes subnormal numbers for 0, so there are none.
NUMBERS = np.array([0.0, -0.0, 1, -1, 0.5, 3, -7.25, 1e300, -1e-300, 2.3e-308, np.inf, -np.inf, np.nan, -np.nan])


@pytest.fixture
def tpu():
    with x64_for_now(), tracing_for("tpu"):
        yield


def test_signs(tpu):
    x = jnp.asarray(NUMBERS)
    assert np.array_equal(bits.signbit(x), np.signbit(NUMBERS))
    for size in (2.0, x):
        found = np.asarray(bits.copysign(size, x[::-1]))
        assert found.tobytes() == np.copysign(size, NUMBERS[::-1]).tobytes()


def test_mantissas_and_exponents(tpu):
    found = [np.asarray(part) for part in bits.frexp(jnp.asarray(NUMBERS))]
    mantissa, exponent = np.frexp(NUMBERS)
    assert found[0].tobytes() == mantissa.tobytes()
    assert np.array_equal(found[1], np.where(np.isfinite(NUMBERS), exponent, 0))


def test_powers_of_two(tpu):
    n = np.array([-1022, -3, 0, 1, 1022], np.int32)
    assert np.array_equal(bits.ldexp(3.0 * jnp.ones(5), jnp.asarray(n)), 3 * 2.0**n)
