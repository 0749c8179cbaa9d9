"""Bessel functions and the Airy function: PyTorch's values, and the identities which they and their derivatives obey.

The identities are the finer measure: PyTorch is off by up to 1e-6 around the bounds of its approximations.
"""

import math

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import same_error
from ..traced import as_torch

X = np.array([0.01, 0.5, 1.9, 2.1, 4.9, 5.1, 5.43, 8.0, 20.0])
NAMES = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1",
    "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
]  # fmt: skip
OF_NEGATIVES = NAMES[:3] + NAMES[5:7]
special = xgrad.special


def close(got, wanted, rtol=1e-11):
    np.testing.assert_allclose(got.numpy(), np.asarray(wanted), rtol, 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_values(name):
    x = np.concatenate([-X, X]) if name in OF_NEGATIVES else X
    as_torch(lambda T: getattr(T.special, name)(T.tensor(x)), rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("name", NAMES)
def test_values_at_the_ends(name):
    ends = [0.0, -0.0, -3.0, math.inf, -math.inf, math.nan]
    as_torch(lambda T: getattr(T.special, name)(T.tensor(ends, dtype=T.float64)), rtol=1e-4)


@pytest.mark.exhaustive
def test_wronskians():
    x = xgrad.tensor(X)
    close(special.bessel_j1(x) * special.bessel_y0(x) - special.bessel_j0(x) * special.bessel_y1(x), 2 / (math.pi * X))
    i0, i1 = special.modified_bessel_i0(x), special.modified_bessel_i1(x)
    close(i0 * special.modified_bessel_k1(x) + i1 * special.modified_bessel_k0(x), 1 / X)
    k0, k1 = special.scaled_modified_bessel_k0(x), special.scaled_modified_bessel_k1(x)
    close((i0 * k1 + i1 * k0) * xgrad.exp(-x), 1 / X)


def test_values_where_pytorch_is_off():
    """The values are scipy's."""
    close(special.bessel_j0(xgrad.tensor([6.0, 10.0], dtype="float64")), [0.15064525725099692, -0.2459357644513483])
    close(special.airy_ai(xgrad.tensor([-2.5, 1.0], dtype="float64")), [-0.11232506769296606, 0.13529241631288141])


@pytest.mark.exhaustive
@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("name", "wanted"),
    {
        "bessel_j0": lambda x: -special.bessel_j1(x),
        "bessel_j1": lambda x: special.bessel_j0(x) - special.bessel_j1(x) / x,
        "bessel_y0": lambda x: -special.bessel_y1(x),
        "bessel_y1": lambda x: special.bessel_y0(x) - special.bessel_y1(x) / x,
        "modified_bessel_i0": special.modified_bessel_i1,
        "modified_bessel_i1": lambda x: special.modified_bessel_i0(x) - special.modified_bessel_i1(x) / x,
        "modified_bessel_k0": lambda x: -special.modified_bessel_k1(x),
        "modified_bessel_k1": lambda x: -special.modified_bessel_k0(x) - special.modified_bessel_k1(x) / x,
        "scaled_modified_bessel_k0": lambda x: (
            special.scaled_modified_bessel_k0(x) - special.scaled_modified_bessel_k1(x)
        ),
    }.items(),
)
def test_derivatives(name, wanted):
    x = xgrad.tensor(np.concatenate([-X, X]) if name in OF_NEGATIVES else X, requires_grad=True)
    (slope,) = xgrad.autograd.grad(getattr(special, name)(x).sum(), x)
    close(slope, wanted(x.detach()).numpy(), rtol=1e-9)


@pytest.mark.exhaustive
def test_second_derivative_of_the_airy_function():
    x = xgrad.tensor(np.array([-8.0, -2.1, -2.0, -0.5, 0.0, 0.7, 2.0, 2.1, 6.0]))
    x.requires_grad_()
    (first,) = xgrad.autograd.grad(special.airy_ai(x).sum(), x, create_graph=True)
    (second,) = xgrad.autograd.grad(first.sum(), x)
    close(second, (x * special.airy_ai(x)).detach().numpy(), rtol=1e-8)


@pytest.mark.exhaustive
def test_derivatives_at_0():
    x = xgrad.zeros(1, dtype=xgrad.float64, requires_grad=True)
    found = [xgrad.autograd.grad(getattr(special, name)(x), x)[0].item() for name in NAMES[1:9]]
    assert found == pytest.approx([0, 0.5, math.inf, math.inf, 0, 0.5, -math.inf, -math.inf])


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float16", "bfloat16", "complex64"])
def test_dtypes(dtype):
    def program(T):
        return T.special.bessel_j0(T.tensor([1, 0]).to(getattr(T, dtype)))

    if dtype in ("float16", "bfloat16", "complex64"):
        same_error(program, "not implemented for")
    else:
        as_torch(program, rtol=1e-5)


def test_out():
    out = xgrad.zeros(9, dtype=xgrad.float64)
    assert special.bessel_j0(xgrad.tensor(X), out=out) is out
    assert out.numpy() == pytest.approx(torch.special.bessel_j0(torch.tensor(X)).numpy(), abs=1e-6)
