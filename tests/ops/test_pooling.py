"""Pooling: windows, ties, indices, padding, divisors; adaptive windows; errors."""

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional as F
from xgrad.dispatch.saved_attributes import kept_names

from .agreement import agree, random

SHAPES = {1: (2, 3, 9), 2: (2, 2, 7, 6), 3: (1, 2, 5, 4, 5)}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n", SHAPES)
@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 1, "padding": 1}, {"stride": 2, "ceil_mode": True}, {"stride": 2, "dilation": 2, "padding": 1}],
)
def test_max_pool(n, options):
    agree(lambda f, x: getattr(f, f"max_pool{n}d")(x, 3, **options), random(*SHAPES[n]), order=2 if n < 3 else 1)


def test_max_pool_gives_the_gradient_to_the_first_of_equal_elements():
    x = np.repeat(np.array([[[1.0, 1.0, 0.0, 2.0, 2.0, 2.0]]]), 2, axis=1).reshape(1, 2, 2, 3)
    agree(lambda f, x: f.max_pool2d(x, 2, 1), x, order=1)


def test_max_pool_propagates_nan_and_minus_infinity():
    x = random(1, 1, 5)
    x[0, 0, 1], x[0, 0, 3:] = np.nan, -np.inf
    agree(lambda f, x: f.max_pool1d(x, 2), x, order=0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n", SHAPES)
def test_indices_are_those_of_the_maxima_in_the_channel(n):
    name, x = f"max_pool{n}d", random(*SHAPES[n])
    wanted = getattr(torch.nn.functional, name)(torch.tensor(x), 3, 2, 1, return_indices=True)
    got = getattr(F, name)(xgrad.tensor(x), 3, 2, 1, return_indices=True)
    for g, w in zip(got, wanted):
        np.testing.assert_array_equal(g.numpy(), w.numpy())
    agree(lambda f, x: getattr(f, name)(x, 3, 2, 1, return_indices=True)[0], x)


def test_max_pool_of_integers_with_padding():
    x = np.arange(-16, 0).reshape(1, 4, 4)
    wanted = torch.nn.functional.max_pool2d(torch.tensor(x), 3, 2, 1)
    np.testing.assert_array_equal(F.max_pool2d(xgrad.tensor(x), 3, 2, 1).numpy(), wanted.numpy())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n", SHAPES)
@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1, "ceil_mode": True}, {"padding": 1, "count_include_pad": False}]
)
def test_avg_pool(n, options):
    agree(lambda f, x: getattr(f, f"avg_pool{n}d")(x, 3, **options), random(*SHAPES[n]), order=1)


def test_max_unpool_puts_the_maxima_back():
    x = random(1, 2, 5, 4)

    def function(f, x):
        values, indices = f.max_pool2d(x, 2, return_indices=True)
        return f.max_unpool2d(values, indices, 2, output_size=(5, 4))

    agree(function, x)
    indices = xgrad.tensor(np.full((1, 1, 2, 2), 99))
    with pytest.raises(IndexError, match="index 99 is out of bounds"):
        F.max_unpool2d(xgrad.ones(1, 1, 2, 2), indices, 2)


def test_avg_pool_with_a_divisor_of_ones_own_saves_nothing():
    agree(lambda f, x: f.avg_pool2d(x, 2, divisor_override=3), random(1, 2, 4, 4))
    assert kept_names(F.avg_pool2d(xgrad.ones(1, 2, 4, 4, requires_grad=True), 2).grad_fn) == []


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize(("n", "size"), [(1, 3), (1, 4), (2, (1, None)), (2, (5, 3)), (3, (2, 3, 4))])
def test_adaptive_pools(kind, n, size):
    agree(lambda f, x: getattr(f, f"adaptive_{kind}_pool{n}d")(x, size), random(*SHAPES[n]), order=1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: F.max_pool2d(x, 2, padding=2), "pad should be at most half of effective kernel size"),
        (lambda x: F.max_pool2d(x, 9), "Output size is too small"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=0), "divisor must be not zero"),
        (lambda x: F.max_pool1d(x, 2), r"max_pool1d: Expected 2D or 3D input, but got input of size \[1, 1, 4, 4\]"),
        (lambda x: F.adaptive_max_pool2d(x, (2, 2**63)), "Storage size calculation overflowed"),
        (lambda x: F.adaptive_avg_pool2d(x, 2**45), "windows of adaptive pooling"),
        (lambda x: F.avg_pool2d(x, (2, 2, 2)), "kernel_size to be a single integer value or a list of 2 values"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(xgrad.ones(1, 1, 4, 4))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "shape", "norm_type", "size", "options"),
    [
        ("lp_pool1d", (2, 2, 7), 3.0, 2, {}),
        ("lp_pool1d", (2, 7), 2, 3, {"stride": 2, "ceil_mode": True}),
        ("lp_pool2d", (1, 2, 5, 4), 2.0, (2, 3), {"stride": (2, 1), "ceil_mode": True}),
        ("lp_pool2d", (2, 5, 4), float("inf"), 2, {}),
        ("lp_pool3d", (1, 2, 3, 4, 2), 4, 2, {"stride": 1}),
    ],
)
def test_pooling_by_a_norm(name, shape, norm_type, size, options):
    x = abs(random(*shape)) if norm_type == 3.0 else random(*shape)
    agree(lambda f, x: getattr(f, name)(x, norm_type, size, **options), x, order=1)


def test_the_norm_of_a_window_of_zeros_has_the_gradient_zero():
    agree(lambda f, x: f.lp_pool2d(x, 2.0, 2), np.zeros((1, 2, 2)), order=1)
    with pytest.raises(IndexError, match="Expected 3D or 4D input"):
        F.lp_pool2d(xgrad.ones(4, 4), 2.0, 2)
