"""Activations: values and derivatives, at their kinks as well; in-place forms; what is saved; errors."""

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional as F
from xgrad.dispatch.saved_attributes import kept_names

from .agreement import agree, random

POINTWISE = {
    "relu": {}, "relu6": {}, "leaky_relu": {"negative_slope": 0.2}, "elu": {"alpha": 1.5}, "celu": {"alpha": 0.7},
    "selu": {}, "gelu": {}, "silu": {}, "mish": {}, "hardswish": {}, "hardsigmoid": {}, "hardtanh": {"min_val": -0.5},
    "softplus": {"beta": 2.0, "threshold": 5.0}, "softsign": {}, "softshrink": {}, "hardshrink": {}, "tanhshrink": {},
    "threshold": {"threshold": 0.1, "value": 7.0}, "logsigmoid": {},
}  # fmt: skip

# The kinks of all of them, and large values whose exponentials overflow.
POINTS = np.array([-800.0, -20.0, -3.0, -1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 2.5, 3.0, 6.0, 800.0])


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", POINTWISE)
def test_values_and_derivatives_at_kinks_and_far_out(name):
    agree(lambda f, x: getattr(f, name)(x, **POINTWISE[name]), POINTS, order=1)


@pytest.mark.one_in(20)
@pytest.mark.parametrize("name", sorted(set(POINTWISE) - {"hardsigmoid"}))  # PyTorch has no second derivative of it
def test_second_derivatives(name):
    agree(lambda f, x: getattr(f, name)(x, **POINTWISE[name]), random(13))


@pytest.mark.parametrize("name", ["relu", "relu6", "elu", "selu", "hardtanh", "leaky_relu", "silu", "hardswish"])
def test_inplace_argument_writes_and_backpropagates(name):
    def function(f, x):
        y = x * 1
        out = getattr(f, name)(y, inplace=True)
        assert out is y
        return y

    agree(function, POINTS[1:-1], order=1)


def test_relu_and_softmax_save_only_their_result():
    x = xgrad.tensor(random(3), requires_grad=True)
    for out in (xgrad.relu(x), x.softmax(0), x.log_softmax(0)):
        assert kept_names(out.grad_fn) == ["result"]
        np.testing.assert_array_equal(out.grad_fn._saved_result.detach().numpy(), out.detach().numpy())


def test_tanh_approximation_of_gelu():
    agree(lambda f, x: f.gelu(x, approximate="tanh"), random(5))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("shape", [(2, 3), ()])
def test_softmax_family(name, shape):
    agree(lambda f, x: getattr(f, name)(x, dim=-1), random(*shape) + 0.0 if shape else np.array(0.3))


def test_softmax_casts_first_and_its_gradient_returns_to_the_inputs_dtype():
    x = xgrad.tensor(np.array([1, 2], np.int32))
    assert x.softmax(0, dtype=xgrad.float64).dtype == xgrad.float64
    y = xgrad.tensor(np.array([1, 2], np.float32), requires_grad=True)
    y.log_softmax(0, dtype=xgrad.float64).sum().backward()
    assert y.grad.dtype == xgrad.float32


def test_softmax_without_dim_warns():
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
        out = F.softmax(xgrad.ones(2, 4))
    np.testing.assert_allclose(out.numpy(), 0.25)


def test_glu_and_prelu():
    agree(lambda f, x: f.glu(x, dim=1), random(2, 4))
    agree(lambda f, x, w: f.prelu(x, w), random(2, 3, 2), random(3, seed=1))
    agree(lambda f, x, w: f.prelu(x, w), random(4), random(1, seed=1))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_norms_of_vectors_have_subgradient_zero_at_the_origin(p):
    x = np.vstack([random(2, 3), np.zeros((1, 3))])
    agree(lambda f, x: f.normalize(x, p=p), x, order=1)
    agree(lambda f, x, y: f.pairwise_distance(x, y, p=p, eps=0.0), x, np.zeros((3, 3)), order=1)


def test_pdist():
    agree(lambda f, x: f.pdist(x, p=3.0), random(4, 3), order=1)


def test_cosine_similarity_below_eps_keeps_the_norms_slope():
    x = np.array([[1e-3, 2e-3], [1.0, -2.0]])
    agree(lambda f, x, y: f.cosine_similarity(x, y, eps=0.1), x, random(2, 2), order=1)


def test_rrelu_draws_slopes_in_training_and_its_gradient_is_the_slope():
    x = xgrad.full((1000,), -1.0, requires_grad=True)
    out = F.rrelu(x, 0.2, 0.6, training=True)
    assert -0.6 <= float(out.min()) < -0.5 < -0.3 < float(out.max()) <= -0.2
    out.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), -out.detach().numpy())
    np.testing.assert_allclose(F.rrelu(x, 0.2, 0.6).detach().numpy(), -0.4, rtol=1e-6)


@pytest.mark.parametrize("name", ["elu", "celu", "selu"])
def test_the_slope_of_the_negative_side_does_not_change_at_zero(name):
    found = []
    for lib in (torch, xgrad):
        x = lib.tensor([0.0, -0.0, -1.0, 1.0], requires_grad=True)
        (slope,) = lib.autograd.grad(getattr(lib.nn.functional, name)(x).sum(), x, create_graph=True)
        (second,) = lib.autograd.grad(slope.sum(), x)
        found.append([slope.detach().numpy(), second.numpy()])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: F.elu(xgrad.tensor([1, 2])), NotImplementedError, "not implemented for '(Long|Int)'"),
        (lambda: F.glu(xgrad.ones(3)), RuntimeError, "Halving dimension must be even, but dimension 0 is size 3"),
        (lambda: F.hardtanh(xgrad.ones(1), 1.0, -1.0), ValueError, "min_val"),
        (lambda: F.softshrink(xgrad.ones(1), -1.0), RuntimeError, "greater or equal to 0, but found to be -1.0"),
        (lambda: F.gelu(xgrad.ones(1), approximate="no"), RuntimeError, "must be either none or tanh, not 'no'"),
        (lambda: F.prelu(xgrad.ones(2, 3), xgrad.ones(2)), RuntimeError, "parameter numbers = 2 and channel size = 3"),
        (lambda: xgrad.softmax(xgrad.ones(2), 1), IndexError, r"range of \[-1, 0\], but got 1"),
        (lambda: F.celu(xgrad.ones(1), 0.0), RuntimeError, "alpha cannot be 0 for CELU"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_nan_passes_through_piecewise_functions():
    nan = np.array([np.nan])
    for name in ("relu", "relu6", "hardtanh", "hardshrink"):
        assert torch.isnan(getattr(torch.nn.functional, name)(torch.tensor(nan)))
        assert np.isnan(getattr(F, name)(xgrad.tensor(nan)).numpy())


@pytest.mark.exhaustive
def test_the_gradient_of_softmax_in_bfloat16_does_not_cancel():
    x, weights = random(4, 64).astype("float32"), (10 + random(4, 64, seed=1) / 5).astype("float32")

    def gradient(T):
        a, w = (T.tensor(v).to(T.bfloat16) for v in (x, weights))
        a.requires_grad_()
        (T.softmax(a, 1) * w).sum().backward()
        return a.grad.to(T.float32).numpy()

    np.testing.assert_allclose(gradient(xgrad), gradient(torch), rtol=0.02, atol=1e-3)
