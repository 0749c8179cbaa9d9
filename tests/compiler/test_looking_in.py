"""lower(), as_text(), the analyses, metrics(), reset(), the log and the warning."""

import functools
import logging
import re
import warnings

import jax
import numpy as np
import pytest

import xgrad
from xgrad.compiler.function import CompiledFunction

from ..oracle import leaf


def values(n=3, seed=0):
    return leaf(xgrad, n, seed=seed).detach() * 1


def train(x, w):
    w.grad = None
    (x * w).tanh().sum().backward()
    with xgrad.no_grad():
        w.sub_(w.grad)
    return xgrad.rand(2)


def test_nothing_is_run_by_looking():
    x, w, step = values(), leaf(xgrad, 3, seed=1), xgrad.compile(train)
    state, value = xgrad.get_rng_state().tolist(), w.detach().numpy().copy()
    for _ in range(2):
        assert isinstance(step.lower(x, w), jax.stages.Lowered)
        assert step.as_text(x, w).startswith("HloModule")
        assert step.cost_analysis(x, w)["flops"] > 0
        assert step.memory_analysis(x, w).argument_size_in_bytes >= 48
    np.testing.assert_array_equal(w.detach().numpy(), value)
    assert (w._version, w.grad, xgrad.get_rng_state().tolist()) == (0, None, state)
    assert step.metrics()[:2] == (0, 1)
    step(x, w)
    assert step.metrics()[:2] == (1, 1)


def test_lower_says_what_it_is_in_another_trace():
    step, errors = xgrad.compile(lambda x: x * 2), []

    def inside(x):
        try:
            step.lower(x)
        except RuntimeError as error:
            errors.append(str(error))
        return x * 2

    xgrad.func.vmap(inside)(values())
    assert errors == ["xgrad.compile: inside of another trace no program exists to look at"]


def test_donated_inputs_are_seen_in_the_program():
    t = values()
    assert "input_output_alias" in xgrad.compile(lambda t: t.add_(1)).as_text(t)
    assert "input_output_alias" not in xgrad.compile(lambda t: t.add_(1), donate=False).as_text(t)


def test_options_are_the_compilers():
    step = xgrad.compile(lambda x: x * 2, options={"no_such_option": 1})
    with pytest.raises(Exception, match="no_such_option"):
        step(values())


def test_metrics_and_reset():
    step, x = xgrad.compile(lambda x, n: x * n), values()
    assert step.metrics() == (0, 0, (), 0.0, 0)
    for n in (1, 1, 2, 1):
        step(x, n)
    calls, traces, reasons, seconds, _ = step.metrics()
    assert (calls, traces, len(reasons)) == (4, 2, 1)
    assert seconds > 0
    step.reset()
    assert step.metrics() == (0, 0, (), 0.0, 0)
    step(x, 1)
    assert step.metrics()[:2] == (1, 1)


def test_names_are_of_functions_and_of_the_classes_of_modules():
    def scale(x, by):
        return x * by

    assert xgrad.compile(scale).name().endswith("scale")
    assert xgrad.compile(functools.partial(scale, by=2)).name().endswith("scale")
    assert CompiledFunction(xgrad.nn.Sequential(xgrad.nn.Linear(2, 2)), True, None).name() == "Sequential"


def test_a_function_that_is_traced_again_and_again_is_warned_about_once():
    step, x = xgrad.compile(lambda x, n: x * n), values()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(12):
            step(x, n)
    assert len(caught) == 1
    assert re.search(r"has been traced 8 times, .* argument 1 was 6 and is 7\. Give", str(caught[0].message))
    assert caught[0].filename == __file__
    assert step.metrics().traces == 12


def test_the_log(caplog):
    step = xgrad.compile(train)
    with caplog.at_level(logging.INFO, logger="xgrad.compile"):
        step(values(), leaf(xgrad, 3))
        step(values(4), leaf(xgrad, 4))
    text = caplog.text
    if not text:
        pytest.skip("the log has another name")
    assert "train traced (1): the first call" in text
    assert "train traced (2): " in text


# -- programs ----------------------------------------------------------------------------------------------------------

N = 1 << 12


def copies(text):
    """How many buffers of the full size an optimized program copies."""
    return len(re.findall(rf"f64\[{N}\]\S* copy\(", text))


def big(seed=0):
    return leaf(xgrad, N, seed=seed).detach() * 1


def write_an_argument(x, w):
    for i in range(8):
        x[16 * i : 16 * (i + 1)].mul_(w)


def write_parts_of_each_other(x, w):
    for i in range(8):
        x[16 * i : 16 * (i + 1)].copy_(x[16 * (i + 1) : 16 * (i + 2)] * w)


def write_steps(x, w):
    for i in range(8):
        x[i::256].add_(w)


def write_what_is_made(x, w):
    y = x * 2
    for i in range(8):
        y[16 * i : 16 * (i + 1)].mul_(w)
    return y


def write_and_read(x, w):
    found = []
    for i in range(8):
        found.append(x[16 * i : 16 * (i + 1)].sum())
        x[16 * i : 16 * (i + 1)].mul_(w)
    return xgrad.stack(found)


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    "function",
    [write_an_argument, write_parts_of_each_other, write_steps, write_what_is_made, write_and_read],
    ids=lambda f: f.__name__,
)
def test_writes_through_views_copy_no_buffer(function, path):
    x, w = big(), leaf(xgrad, 16).detach()
    compiled, eager = xgrad.compile(function), x.clone()
    assert copies(compiled.as_text(x, w)) == 0
    function(eager, w)
    compiled(x, w)
    np.testing.assert_allclose(x.numpy(), eager.numpy())


@pytest.mark.one_in(2)
def test_a_backward_through_written_views_copies_no_buffer_for_each(path):
    x, w = big().requires_grad_(), leaf(xgrad, 16)
    x.grad, w.grad = xgrad.zeros_like(x).detach(), xgrad.zeros_like(w).detach()

    @xgrad.compile
    def step():
        y = x * 1
        for i in range(8):
            y[16 * i : 16 * (i + 1)].mul_(w)
        y.sum().backward()

    assert copies(step.as_text()) <= 1  # of eight


def test_without_donation_it_is_one_copy():
    x, w = big(), leaf(xgrad, 16).detach()
    assert copies(xgrad.compile(write_an_argument, donate=False).as_text(x, w)) <= 1


def test_results_that_were_put_on_a_device_by_name_compile_nothing_anew():
    compiled = []
    weight = xgrad.zeros(3)
    step = xgrad.compile(lambda: weight.add_(xgrad.ones(3, device=weight.device)))
    step()
    jax.monitoring.register_event_duration_secs_listener(lambda event, *args, **more: compiled.append(event))
    for _ in range(2):
        step()
    assert not [event for event in compiled if event.endswith("backend_compile_duration")]
    assert weight.tolist() == [3.0] * 3


@pytest.mark.exhaustive
def test_the_newest_programs_are_kept():
    step = xgrad.compile(lambda x, n: x + n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(70):
            step.lower(xgrad.ones(3), n)
    assert len(step._entries) == 64
    assert step.metrics().traces == 70


def test_a_program_does_not_depend_on_what_ran_before():
    """Eager backward learns where a gradient is summed for a broadcast argument; the next trace was another program."""

    def step(x, b):
        (x * b).sum().backward()
        return b.grad

    def text():
        return xgrad.compile(step).lower(xgrad.ones(5, 7), xgrad.ones(7, requires_grad=True)).as_text()

    before = text()
    for _ in range(2):
        step(xgrad.ones(5, 7), xgrad.ones(7, requires_grad=True))
    assert text() == before


def test_a_detached_loss_is_made_on_the_quick_path():
    w = xgrad.ones(3, requires_grad=True)

    @xgrad.compile
    def step(x, both):
        loss = (w * x).sum()
        w.grad = None
        loss.backward()
        return (loss.detach(), loss.detach()) if both else loss.detach()

    for both in (False, True):
        found = step(xgrad.ones(3), both)
    assert [entry._simple is not None for entry in step._entries] == [False, True]
    found[0].add_(1)
    assert [(t.item(), t._version) for t in found] == [(4.0, 1), (4.0, 1)]  # they share storage and counter
