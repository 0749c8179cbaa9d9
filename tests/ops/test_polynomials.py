"""Orthogonal polynomials: PyTorch's values, at the ends and in the corners too, and derivatives, which it has not."""

import numpy as np
import pytest

import xgrad
from xgrad.autograd import forward_ad

from ..oracle import same_error
from ..traced import as_torch

KINDS = ["t", "u", "v", "w"]
NAMES = [
    *(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in KINDS), "hermite_polynomial_h",
    "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
]  # fmt: skip
X = np.array([-3.0, -1.0, -0.6, 0.0, 0.3, 1.0, 1.4, np.inf, np.nan])
DEGREES = np.array([-2, 0, 1, 2, 5, 12, 40])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NAMES)
def test_values(name):
    as_torch(lambda T: getattr(T.special, name)(T.tensor(X[:, None]), T.tensor(DEGREES)), rtol=1e-8, atol=1e-9)


def test_a_high_degree_takes_no_longer():
    as_torch(
        lambda T: T.special.chebyshev_polynomial_t(T.tensor([0.5, 1.0, -1.0], dtype=T.float64), 10**8 + 1), rtol=1e-6
    )


def test_degrees_that_are_no_numbers():
    degrees = [1.9, -0.5, np.nan, np.inf, -np.inf]
    as_torch(lambda T: T.special.legendre_polynomial_p(T.tensor(0.3, dtype=T.float64), T.tensor(degrees)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_hermite_polynomial_of_too_high_a_degree_is_none(dtype):
    for name in NAMES[8:10]:
        as_torch(
            lambda T: getattr(T.special, name)(T.tensor(0.1, dtype=getattr(T, dtype)), T.tensor([100, 129, 513])),  # noqa: B023
            rtol=1e-5,
        )


@pytest.mark.exhaustive
@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_of_first_and_second_order(name):
    polynomial, degrees = getattr(xgrad.special, name), xgrad.tensor([0, 1, 2, 3, 10])
    at = np.array([[-1.2], [-0.4], [0.2], [0.7]])

    def first(values):
        x = xgrad.tensor(np.broadcast_to(values, (4, 5)), requires_grad=True)
        return x, xgrad.autograd.grad(polynomial(x, degrees).sum(), x, create_graph=True)[0]

    def central(function):
        return (function(at + 1e-6) - function(at - 1e-6)) / 2e-6

    x, slope = first(at)
    wanted = central(lambda v: polynomial(xgrad.tensor(v), degrees).numpy())
    np.testing.assert_allclose(slope.detach().numpy(), wanted, 1e-6, 1e-6)
    (second,) = xgrad.autograd.grad(slope.sum(), x)
    np.testing.assert_allclose(second.numpy(), central(lambda v: first(v)[1].detach().numpy()), 1e-6, 1e-6)


def test_tangent():
    x = np.array([0.3, 2.0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(xgrad.tensor(x), xgrad.tensor(np.array([1.0, 2.0])))
        tangent = forward_ad.unpack_dual(xgrad.special.chebyshev_polynomial_t(dual, 3)).tangent
    np.testing.assert_allclose(tangent.numpy(), (12 * x * x - 3) * [1, 2])


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16", "complex64"])
def test_dtypes(dtype):
    def program(T):
        return T.special.laguerre_polynomial_l(T.tensor([1, 0]).to(getattr(T, dtype)), 2)

    if dtype in ("float16", "complex64"):
        same_error(program, "not implemented for")
    else:
        as_torch(program, rtol=1e-6)


def test_numbers_shapes_and_out():
    as_torch(lambda T: T.special.hermite_polynomial_h(2.0, T.tensor([0, 3])))
    as_torch(lambda T: T.special.hermite_polynomial_h(T.ones(0), T.ones(1)))
    as_torch(lambda T: T.special.hermite_polynomial_h(T.ones(2), n=3, out=T.zeros(2)))
    same_error(lambda T: T.special.hermite_polynomial_h(T.ones(2), T.ones(3)), "must match the size of tensor b")
