"""gradcheck against operators of every kind: both modes, batches, and second derivatives by both modes."""

import pytest

import xgrad
from xgrad.autograd import gradcheck, gradgradcheck

from ..oracle import data, leaf

F = xgrad.nn.functional


def one():
    return (leaf(xgrad, 2, 2),)


def two():
    return (leaf(xgrad, 2, 2), leaf(xgrad, 2, 2, seed=1))


def positive():
    return ((data(xgrad, (2, 2)).abs() + 0.5).requires_grad_(),)


def complex_():
    return ((data(xgrad, (2,)) + data(xgrad, (2,), 1) * 1j).requires_grad_(),)


def batch():
    return (leaf(xgrad, 1, 1, 4, 4),)


def in_place(x, y):
    z = x.clone()
    z[0].mul_(y[0])
    z.t()[1].exp_()
    return z * z


INDEX = [1, 0, 1]

OPERATORS = {
    "add": (lambda x, y: x + 2 * y, two),
    "mul": (lambda x, y: x * y, two),
    "div": (lambda x, y: x / (y + 3), two),
    "pow": (lambda x: x**2.5, positive),
    "exp": (lambda x: x.exp(), one),
    "log": (lambda x: x.log(), positive),
    "sqrt": (lambda x: x.sqrt(), positive),
    "tanh": (lambda x: x.tanh(), one),
    "sigmoid": (lambda x: x.sigmoid(), one),
    "erf": (lambda x: xgrad.erf(x), one),
    "atan2": (lambda x, y: xgrad.atan2(x, y + 3), two),
    "where": (lambda x, y: xgrad.where(x > y, x * x, y), two),
    "clamp": (lambda x: x.clamp(-0.3, 0.3), one),
    "sum": (lambda x: x.sum(0), one),
    "mean": (lambda x: x.mean(), one),
    "prod": (lambda x: x.prod(1), one),
    "var": (lambda x: x.var(0), one),
    "norm": (lambda x: x.norm(), one),
    "logsumexp": (lambda x: x.logsumexp(1), one),
    "max": (lambda x: x.max(1), one),
    "cumsum": (lambda x: x.cumsum(1), one),
    "cumprod": (lambda x: x.cumprod(0), one),
    "sort": (lambda x: x.sort(1), one),
    "matmul": (lambda x, y: x @ y, two),
    "einsum": (lambda x, y: xgrad.einsum("ij,kj->ik", x, y), two),
    "inv": (lambda x: xgrad.linalg.inv(x + 3 * xgrad.eye(2, dtype=xgrad.float64)), one),
    "softmax": (lambda x: x.softmax(1), one),
    "log_softmax": (lambda x: x.log_softmax(0), one),
    "gelu": (lambda x: F.gelu(x), one),
    "softplus": (lambda x: F.softplus(x), one),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), batch),
    "mse_loss": (lambda x, y: F.mse_loss(x, y), two),
    "conv2d": (lambda x, w: F.conv2d(x, w), lambda: (*batch(), leaf(xgrad, 1, 1, 2, 2))),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), batch),
    "pad": (lambda x: F.pad(x, (1, 0, 0, 1)), one),
    "cat": (lambda x, y: xgrad.cat([x, y], 1), two),
    "stack": (lambda x, y: xgrad.stack([x, y, x]), two),
    "index": (lambda x: x[INDEX], one),
    "gather": (lambda x: x.gather(0, xgrad.tensor([[1, 0], [0, 0]])), one),
    "select and expand": (lambda x: x[0].expand(3, 2), one),
    "diagonal and permute": (lambda x: (x.diagonal(), x.permute(1, 0), x.reshape(4)), one),
    "in place through views": (in_place, two),
    "complex mul": (lambda z: z * z.conj() + z, complex_),
    "complex abs": (lambda z: z.abs(), complex_),
    "complex exp": (lambda z: z.exp(), complex_),
    "view_as_real": (lambda z: xgrad.view_as_real(z), complex_),
}


@pytest.mark.one_in(24)
@pytest.mark.parametrize("name", OPERATORS)
def test_first_derivatives(name):
    function, inputs = OPERATORS[name]
    assert gradcheck(
        function, inputs(), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True,
        check_grad_dtypes=True,
    )  # fmt: skip


@pytest.mark.one_in(24)
@pytest.mark.parametrize("name", OPERATORS)
def test_second_derivatives(name):
    function, inputs = OPERATORS[name]
    assert gradgradcheck(function, inputs(), check_fwd_over_rev=True, fast_mode=True)
