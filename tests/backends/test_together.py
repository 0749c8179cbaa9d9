"""xgrad.compile and compiled backward on an eager backend: one program, in which each operator was asked for."""

import numpy as np
import pytest

import xgrad
from xgrad.errors import BackendError, OutOfMemoryError

VALUES = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def leaves(device):
    return [xgrad.tensor(VALUES * by, device=device, requires_grad=True) for by in (1, 2)]


def step(x, w):
    loss = ((x @ w).tanh() * 2).sum()
    loss.backward()
    with xgrad.no_grad():
        w.sub_(w.grad, alpha=0.1)
        w.grad[0].mul_(2)
    return loss.detach()


@pytest.mark.parametrize("declared", [{}, {"strides": True}, {"donation": False}, {"dtypes": ["float32"]}], ids=str)
def test_a_compiled_step_is_one_launch(declared):
    chip = xgrad.Backend("chip", **declared)
    ours, theirs, compiled = leaves(chip), leaves("cpu"), xgrad.compile(step)
    for _ in range(2):
        with chip.report() as report:
            loss = compiled(*ours)
        assert report.launches == 1
        assert report.operators >= 10
        assert loss._held().value is not None
        expected = step(*theirs)
        np.testing.assert_allclose(loss.tolist(), expected.tolist(), rtol=1e-5)
        for a, b in zip(ours, theirs):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-5)
            assert a.device == a.grad.device == chip.device
    np.testing.assert_allclose(ours[1].detach().numpy(), theirs[1].detach().numpy(), rtol=1e-5)


def test_a_compiled_backward_is_one_launch():
    chip = xgrad.Backend("chip")
    seen, (x, w) = [], leaves(chip)
    loss = ((x @ w).tanh() * 2).sum()
    ones = xgrad.ones_like(loss)
    x.register_hook(lambda g: seen.append(g.device))
    with chip.report() as report, xgrad.autograd.compiled_backward():
        loss.backward(ones)
    assert (report.launches, seen) == (1, [chip.device])
    assert x.grad._held().value is not None
    a, b = leaves("cpu")
    ((a @ b).tanh() * 2).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), b.grad.numpy(), rtol=1e-5)
    with chip.report() as report:
        y = x.detach() + 1
        y + 1
    assert report.launches == 2  # as before


def test_what_it_lacks_ends_the_program_or_is_refused():
    chip = xgrad.Backend("chip", without=["tanh"])
    inputs, compiled = leaves(chip), xgrad.compile(step)
    with chip.report() as report:
        compiled(*inputs)
    assert [f["operator"] for f in report.as_dict()["fallbacks"]] == ["tanh", "TanhBackward0"]
    assert report.launches == 3
    refusing = chip.replace(fallback="error")
    x, w = leaves(refusing)
    with pytest.raises(BackendError, match=r"'tanh'.* at test_together.py:\d+"):
        xgrad.compile(step)(x, w)
    assert w.tolist() == (VALUES * 2).tolist()


def test_an_error_leaves_what_was_computed_and_the_backend_eager():
    chip = xgrad.Backend("chip")
    x, _ = leaves(chip)
    made = []

    def fails(x):
        made.append(x.detach() * 3)
        raise ArithmeticError("here")

    with pytest.raises(ArithmeticError, match="here"):
        xgrad.compile(fails)(x)
    assert made[0]._held().value is not None
    assert (x.detach() * 2)._held().value is not None


def test_what_was_noted_stays_valid_if_the_program_does_not_fit():
    chip = xgrad.Backend("chip", memory=4 * 64)
    x = xgrad.tensor(VALUES, device=chip)

    def many(x):
        x.add_(1)
        return [x + n for n in range(5)]

    with pytest.raises(OutOfMemoryError, match=r"out of memory\. Tried to allocate"):
        xgrad.compile(many)(x)
    np.testing.assert_array_equal(x.numpy(), VALUES + 1)


@pytest.mark.parametrize("how", ["closure", "array", "tensor of the CPU", "number"])
def test_a_compiled_function_without_the_backends_tensors_among_its_arguments_is_one_program(how):
    chip = xgrad.Backend("chip")
    x = xgrad.ones(4, device=chip)
    function, args = {
        "closure": (lambda: (x * 2).tanh().sum(), ()),
        "array": (lambda a: (xgrad.tensor(a, device=chip) * 2 * x).tanh().sum(), (np.ones(4, "float32"),)),
        "tensor of the CPU": (lambda a: (a.to(chip) * 2 * x).tanh().sum(), (xgrad.ones(4),)),
        "number": (lambda a: (x * a).tanh().sum(), (2.0,)),
    }[how]
    compiled = xgrad.compile(function)
    compiled(*args)
    with chip.report() as report:
        found = compiled(*args)
    assert report.launches == 1
    assert found.item() == pytest.approx(4 * np.tanh(2.0), rel=1e-5)


@pytest.mark.parametrize("how", ["ones", "tensor", "numpy", "moved", "drawn", "like"])
def test_what_a_compiled_function_makes_on_the_backend_is_there(how):
    """It was computed on the CPU, and said so."""
    chip, here = xgrad.Backend("chip"), xgrad.ones(3)
    made = {
        "ones": lambda: xgrad.ones(3, device=chip),
        "tensor": lambda: xgrad.tensor([1.0, 1.0, 1.0], device=chip),
        "numpy": lambda: xgrad.tensor(np.ones(3, np.float32), device=chip),
        "moved": lambda: here.to(chip),
        "drawn": lambda: xgrad.rand(3, device=chip) * 0 + 1,
        "like": lambda: xgrad.ones_like(here, device=chip),
    }[how]
    step = xgrad.compile(lambda: made() * 2)
    with chip.report() as report:
        for _ in range(2):
            y = step()
            assert (y.tolist(), y.device) == ([2, 2, 2], chip.device)
    assert report.launches == 2


def test_what_a_compiled_function_makes_on_the_meta_device_is_there():
    assert xgrad.compile(lambda: xgrad.ones(3, device="meta") * 2)().is_meta
