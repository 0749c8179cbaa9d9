"""gradcheck with programs of every kind: both modes, batches, and second derivatives by both modes."""

import pytest

import xgrad
from xgrad.autograd import gradcheck, gradgradcheck

from ..oracle import data, leaf

F = xgrad.nn.functional


def one():
    return (leaf(xgrad, 2, 2),)


def two():
    return (leaf(xgrad, 2, 2), leaf(xgrad, 2, 2, seed=1))


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

# ops/test_table.py has all operators; these are of each kind that gradcheck treats in a way of its own.
OPERATORS = {
    "mul": (lambda x, y: x * y, two),
    "sort": (lambda x: x.sort(1), one),
    "matmul": (lambda x, y: x @ y, two),
    "einsum": (lambda x, y: xgrad.einsum("ij,kj->ik", x, y), two),
    "layer_norm": (lambda x: F.layer_norm(x, (4,)), batch),
    "cat": (lambda x, y: xgrad.cat([x, y], 1), two),
    "index": (lambda x: x[INDEX], one),
    "select and expand": (lambda x: x[0].expand(3, 2), one),
    "diagonal and permute": (lambda x: (x.diagonal(), x.permute(1, 0), x.reshape(4)), one),
    "in place through views": (in_place, two),
    "complex mul": (lambda z: z * z.conj() + z, complex_),
    "view_as_real": (lambda z: xgrad.view_as_real(z), complex_),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", OPERATORS)
def test_first_derivatives(name):
    function, inputs = OPERATORS[name]
    assert gradcheck(
        function, inputs(), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True,
        check_grad_dtypes=True,
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", OPERATORS)
def test_second_derivatives(name):
    function, inputs = OPERATORS[name]
    assert gradgradcheck(function, inputs(), check_fwd_over_rev=True, fast_mode=True)
