"""Complex functions on both sides of their branch cuts, which are told by the signs of zeros, as torch has them."""

import numpy as np
import pytest
import torch

import xgrad
from xgrad.interop.torch import from_torch

REALS = [-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0]
POINTS = [z for v in REALS for zero in (-0.0, 0.0) for z in (complex(v, zero), complex(zero, v))]
NAMES = [
    "sqrt", "log", "log2", "log10", "asin", "acos", "acosh", "asinh", "atan", "atanh", "sin", "cos", "tan", "sinh",
    "cosh", "tanh", "exp", "exp2", "angle", "sgn", "abs",
]  # fmt: skip
ZEROS = {"acos": REALS}  # of acos(0.5 + 0j) torch has 0 in complex128, NumPy and torch's complex64 -0


def parts(x):
    return [x.real, x.imag] if np.iscomplexobj(x) else [x]


@pytest.mark.parametrize("name", [*NAMES, "pow"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_side_of_the_cut(name, dtype):
    def compute(T, z):
        return z**0.5 if name == "pow" else getattr(T, name)(z)

    z = torch.tensor(POINTS, dtype=getattr(torch, dtype))
    ours, theirs = compute(xgrad, from_torch(z)).numpy(), compute(torch, z).numpy()
    for mine, other in zip(parts(ours), parts(theirs), strict=True):
        np.testing.assert_allclose(mine, other, 1e-5 if dtype == "complex64" else 1e-13, 1e-7)
        kept = other != 0 if name in ZEROS else np.isfinite(other) & ((other == 0) == (mine == 0))
        np.testing.assert_array_equal(np.signbit(mine[kept]), np.signbit(other[kept]))


def test_zero_to_a_complex_power_is_zero():
    z = xgrad.tensor([0j, 0j, 0j])
    exponents = xgrad.tensor([0.3 + 0.1j, 0.3 - 2j, 0j])
    np.testing.assert_array_equal((z**exponents).numpy(), [0, 0, 1])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_near_poles_and_beside_infinities(dtype):
    def found(f, z):
        return f(xgrad.tensor([z], dtype=getattr(xgrad, dtype))).item()

    np.testing.assert_allclose(found(xgrad.atan, 1e-30 + 1j), complex(np.pi / 4, np.log(2e30) / 2), 1e-6)
    np.testing.assert_allclose(found(xgrad.atanh, 1 + 1e-30j), complex(np.log(2e30) / 2, np.pi / 4), 1e-6)
    for f in (xgrad.sinh, xgrad.cosh, lambda z: 2**z, lambda z: z**25.5):
        assert found(f, 1e30 + 0j) == complex(np.inf, 0)
    assert (found(xgrad.rsqrt, -4 + 0j), found(xgrad.rsqrt, complex(-4, -0.0))) == (-0.5j, 0.5j)
