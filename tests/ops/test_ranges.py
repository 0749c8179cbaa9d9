"""Values, gradients and tangents at numbers of all sizes: nothing leaves the range in between (ranges.py)."""

from functools import partial

import numpy as np
import pytest
import torch

import xgrad
import xgrad.distributions

from . import ranges

# In these no point is wrong in any dtype.  Not here: sums and powers, which overflow in torch's float32 too.
HOLDS = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cdist1.5", "cdist3",
    "celu", "copysign", "cos", "cosh", "dist", "div", "elu", "entr", "erfinv", "exp", "exp2", "expm1", "hypot", "i0",
    "i0e", "i1", "log", "log1p", "logaddexp", "logit", "logsigmoid", "mish", "mul", "ndtr", "norm-2", "norm2", "norm3",
    "norm4", "normalize3", "pairwise1.5", "pairwise2", "pairwise3", "rdiv", "reciprocal", "rsqrt", "selu", "sigmoid",
    "silu", "sin", "sinh", "softplus", "sqrt", "square", "tan", "xlogy",
]  # fmt: skip
# In these neither is a second derivative, in single and half precision.
BENT = [
    "acos", "acosh", "asin", "asinh", "atanh", "bce_logits", "celu", "cos", "cosh", "div", "elu", "entr", "erfinv",
    "exp", "expm1", "i0", "i0e", "i1", "logaddexp", "logit", "logsigmoid", "pairwise2", "rdiv", "rsqrt",
    "sigmoid", "silu", "sin", "softplus", "tan",
]  # fmt: skip


def knows(name, dtype):
    """Tell if torch's float64 has the numbers: its powers leave the range too."""
    return dtype not in ("float64", "complex128") or not name.startswith(("norm", "pairwise", "cdist", "dist"))


@pytest.mark.one_in(13)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, d) for n in HOLDS for d in (*ranges.DTYPES, *(ranges.COMPLEX if n in ranges.BOTH else ())) if knows(n, d)],
)
def test_no_number_in_between_leaves_the_range(name, dtype):
    found = ranges.survey(name, dtype, ("gradient", "tangent"))
    assert {kind: examples for kind, (_, wrong, _, examples) in found.items() if wrong} == {}


@pytest.mark.one_in(13)
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in BENT for d in ("float16", "bfloat16", "float32")])
def test_second_derivatives_stay_in_the_range(name, dtype):
    found = ranges.survey(name, dtype, ("gradient", "second"))
    assert [examples for kind, (_, wrong, _, examples) in found.items() if wrong and kind == "second0"] == []


MODES = {
    "eager": lambda f, x: f(x),
    "compiled": lambda f, x: xgrad.compile(f)(x),
    "vmap": lambda f, x: xgrad.func.vmap(f)(x[None])[0],
}
FAR = [[3e-30, -4e-30, 0.0], [3e30, 4e30, 5e25], [3.0, 4.0, 1e-30], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "function",
    [lambda T, x: T.linalg.vector_norm(x, 2, dim=-1), lambda T, x: T.linalg.vector_norm(x, 1.5, dim=-1),
     lambda T, x: T.linalg.vector_norm(x, 3, dim=-1), lambda T, x: T.std(x, -1),
     lambda T, x: T.nn.functional.normalize(x, eps=1e-37), lambda T, x: T.nn.functional.pairwise_distance(x, -x, 3, 0),
     lambda T, x: T.cdist(x, -x, 1.5).diagonal(), lambda T, x: T.renorm(x, 2, 0, 1.0)],
    ids=["2", "1.5", "3", "std", "normalize", "distance", "cdist", "renorm"],
)  # fmt: skip
def test_norms_and_their_gradients_far_from_1(function, mode):
    def both(T, x):
        return [out := function(T, x), T.autograd.grad(out.sum(), x)[0]]

    wanted = both(torch, torch.tensor(FAR, dtype=torch.float64, requires_grad=True))
    x = xgrad.tensor(FAR, dtype=xgrad.float32, requires_grad=True)
    value = MODES[mode](lambda x: function(xgrad, x), x)
    for mine, other in zip((value, xgrad.autograd.grad(value.sum(), x)[0]), wanted, strict=True):
        finite = np.isfinite(other.detach().numpy())
        np.testing.assert_allclose(mine.detach().numpy()[finite], other.detach().numpy()[finite], 2e-5, 1e-37)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_norms_of_double_precision(size):
    x = xgrad.tensor([3 * size, 4 * size], dtype=xgrad.float64, requires_grad=True)
    for p, wanted in ((2, 5), (3, 91 ** (1 / 3)), (-2, 2.4)):
        norm = xgrad.linalg.vector_norm(x, p)
        slope = np.array([3, 4]) ** (p - 1.0) / wanted ** (p - 1)
        np.testing.assert_allclose(norm.item() / size, wanted, 1e-12)
        np.testing.assert_allclose(xgrad.autograd.grad(norm, x)[0].numpy(), slope, 1e-12)


def second(f, x):
    (slope,) = xgrad.autograd.grad(f(x).sum(), x, create_graph=True)
    return xgrad.autograd.grad(slope.sum(), x)[0]


F = xgrad.nn.functional
KNOWN = {  # by mpmath
    "gelu": (lambda x: second(partial(F.gelu, approximate="tanh"), x), 8.0, -7.0458213960718e-19),
    "silu": (F.silu, -87.68, -7.3107212e-37),
    "mish": (F.mish, -87.68, -7.3107212e-37),
    "logsigmoid": (lambda x: second(F.logsigmoid, x), -21.92, -3.0217941e-10),
    "tanhshrink": (lambda x: second(F.tanhshrink, x), 3e-4, 5.99999892e-4),
    "log_ndtr": (xgrad.special.log_ndtr, 4.0, -3.16717434e-5),
    "erfcx": (lambda x: second(xgrad.special.erfcx, x), 1e6, 1.128379167e-18),
    "lgamma": (lambda x: second(xgrad.lgamma, x), 1e25, 1e-25),
    "igamma": (lambda x: xgrad.igamma(x, x.detach()), 1e6, 0.500132981),
    "igammac": (lambda x: xgrad.igammac(xgrad.tensor(300.0), x), 360.0, 0.000526828214),
    "zeta": (lambda x: xgrad.special.zeta(x, 1e-20), 30.0, float("inf")),
    "exponential": (lambda x: xgrad.distributions.Exponential(1.0).cdf(x), 1e-20, 1e-20),
}


@pytest.mark.parametrize("name", KNOWN)
def test_numbers_that_cancel_or_leave_the_range(name):
    f, at, wanted = KNOWN[name]
    x = xgrad.tensor([at], dtype=xgrad.float32, requires_grad=True)
    np.testing.assert_allclose(f(x).detach().numpy(), [wanted], 2e-5)


def test_gradient_of_a_confident_logit_is_not_0():
    x = xgrad.tensor([-30.0, 30.0], requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(x, xgrad.tensor([0.0, 0.0]), reduction="sum")
    np.testing.assert_allclose(xgrad.autograd.grad(loss, x)[0].numpy(), [np.exp(-30), 1], 1e-5)


@pytest.mark.parametrize("name", ["i0", "digamma", "lgamma", "logit", "expm1", "erfinv"])
def test_forward_mode_has_the_gradient(name):
    x = xgrad.tensor([1e-20, 1e-3, 0.5], dtype=xgrad.float32, requires_grad=True)
    f = getattr(xgrad, name)
    slope = xgrad.autograd.grad(f(x).sum(), x)[0]
    np.testing.assert_array_equal(xgrad.func.jvp(f, (x.detach(),), (xgrad.ones(3),))[1].numpy(), slope.numpy())


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
