"""`fill_` and `zero_` write one number, so that a view may overlap itself; its other writes are refused."""

import pytest
import torch

import xgrad

from ..oracle import data, leaf, outcome, same, same_error
from ..traced import as_torch

# Views of six numbers, and whether PyTorch differentiates a fill of them: of an expanded one its backward raises.
OVERLAPPING = {
    "expand": (lambda x: x.expand(2, 6), False),
    "part": (lambda x: x[1:3].expand(2, 2), False),
    "one element": (lambda x: x[2].expand(3), False),
    "every other": (lambda x: x[::2][:, None].expand(3, 2), False),
    "unfold": (lambda x: x.unfold(0, 3, 1), True),
    "unfold with gaps": (lambda x: x[::2].unfold(0, 2, 1), True),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 1), 2), True),
    "windows in windows": (lambda x: x.unfold(0, 4, 1).unfold(1, 2, 1), True),
    "pairs with gaps": (lambda x: x.unfold(0, 2, 3).expand(3, 2, 2), False),
    "diagonal of an expanded": (lambda x: x.expand(3, 6)[:, 1:4].t().expand(2, 3, 3), False),
}
FILLS = {
    "zero_": lambda T, v: v.zero_(),
    "fill_": lambda T, v: v.fill_(3),
    "functions": lambda T, v: T.fill_(T.zero_(v), 2.5),
}


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("name", OVERLAPPING)
def test_fill_of_a_view_that_overlaps_itself_writes_the_base(name, fill, path):
    def program(T):
        x = data(T, (6,))
        other, view = x[2:4], OVERLAPPING[name][0](x)
        before = x._version
        out = FILLS[fill](T, view)
        return x, view, other, out is view, x._version - before

    as_torch(program)


@pytest.mark.exhaustive
@pytest.mark.one_in(5)
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("name", OVERLAPPING)
def test_recorded_fill(name, fill, path):
    """What was written over has no gradient, the rest has its own; PyTorch is asked on a view that is not expanded."""
    view, differentiable = OVERLAPPING[name]

    def program(T):
        x = leaf(T, 6)
        base = x * 1
        part, sibling = view(base), base[1:4]
        FILLS[fill](T, part)
        named = base.grad_fn.name().removeprefix("torch::autograd::")
        gradients = [T.autograd.grad((y * y).sum(), x, retain_graph=True)[0] for y in (base, part, sibling)]
        return base, part, named, gradients

    def by_mask(T):
        x = leaf(T, 6)
        marks = T.zeros(6, dtype=T.float64)
        FILLS["fill_"](T, view(marks))
        base = (x * 1).masked_fill(marks != 0, 0.0 if fill == "zero_" else 3.0 if fill == "fill_" else 2.5)
        views = base, view(base), base[1:4]
        return base, views[1], "CopySlices", [T.autograd.grad((y * y).sum(), x, retain_graph=True)[0] for y in views]

    if differentiable:
        as_torch(program)
    else:
        assert isinstance(outcome(program, torch), RuntimeError)
        same(program(xgrad), by_mask(torch))


def test_fill_of_an_alias_that_autograd_does_not_know():
    def program(T):
        x = leaf(T, 3)
        x.detach().expand(2, 3).detach().fill_(4)
        with T.no_grad():
            x[:2].expand(2, 2).zero_()
        return x, x._version

    as_torch(program)


def test_fill_of_parts_and_conjugates():
    def program(T):
        x = T.ones(3, dtype=T.complex128)
        x.imag[2:].expand(4).fill_(7)
        return x

    as_torch(program)
    x = xgrad.ones(3, dtype=xgrad.complex128)
    x[:2].conj().expand(2, 2).fill_(1 + 2j)  # which PyTorch refuses
    assert x.tolist() == [1 - 2j, 1 - 2j, 1]


def test_tangent_is_zero_where_it_was_filled():
    fw = xgrad.autograd.forward_ad
    with fw.dual_level():
        base = fw.make_dual(xgrad.ones(3), xgrad.tensor([1.0, 2.0, 3.0])) * 1
        base[:2].expand(2, 2).zero_()
        primal, tangent = fw.unpack_dual(base)
        assert (primal.tolist(), tangent.tolist()) == ([0, 0, 1], [0, 0, 3])
        assert fw.unpack_dual(base * 2).tangent.tolist() == [0, 0, 6]


@pytest.mark.parametrize("name", OVERLAPPING)
def test_other_writes_are_refused(name):
    for write in (
        lambda T, v: v.fill_(T.tensor(3.0)),
        lambda T, v: v.mul_(2),
        lambda T, v: v.copy_(T.tensor(1.0)),
        lambda T, v: v.__setitem__(slice(None), 1.0),
        lambda T, v: v.masked_fill_(v > 0, 1.0),
    ):
        x = data(xgrad, (6,))
        with pytest.raises(xgrad.errors.OverlapError):
            write(xgrad, OVERLAPPING[name][0](x))
        assert (x.tolist(), x._version) == (data(xgrad, (6,)).tolist(), 0)


def test_steps_without_a_common_measure_are_refused():
    """No strides show each of the elements 0, 2, 3, 4, 5, 6, ... once; PyTorch fills them."""
    x = xgrad.ones(13)
    with pytest.raises(xgrad.errors.OverlapError):
        x.as_strided((3, 4), (3, 2)).zero_()
    assert x.sum() == 13


def test_leaf_stays_protected():
    same_error(lambda T: leaf(T, 3).expand(2, 3).zero_(), "a view of a leaf Variable that requires grad")
    same_error(lambda T: data(T, (3,)).expand(2, 3).requires_grad_().fill_(1), "a leaf Variable that requires grad")


def test_fill_diagonal():
    def program(T):
        x = leaf(T, 3, 2)
        y = (x * 2).fill_diagonal_(3.0)
        (g,) = T.autograd.grad((y * y).sum(), x)
        return (
            y,
            g,
            [T.zeros(7, 3).fill_diagonal_(1, wrap=w) for w in (False, True)],
            T.zeros(2, 2, 2).fill_diagonal_(2),
        )

    as_torch(program)
    same_error(lambda T: T.ones(3).fill_diagonal_(1), "dimensions must larger than 1")
    same_error(lambda T: T.ones(2, 3, 2).fill_diagonal_(1), "must be of equal length")
