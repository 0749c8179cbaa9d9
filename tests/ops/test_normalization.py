"""Normalization: values and derivatives, running statistics, what is kept, half precision, errors."""

import numpy as np
import pytest
import torch

import xgrad
import xgrad.nn.functional as F
from xgrad.dispatch.saved_attributes import kept_names

from .agreement import agree, random


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_layer_norm_and_rms_norm(shape):
    x, weight, bias = random(2, 2, 3), random(*shape, seed=1), random(*shape, seed=2)
    agree(lambda f, x, w, b: f.layer_norm(x, shape, w, b), x, weight, bias)
    agree(lambda f, x, w: f.rms_norm(x, shape, w, eps=0.1), x, weight)
    agree(lambda f, x: f.rms_norm(x, shape), x, order=1)


def test_rms_norm_of_complex_numbers_conjugates():
    x, w = (random(*shape, seed=1) + 1j * random(*shape, seed=2) for shape in ((2, 3), (3,)))
    expected = [torch.from_numpy(a).requires_grad_() for a in (x, w)]
    torch.nn.functional.rms_norm(expected[0], (3,), expected[1], eps=0.1).abs().sum().backward()
    found = [xgrad.from_numpy(a).requires_grad_() for a in (x, w)]
    F.rms_norm(found[0], (3,), found[1], eps=0.1).abs().sum().backward()
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), rtol=1e-10)


def test_group_norm():
    agree(lambda f, x, w, b: f.group_norm(x, 2, w, b), random(2, 4, 3), random(4, seed=1), random(4, seed=2))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(training, affine):
    mean, var = random(3, seed=3), random(3, seed=4) ** 2 + 0.1

    def function(f, x, *parameters):
        T = torch if f is torch.nn.functional else xgrad
        return f.batch_norm(x, T.tensor(mean), T.tensor(var), *parameters, training=training)

    agree(function, random(4, 3, 2), *((random(3, seed=1), random(3, seed=2)) if affine else ()))


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_running_statistics_follow_in_place_and_outside_of_the_graph(name):
    x = random(4, 3, 2)
    results = []
    for T in (torch, xgrad):
        mean, var = T.tensor(random(3, seed=3)), T.tensor(random(3, seed=4) ** 2)
        args = (True,) if name == "batch_norm" else ()
        options = {} if args else {"use_input_stats": True}
        out = getattr(T.nn.functional, name)(
            T.tensor(x).requires_grad_(), mean, var, None, None, *args, momentum=0.3, **options
        )
        assert out.requires_grad
        assert not mean.requires_grad
        results.append((mean.numpy(), var.numpy()))
    for got, wanted in zip(results[1], results[0]):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_only_the_arguments_are_kept():
    x = xgrad.tensor(random(2, 3), requires_grad=True)
    assert set(kept_names(F.layer_norm(x, (3,)).grad_fn)) <= {"self", "weight", "bias", "eps"}
    assert set(kept_names(F.batch_norm(x, None, None, training=True).grad_fn)) <= {"self", "weight", "eps"}


def test_half_precision_sums_in_float32():
    # 4096 numbers around 30: their sum overflows float16, which ends at 65504.
    x = (random(2, 4096) + 30).astype(np.float16)
    out = F.layer_norm(xgrad.tensor(x), (4096,))
    assert out.dtype == xgrad.float16
    wanted = torch.nn.functional.layer_norm(torch.tensor(x).float(), (4096,))
    np.testing.assert_allclose(out.numpy().astype(np.float32), wanted.numpy(), atol=4e-3)


def test_instance_norm_and_local_response_norm():
    agree(
        lambda f, x, w, b: f.instance_norm(x, None, None, w, b), random(2, 3, 4), random(3, seed=1), random(3, seed=2)
    )
    agree(lambda f, x: f.local_response_norm(x, 3, alpha=0.5, k=2.0), random(2, 5, 3))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda x: F.layer_norm(x, (4,)),
            RuntimeError,
            r"Given normalized_shape=\[4\], expected input with shape \[\*, 4\]",
        ),
        (
            lambda x: F.layer_norm(x, (3,), xgrad.ones(2)),
            RuntimeError,
            "weight to be of same shape as normalized_shape",
        ),
        (lambda x: F.group_norm(x, 2), RuntimeError, "number of channels in input to be divisible by num_groups"),
        (lambda x: F.batch_norm(x[:1], None, None, training=True), ValueError, "more than 1 value per channel"),
        (lambda x: F.batch_norm(x, None, None), RuntimeError, "running_mean and running_var to be defined"),
        (lambda x: F.batch_norm(x, xgrad.ones(2), None), RuntimeError, "running_mean should contain 3 elements not 2"),
        (lambda x: F.instance_norm(x.reshape(2, 3, 1)), ValueError, "more than 1 spatial element"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call(xgrad.ones(2, 3))
