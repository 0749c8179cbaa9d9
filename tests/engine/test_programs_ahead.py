"""The programs of a first backward are compiled in parallel, and no other ones than the nodes need."""

import os
import signal
import threading
import time

import jax
import numpy
import pytest

import xgrad
import xgrad.nn.functional as F
from xgrad.execution.programs import ahead
from xgrad.execution.programs.ahead import compile_ahead, compiled
from xgrad.execution.programs.programs import jit_checked
from xgrad.execution.runner import runner

pytestmark = pytest.mark.eager("launches")


@pytest.fixture(autouse=True)
def _no_backend_is_declared(monkeypatch):
    """As in a new process: an earlier test may have declared one."""
    monkeypatch.setattr(runner, "backends", False)


def network(size):
    """The loss, and the leaves."""
    w = xgrad.full((size, 7), 0.1, requires_grad=True)
    b = xgrad.full((7,), 0.2, requires_grad=True)
    scale = xgrad.full((1, 7), 0.3, requires_grad=True)
    x = xgrad.ones(5, size)
    hidden = F.linear(x, w.t(), b).sigmoid() * scale
    return (hidden.tanh() * hidden.exp()).sum(), (w, b, scale)


@pytest.fixture
def in_threads(monkeypatch):
    """The programs that were compiled by other threads than this one."""
    found = []

    def note(event, duration, **_):
        if event.endswith("backend_compile_duration") and threading.current_thread() is not threading.main_thread():
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    return found


def test_what_is_compiled_ahead_is_what_the_nodes_run(in_threads, monkeypatch):
    loss, leaves = network(11)
    loss.backward()
    assert len(in_threads) >= 3
    before = compiled.count
    for _ in range(2):  # with another way for broadcast arguments this would compile
        loss, leaves = network(11)
        loss.backward()
    assert compiled.count == before
    monkeypatch.setattr("xgrad.engine.engine.prepare", lambda task, values: None)
    expected = [leaf.grad.tolist() for leaf in leaves]
    loss, leaves = network(11)
    loss.backward()
    assert [leaf.grad.tolist() for leaf in leaves] == expected


def test_new_shapes_are_compiled_ahead_too(in_threads):
    network(12)[0].backward()
    known = len(in_threads)
    network(13)[0].backward()
    assert len(in_threads) > known


def test_some_gradients_only(in_threads):
    loss, (_, b, _) = network(14)
    before = compiled.count
    (found,) = xgrad.autograd.grad(loss, b)
    counted = compiled.count - before
    assert found.shape == b.shape
    assert counted <= len(in_threads) + 8  # views and sums besides
    before = compiled.count
    loss, (_, b, _) = network(14)
    xgrad.autograd.grad(loss, b)
    assert compiled.count == before


@pytest.mark.parametrize("how", ["hook", "saved hook", "retain", "error", "no gradient"])
def test_surprises_change_no_gradient(how, monkeypatch):
    """Of a node that was compiled for another gradient, or that cannot be compiled."""

    def run(size):
        x = xgrad.full((3, size), 0.5, requires_grad=True)
        if how == "saved hook":
            with xgrad.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
                y = (x * x).exp()
        else:
            y = (x * x).exp()
        z = y.sin().sum()
        if how == "hook":
            y.register_hook(lambda g: g * 3)
        if how == "retain":
            y.retain_grad()
        if how == "error":
            y.grad_fn.register_prehook(lambda grads: 1 / 0)
        if how == "no gradient":
            z = z + xgrad.func.vmap(lambda r: r.sum())(y.detach()).sum()
        if how == "error":
            with pytest.raises(ZeroDivisionError):
                z.backward()
            return x.grad
        z.backward()
        return x.grad.tolist()

    found = run(19)
    monkeypatch.setattr("xgrad.engine.engine.prepare", lambda task, values: None)
    assert run(19) == found


def test_failing_programs_are_left_to_their_callers():
    good = [jit_checked(lambda x, n=n: x * n + 1) for n in range(3)]
    bad = jit_checked(lambda x: x.no_such_attribute)
    x = jax.numpy.ones(23)
    before = compiled.count
    compile_ahead([(good[0], [x]), (bad, [x]), (good[1], [x]), (good[0], [x]), (good[2], [x]), (good[2], [2.0])])
    assert compiled.count == before + 4
    for n, program in enumerate(good):
        assert program(x).tolist() == [n + 1.0] * 23
    assert compiled.count == before + 4
    with pytest.raises(AttributeError, match="no_such_attribute"):
        bad(x)


def test_operands_of_numpy():
    programs = [jit_checked(lambda x, n=n: x * n - 1) for n in range(2)]
    x = numpy.ones(29, "float32")
    compile_ahead([(program, [x]) for program in programs])
    before = compiled.count
    assert [program(x).tolist() for program in programs] == [[-1.0] * 29, [0.0] * 29]
    assert compiled.count == before


def test_an_interrupt_ends_the_wait(monkeypatch, interruptible):
    """Programs that wait are not compiled any more, and no thread is left."""

    class Slow:
        started = 0

        def lower(self, x):
            return self

        def compile(self):
            Slow.started += 1
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

    monkeypatch.setattr(ahead.os, "cpu_count", lambda: 1)
    x = jax.numpy.ones(3)
    with pytest.raises(KeyboardInterrupt):
        compile_ahead([(Slow(), [x]) for _ in range(9)])
    assert Slow.started == 1
    for thread in threading.enumerate():  # one whose start was interrupted is not waited for, and ends by itself
        if thread.name.startswith("xgrad compile"):
            thread.join(5)
            assert not thread.is_alive()
    assert Slow.started == 1
