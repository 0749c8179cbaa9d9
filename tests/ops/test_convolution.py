"""Convolutions: every argument against PyTorch, what is saved, unbatched inputs, errors."""

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional as F
from xgrad.dispatch.saved_attributes import kept_names

from ..oracle import as_torch, data
from .agreement import agree, random

CASES = [
    ("conv1d", (2, 4, 7), (6, 2, 3), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
    ("conv2d", (2, 2, 5, 6), (3, 2, 3, 2), {"stride": (2, 1), "padding": (1, 0)}),
    ("conv2d", (2, 2, 5, 6), (3, 2, 2, 4), {"padding": "same", "dilation": (1, 2)}),
    ("conv3d", (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"padding": "valid"}),
    ("conv_transpose1d", (2, 4, 5), (4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
    ("conv_transpose2d", (1, 2, 3, 4), (2, 3, 3, 2), {"stride": (2, 1), "dilation": (1, 2), "padding": 1}),
    ("conv_transpose3d", (1, 2, 2, 3, 2), (2, 1, 2, 2, 2), {}),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "shape", "kernel", "options"), CASES)
def test_values_and_derivatives(name, shape, kernel, options):
    channels = kernel[1] * options.get("groups", 1) if "transpose" in name else kernel[0]
    arrays = random(*shape), random(*kernel, seed=1), random(channels, seed=2)
    agree(lambda f, x, w, b: getattr(f, name)(x, w, b, **options), *arrays)


def test_without_batch_and_without_bias():
    agree(lambda f, x, w: f.conv2d(x, w), random(2, 4, 4), random(3, 2, 2, 2, seed=1), order=1)


def test_complex():
    x, w = random(1, 2, 5) + 1j * random(1, 2, 5, seed=1), random(3, 2, 2) + 1j * random(3, 2, 2, seed=2)
    agree(lambda f, x, w: f.conv1d(x, w), x, w, order=0)


def test_the_gradient_of_one_argument_saves_only_the_other():
    x, w = xgrad.tensor(random(1, 1, 4)), xgrad.tensor(random(1, 1, 2))
    node = F.conv1d(x, w.clone().requires_grad_()).grad_fn
    assert "weight" not in kept_names(node)
    node = F.conv1d(x.clone().requires_grad_(), w).grad_fn
    assert "self" not in kept_names(node)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["linear", "bilinear", "conv1d", "conv_transpose1d"])
def test_a_bias_is_not_saved_and_may_be_written(name):
    """`b.add_()` between forward and backward is no error, and the gradients are those of the first call."""

    def program(T):
        x, bias = data(T, (2, 3, 4), 0, True), data(T, (3,), 1, True)
        weight = data(T, (3, 4) if name == "linear" else (3, 3, 4), 2, True)
        if name == "bilinear":
            x, weight = data(T, (2, 4), 0, True), data(T, (3, 4, 4), 2, True)
        inputs = (x, x * 2) if name == "bilinear" else (x,)
        out = getattr(T.nn.functional, name)(*inputs, weight, bias)
        with T.no_grad():
            bias.add_(1)
        return T.autograd.grad((out * out.detach()).sum(), (x, weight, bias))

    as_torch(program)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x, w: F.conv2d(x, w),
            r"weight of size \[4, 3, 2, 2\], expected input\[1, 2, 5, 5\] to have 3 channels",
        ),
        (lambda x, w: F.conv1d(x, w), "expected a 3-dimensional weight"),
        (lambda x, w: F.conv2d(x, w, stride=0), "non-positive stride is not supported"),
        (lambda x, w: F.conv2d(xgrad.ones(1, 3, 1, 1), w), "Kernel size can't be greater than actual input size"),
        (lambda x, w: F.conv2d(xgrad.ones(1, 3, 5, 5), w, xgrad.ones(2)), "expected bias to be 1-dimensional with 4"),
        (lambda x, w: F.conv2d(xgrad.ones(1, 3, 5, 5), w, padding=(1, 1, 1)), "padding to be a single integer value"),
        (lambda x, w: F.conv2d(xgrad.ones(1, 3, 5, 5), w, padding="full"), "Invalid padding string: 'full'"),
        (
            lambda x, w: F.conv2d(xgrad.ones(1, 3, 5, 5), xgrad.tensor(np.ones((4, 3, 2, 2)))),
            "to have the same dtype, but got Float and Double",
        ),
        (
            lambda x, w: F.conv_transpose2d(xgrad.ones(1, 4, 2, 2), w, output_padding=1),
            "output padding must be smaller than either stride or dilation",
        ),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, text):
    x, w = xgrad.ones(1, 2, 5, 5), xgrad.ones(4, 3, 2, 2)
    with pytest.raises(RuntimeError, match=text):
        call(x, w)


def test_same_padding_refuses_strides():
    x, w = xgrad.tensor(np.ones((1, 3, 5))), xgrad.tensor(np.ones((1, 3, 2)))
    with pytest.raises(RuntimeError, match="padding='same' is not supported for strided convolutions"):
        F.conv1d(x, w, padding="same", stride=2)


@pytest.mark.parametrize("pad", [0, 1])
def test_convolution_of_time_batch_channels(pad):
    arrays = random(5, 2, 3), random(2, 3, 4, seed=1), random(4, seed=2)
    agree(lambda f, x, w, b: f.conv_tbc(x, w, b, pad), *arrays)
    assert xgrad.conv_tbc(*(xgrad.tensor(a) for a in arrays), pad=pad).shape == (4 + 2 * pad, 2, 4)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((5, 2), (2, 3, 4), (4,)), "Input must have 3 dims: time, batch, in_channel"),
        (((5, 2, 3), (2, 3), (4,)), "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels."),
        (((5, 2, 3), (2, 3, 4), (4, 1)), "Bias must be 1-D"),
        (((5, 2, 3), (2, 3, 4), (3,)), "Bias size must equal dim 2 in the weight tensor"),
        (((5, 2, 4), (2, 3, 4), (4,)), r"Input dim 2 \(input channels\) is not == dim 1 in the weight tensor"),
        (((1, 2, 3), (4, 3, 4), (4,)), "Trying to create tensor with negative dimension -2"),
    ],
)
def test_conv_tbc_refuses_what_does_not_fit(shapes, text):
    for library in (torch, xgrad):
        with pytest.raises(RuntimeError, match=text):
            library.conv_tbc(*(library.ones(s) for s in shapes))


def test_a_kernel_without_results_is_refused():
    for t in (xgrad, torch):
        with pytest.raises(RuntimeError, match="expected weight to be at least 1 at dimension 0"):
            t.nn.functional.conv2d(t.ones(2, 16, 8, 8), t.ones(0, 16, 1, 1))
