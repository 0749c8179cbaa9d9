"""Running sums and extrema, sorting, searching, distinct elements."""

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import as_torch
from .derivatives import agree, numbers

X = numbers(3, 5)
TIES = np.array([[2.0, 1.0, 2.0, 3.0, 1.0], [0.0, 0.0, -1.0, -1.0, 0.0]])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans_and_their_derivatives(name):
    agree(lambda lib, x: getattr(lib, name)(x, 1), X, forward=name != "logcumsumexp")
    agree(lambda lib, x: getattr(x, name)(-2), X, order=1, forward=False)
    agree(lambda lib, x: getattr(lib, name)(x, 0), np.array(1.5), order=1, forward=False)


def test_tangent_of_logcumsumexp_against_differences():
    x, t, h = numbers(6), numbers(6, seed=1), 1e-6  # PyTorch's own loses digits
    with xgrad.autograd.forward_ad.dual_level():
        dual = xgrad.autograd.forward_ad.make_dual(xgrad.tensor(x), xgrad.tensor(t))
        got = xgrad.autograd.forward_ad.unpack_dual(dual.logcumsumexp(0)).tangent.numpy()
    exact = [np.logaddexp.accumulate(x + s * h * t) for s in (1, -1)]
    np.testing.assert_allclose(got, (exact[0] - exact[1]) / (2 * h), rtol=1e-6)


@pytest.mark.parametrize("x", [[-np.inf, -np.inf, 0.5, 1.0], [0.5, -np.inf, 2.0], [1.0, np.inf, 2.0], [np.nan, 1.0]])
def test_derivatives_of_logcumsumexp_behind_infinities(x):
    def program(T):
        at, by = T.tensor(x, dtype=T.float64, requires_grad=True), T.arange(1.0, len(x) + 1, dtype=T.float64)
        (first,) = T.autograd.grad((at.logcumsumexp(0) * by).nan_to_num(0, 0, 0).sum(), at, create_graph=True)
        (second,) = T.autograd.grad((first * by.cos()).sum(), at)
        return first.detach(), second

    as_torch(program, rtol=1e-9, atol=1e-12)


def test_tangent_of_logcumsumexp_behind_infinities():
    with xgrad.autograd.forward_ad.dual_level():
        dual = xgrad.autograd.forward_ad.make_dual(xgrad.tensor([-np.inf, -np.inf, 0.5, 1.0]), xgrad.ones(4))
        tangent = xgrad.autograd.forward_ad.unpack_dual(dual.logcumsumexp(0)).tangent
    np.testing.assert_allclose(tangent.numpy(), [1, np.nan, 1, 1], rtol=1e-6)


def test_cumsum_in_place_and_of_integers():
    x = xgrad.tensor(X)
    assert x.cumsum_(0) is x
    np.testing.assert_allclose(x.numpy(), X.cumsum(0))
    assert xgrad.cumsum(xgrad.tensor(np.ones(3, "int8")), 0).dtype == xgrad.int64


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extrema_send_the_gradient_to_the_last_of_ties(name):
    agree(lambda lib, x: tuple(getattr(lib, name)(x, 1)), TIES)
    agree(lambda lib, x: tuple(getattr(lib, name)(x, 0)), np.array([1.0, np.nan, 3.0, np.nan]), order=1, forward=False)


def test_differences():
    agree(lambda lib, x: lib.diff(x, n=2), X)
    agree(lambda lib, x, a, b: lib.diff(x, dim=0, prepend=a, append=b), X, numbers(1, 5), numbers(2, 5))
    with pytest.raises(RuntimeError, match="at least one-dimensional"):
        xgrad.diff(xgrad.tensor(1.0))


@pytest.mark.parametrize("descending", [False, True])
def test_stable_sort(descending):
    agree(lambda lib, x: tuple(lib.sort(x, dim=1, descending=descending, stable=True)), TIES)
    agree(lambda lib, x: lib.argsort(x, dim=0, descending=descending, stable=True), TIES)


@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_the_greatest(descending):
    x = np.array([1.0, np.nan, -np.inf, np.inf, 0.0])
    agree(lambda lib, x: tuple(lib.sort(x, descending=descending, stable=True)), x, order=1, forward=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dim", [0, -1])
def test_topk(largest, dim):
    agree(lambda lib, x: tuple(lib.topk(x, 2, dim, largest)), X)


def test_order_of_integers_and_bools():
    for x in (np.array([3, -1, 2, -128], "int8"), np.array([3, 0, 255], "uint8"), np.array([True, False, True])):
        agree(lambda lib, x: tuple(lib.sort(x, stable=True)), x)
    agree(lambda lib, x: tuple(lib.topk(x, 2, largest=False)), np.array([3, 0, 255], "uint8"))


def test_k_out_of_range_is_refused():
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        xgrad.topk(xgrad.tensor(X), 6)
    with pytest.raises(RuntimeError, match="selected number k out of range"):
        xgrad.kthvalue(xgrad.tensor(X), 0)


@pytest.mark.exhaustive
def test_distinct_elements():
    x = np.array([3, 1, 3, 3, 1, 2])
    agree(lambda lib, x: lib.unique(x, return_inverse=True, return_counts=True), x)
    agree(lambda lib, x: lib.unique_consecutive(x, return_inverse=True, return_counts=True), x)
    agree(lambda lib, x: lib.unique(x, dim=0), np.array([[2, 1], [0, 1], [2, 1]]))
    agree(lambda lib, x: lib.unique_consecutive(x), np.zeros((0,), int))


def test_each_nan_is_distinct():
    x = np.array([[np.nan, 1.0, np.nan], [np.nan, 0.0, 1.0]])
    for name in ("unique", "unique_consecutive"):
        found = [getattr(T, name)(T.tensor(x), return_inverse=True, return_counts=True) for T in (xgrad, torch)]
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
        with pytest.raises(IndexError, match="Dimension specified as 0 but tensor has no dimensions"):
            getattr(xgrad, name)(xgrad.tensor(1.0), dim=0)


@pytest.mark.parametrize(
    ("bounds", "sorter", "match"),
    [
        ([1.0, 2.0, 3.0], [0, 3, 1], "sorter index out of range"),
        ([1.0, 2.0, 3.0], [0, -1, 1], "sorter index out of range"),
        ([1.0, 2.0, 3.0], [0, 1], "boundary and sorter must have the same size"),
        (1.0, None, "boundaries tensor should have positive dimension"),
    ],
)
def test_refused_sorters_and_bounds(bounds, sorter, match):
    for T in (torch, xgrad):
        with pytest.raises(RuntimeError, match=match):
            T.searchsorted(T.tensor(bounds), T.tensor([2.0]), sorter=None if sorter is None else T.tensor(sorter))


def test_searching():
    bounds, x = np.array([1.0, 3.0, 5.0]), np.array([[0.0, 1.0], [4.0, 9.0]])
    for right in (False, True):
        agree(lambda lib, b, x, right=right: lib.searchsorted(b, x, right=right), bounds, x)
        agree(lambda lib, b, x, right=right: lib.bucketize(x, b, right=right, out_int32=True), bounds, x)
    agree(lambda lib, b, x: lib.searchsorted(b, x), np.stack([bounds, 2 * bounds]), x)
    with pytest.raises(RuntimeError, match="boundaries tensor must be 1 dimension"):
        xgrad.bucketize(xgrad.tensor(x), xgrad.tensor(x))
    assert torch.bucketize(torch.tensor(2.0), torch.tensor(bounds)).item() == 1
    assert xgrad.bucketize(2.0, xgrad.tensor(bounds)).item() == 1
