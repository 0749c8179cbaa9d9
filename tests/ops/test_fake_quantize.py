"""Fake quantization against torch: the grid, ties, what is cut off, the straight-through gradient, errors."""

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import as_torch, same_error

X = np.array([[-3.0, -0.26, -0.25, -0.15, 0.0], [0.05, 0.15, 0.25, 0.35, 3.0]], np.float32)
VECTORS = (np.array([0.1, 0.2], np.float32), np.array([0, 1], np.int32))


def trained(T, quantize, x=X):
    x = T.tensor(x, requires_grad=True)
    y = quantize(x)
    (y * T.arange(1.0, y.numel() + 1).reshape(y.shape).to(y.dtype)).sum().backward()
    return y, x.grad


def tensors(T, *arrays):
    return (T.tensor(a) for a in arrays)


@pytest.mark.parametrize(
    "numbers",
    [
        lambda T: (0.1, 0),
        lambda T: (0.1, 3),
        lambda T: (T.tensor(0.1), T.tensor(3)),
        lambda T: (T.tensor([0.1]), T.tensor([3], dtype=T.int32)),
    ],
)
def test_per_tensor(numbers):
    as_torch(lambda T: trained(T, lambda x: T.fake_quantize_per_tensor_affine(x, *numbers(T), -8, 7)))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes_are_kept(dtype):
    def program(T):
        x = T.tensor(X).to(getattr(T, dtype))
        zero_points = T.tensor([0, 1], dtype=T.int32)
        return [
            T.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7).double(),
            T.fake_quantize_per_channel_affine(x, T.tensor([0.1, 0.2]), zero_points, 0, -8, 7).double(),
        ]

    as_torch(program)


@pytest.mark.parametrize("zero_points", [VECTORS[1], np.array([0.0, 1.5], np.float32)])
def test_per_channel(zero_points):
    def quantize(T, x, axis):
        return T.fake_quantize_per_channel_affine(x, *tensors(T, VECTORS[0], zero_points), axis, -8, 7)

    as_torch(lambda T: trained(T, lambda x: quantize(T, x, 0)))
    as_torch(lambda T: trained(T, lambda x: quantize(T, x.t(), 1)))


def test_what_is_no_number_becomes_the_least():
    x = [float("nan"), -float("inf"), float("inf")]
    as_torch(lambda T: T.fake_quantize_per_tensor_affine(T.tensor(x), 0.5, 0, -8, 7))


ONE = "fake_quantize_per_tensor_affine"
MANY = "fake_quantize_per_channel_affine"


@pytest.mark.eager("failures")
@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda T, x: getattr(T, ONE)(x, 0.1, 20, 0, 15), "`zero_point` must be between"),
        (lambda T, x: getattr(T, ONE)(x, 0.1, 0, 5, 3), "`quant_min` should be less than or"),
        (lambda T, x: getattr(T, ONE)(x.int(), 0.1, 0, 0, 3), "not implemented for 'Int|int32"),
        (lambda T, x: getattr(T, ONE)(x, T.tensor([0.1, 0.2]), T.tensor([3]), 0, 15), "cannot be converted to Scalar"),
        (lambda T, x: getattr(T, ONE)(x, T.tensor(0.1, requires_grad=True), T.tensor(0), 0, 3), "not differentiable"),
        (lambda T, x: getattr(T, MANY)(x, *tensors(T, *VECTORS), 1, -8, 7), "not consistent with input tensor"),
        (lambda T, x: getattr(T, MANY)(x, *tensors(T, *VECTORS), -2, -8, 7), "`axis` must be between 0 and"),
        (lambda T, x: getattr(T, MANY)(x, *tensors(T, *VECTORS), 2, -8, 7), "Dimension out of range"),
        (lambda T, x: getattr(T, MANY)(x, T.ones(1, 2), T.tensor(VECTORS[1]), 0, -8, 7), "should be a 1-D tensor"),
    ],
)
def test_errors(program, match):
    same_error(lambda T: program(T, T.tensor(X)), match)


def test_training_with_it_is_training_in_torch():
    """Weights and inputs are quantized in each step, by scales that follow them."""

    def program(T):
        w = T.tensor(X[:, :3] + 0.3).requires_grad_()
        optimizer = T.optim.SGD([w], lr=0.1)
        losses = []
        for _ in range(4):
            scale = (w.detach().abs().max() / 7).reshape(())
            quantized = T.fake_quantize_per_tensor_affine(w, scale, T.tensor(0), -8, 7)
            loss = (quantized @ T.tensor(X[0, :3]) - T.tensor([1.0, -1.0])).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses, w.detach()

    as_torch(program, rtol=1e-6)


def test_in_a_compiled_function():
    @xgrad.compile
    def quantize(x):
        return xgrad.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)

    assert (
        quantize(xgrad.tensor(X)).tolist()
        == torch.fake_quantize_per_tensor_affine(torch.tensor(X), 0.1, 0, -8, 7).tolist()
    )


@pytest.mark.parametrize(("scale", "zero_point"), [(0.1, 1.0), (0.5, [1.5])])
def test_a_zero_point_that_is_a_floating_tensor_is_cut_to_an_integer(scale, zero_point):
    ours, theirs = (
        trained(T, lambda x: T.fake_quantize_per_tensor_affine(x, T.tensor(scale), T.tensor(zero_point), -2, 30))  # noqa: B023
        for T in (xgrad, torch)
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)
