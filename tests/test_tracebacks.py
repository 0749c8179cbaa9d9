"""Tracebacks show the user's lines and the function that the user called, and nothing of what is below it."""

import traceback

import jax
import pytest

import xgrad

X, W = xgrad.ones(2, 3), xgrad.ones(4, 5)
LAYERS = xgrad.nn.Sequential(xgrad.nn.ReLU(), xgrad.nn.Sequential(xgrad.nn.Linear(5, 2)))


class Broken(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("a line of the user's")


def stale():
    y = xgrad.ones(3, requires_grad=True).exp()
    y.mul_(2)
    return y.sum()


def lazily():
    with xgrad.lazy():
        return X @ W


def interrupted(x):
    raise KeyboardInterrupt


def frames_of(function):
    """Return the files of the frames: True for the test's."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it raises
        function()
    return [frame.filename == __file__ for frame in traceback.extract_tb(caught.value.__traceback__)]


@pytest.mark.eager("failures")
@pytest.mark.parametrize(
    ("function", "inside"),
    [
        (lambda: X @ W, 1),
        (lambda: X + W, 1),
        (lambda: xgrad.cat([X, W]), 1),
        (lambda: xgrad.nn.functional.conv2d(xgrad.ones(1, 3, 8, 8), xgrad.ones(4, 2, 3, 3)), 1),
        (lambda: xgrad.linalg.inv(xgrad.zeros(3, 3)), 1),
        (lambda: X.view(7), 2),
        (lambda: X[5], 2),
        (lambda: xgrad.ones(3, device="cuda:7"), 1),
        (lambda: LAYERS(X), 1),
        (lambda: stale().backward(), 2),
        (lambda: xgrad.autograd.grad(stale(), xgrad.ones(1, requires_grad=True)), 1),
    ],
)
def test_an_error_shows_the_users_line_and_the_function_called(function, inside):
    assert frames_of(function) == [True, True] + [False] * inside


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (lazily, [True, False]),
        (lambda: xgrad.compile(lambda x: x @ W)(X), [True, False, True]),
        (lambda: xgrad.compile(interrupted)(X), [True, False, True]),
        (lambda: Broken.apply(xgrad.ones(2, requires_grad=True)).sum().backward(), [True, False, False, True]),
    ],
    ids=["lazy", "compiled", "interrupted", "a derivative of the user's"],
)
def test_the_users_lines_below_stay(function, shown):
    assert frames_of(function) == [True, *shown]


def test_a_switch_of_jax_shows_all_frames():
    before = jax.config.values["jax_traceback_filtering"]
    try:
        jax.config.update("jax_traceback_filtering", "off")
        assert frames_of(lambda: X @ W).count(False) > 5
    finally:
        jax.config.update("jax_traceback_filtering", before)


def test_a_fault_of_xgrads_own_shows_all_frames(monkeypatch):
    monkeypatch.setattr("xgrad.dispatch.call.blank", lambda kind: kind.no_such_name)
    assert frames_of(lambda: X.sin()) == [True, True, False, False, True]


def test_errors_of_users_have_no_note_of_jax():
    with pytest.raises(RuntimeError) as raised:
        xgrad.ones(4, 16) + xgrad.ones(3)
    assert not any("JAX" in note for note in getattr(raised.value, "__notes__", ()))
