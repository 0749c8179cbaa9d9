"""Deep chains of operations: each result is computed once, so that compiling and running take time by their length."""

import numpy as np
import pytest

import xgrad
from xgrad.base.platforms import tracing_for
from xgrad.execution.programs import chains

from ..oracle import same

SIZE = (3, 4)


def waves(x, n):
    """Each result has two users, and backward."""
    y = x
    for _ in range(n):
        y = (y * 1.01 + 0.5).sin() - y
    return y


def centered(x, n):
    """A reduction in each step, which XLA fuses too."""
    y = x
    for _ in range(n):
        y = (y - y.mean()) * 1.01 + 0.1
    return y


def gradient(function, n):
    def step(x):
        y = function(x, n)
        return y, xgrad.autograd.grad(y.sum(), x)[0]

    return step


def operations(function, n):
    """What XLA counts of the compiled step: floating-point operations and transcendental functions."""
    step, x = xgrad.compile(gradient(function, n)), xgrad.ones(*SIZE, requires_grad=True)
    cost = step.cost_analysis(x)
    return cost["flops"] + cost.get("transcendentals", 0)


@pytest.mark.parametrize("function", [waves, centered])
@pytest.mark.parametrize("mode", ["lazy", "compile"])
def test_values_and_gradients_are_those_of_operators_one_by_one(function, mode):
    x = xgrad.linspace(-1, 1, 12).reshape(*SIZE).requires_grad_()
    step = gradient(function, 60)
    expected = [t.detach().numpy() for t in step(x)]
    if mode == "compile":
        found = xgrad.compile(step)(x)
        text = xgrad.compile(step).lower(x).as_text()
    else:
        with xgrad.lazy():
            found = [t.detach() for t in step(x)]
            xgrad.sync()
        text = xgrad.lazy.as_text()
    assert "inlineable" in text
    for ours, theirs in zip(found, expected, strict=True):
        same(ours, theirs)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("function", [waves, centered])
def test_each_result_is_computed_once(function, monkeypatch):
    once, twice = operations(function, 60), operations(function, 120)
    assert twice < 2.3 * once
    monkeypatch.setattr(chains, "DEEP", 10_000)
    assert operations(function, 120) > 1.3 * twice  # what XLA makes of the chain as it is


def test_short_chains_and_other_platforms_have_one_program():
    step, x = gradient(waves, 60), xgrad.ones(*SIZE, requires_grad=True)
    with tracing_for("tpu"):
        assert "inlineable" not in xgrad.compile(step).lower(x).as_text()
    assert "inlineable" not in xgrad.compile(gradient(waves, 10)).lower(x).as_text()


def test_a_product_ends_a_chain():
    def layers(x):
        for _ in range(150):
            x = (x @ x) * 0.5
        return x

    assert "inlineable" not in xgrad.compile(layers).lower(xgrad.eye(3)).as_text()


def test_constants_numbers_and_unused_results_pass_through_a_cut_chain():
    shift = xgrad.tensor(np.arange(3, dtype="float32"))

    def step(x):
        y, spare = x, 0
        for i in range(140):
            y, spare = y * 0.5 + shift, y + i
        return y, 2.0, x, spare

    x = xgrad.ones(3)
    found, expected = xgrad.compile(step)(x), step(x)
    assert found[1] == 2.0
    for i in (0, 2, 3):
        same(found[i], expected[i].numpy())
