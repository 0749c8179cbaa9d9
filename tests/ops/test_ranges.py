"""Values, gradients and tangents at numbers of all sizes: nothing leaves the range in between (ranges.py)."""

import numpy as np
import pytest

import xgrad

from . import ranges

# In these no point is wrong in any dtype.  Not here: sums of squares and powers, which overflow in torch's float32 too.
HOLDS = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "celu", "copysign", "cos", "cosh",
    "div", "elu", "exp", "exp2", "hypot", "log", "log1p", "mul", "pairwise2",
    "rdiv", "reciprocal", "rsqrt", "selu", "sigmoid", "sin", "sinh", "softplus", "sqrt", "square", "tan",
    "xlogy",
]  # fmt: skip


@pytest.mark.one_in(13)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, d) for n in HOLDS for d in (*ranges.DTYPES, *(ranges.COMPLEX if n in ranges.BOTH else ()))],
)
def test_no_number_in_between_leaves_the_range(name, dtype):
    found = ranges.survey(name, dtype, ("gradient", "tangent"))
    assert {kind: examples for kind, (_, wrong, _, examples) in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("dtype", "a", "b"),
    [("float16", 300, 300), ("float16", 1e-4, 1e-4), ("float32", 1e30, 1e25), ("float32", 1e-30, 1e-25),
     ("float64", 1e200, 1e170), ("complex64", 1e30 + 1e30j, 1e25j), ("complex128", 1e-200j, 1e-170)],
)  # fmt: skip
def test_gradient_of_a_divisor_whose_square_leaves_the_range(dtype, a, b):
    x, y = (xgrad.tensor(v, dtype=getattr(xgrad, dtype)) for v in (a, b))
    y.requires_grad_()
    (grad,) = xgrad.autograd.grad(x / y, y, xgrad.ones_like(y))
    with xgrad.autograd.forward_ad.dual_level():
        dual = xgrad.autograd.forward_ad.make_dual(y.detach(), xgrad.ones_like(y))
        tangent = xgrad.autograd.forward_ad.unpack_dual(x / dual).tangent
    for found, wanted in ((grad.item(), np.conj(-(a / b) / b)), (tangent.item(), -(a / b) / b)):
        assert abs(found - wanted) <= 1e-2 * abs(wanted)


def test_slopes_of_tails():
    x = xgrad.tensor([-20.0, -50.0, 1e20, -1e20], dtype=xgrad.float32, requires_grad=True)
    (grad,) = xgrad.autograd.grad(xgrad.nn.functional.elu(x).sum(), x)
    np.testing.assert_allclose(grad.numpy(), [np.exp(-20), np.exp(-50), 1, 0], 1e-6)
    (grad,) = xgrad.autograd.grad(xgrad.nn.functional.gelu(x, approximate="tanh").sum(), x)
    np.testing.assert_allclose(grad.numpy(), [0, 0, 1, 0], 1e-6, 1e-6)


@pytest.mark.parametrize("n", [1, 2])
def test_polygamma_of_large_numbers(n):
    x = xgrad.tensor([1e10, 1e15, 1e18], dtype=xgrad.float32)
    wanted = [1 / v if n == 1 else -1 / v**2 for v in (1e10, 1e15, 1e18)]
    np.testing.assert_allclose(xgrad.polygamma(n, x).numpy(), wanted, 1e-5)


def test_angle_far_from_and_near_the_origin():
    for size in (1e-30, 1e30):
        z = xgrad.tensor([complex(size, size)], dtype=xgrad.complex64, requires_grad=True)
        for function, wanted in ((xgrad.angle, (-1 + 1j) / (2 * size)), (xgrad.abs, (1 + 1j) / 2**0.5)):
            (grad,) = xgrad.autograd.grad(function(z).sum(), z)
            assert abs(grad.item() / wanted - 1) < 1e-5
