"""The runner: who runs a program, a write or a backward, in the thread that asks."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import xgrad
from xgrad.dispatch.operator_modes import OperatorMode
from xgrad.execution.pending import Pending
from xgrad.execution.runner import Runner, runner, suspended

CHIP = xgrad.Backend("chip")
pytestmark = pytest.mark.skipif(runner.always_lazy, reason="every thread is lazy: no block ends")


def test_until_something_else_is_there_xla_runs_everything():
    code = """
import xgrad
from xgrad.execution.runner import runner
x = xgrad.ones(2, requires_grad=True)
(x * 2)[0].backward()
x.grad.add_(1)
assert str(xgrad.device("meta")) == "meta" and runner.plain and runner.at_once() and runner.queue() is None
{use}
assert not runner.plain and runner.backends is {backends}
"""
    uses = {
        "with xgrad.lazy(): pass": False,
        "xgrad.ones(2, device='meta')": True,
        "with xgrad.autograd.profiler.profile(): pass": False,
    }
    for use, backends in uses.items():
        subprocess.run([sys.executable, "-c", code.format(use=use, backends=backends)], check=True)


def test_a_thread_is_lazy_for_itself():
    found = []
    with xgrad.lazy():
        assert runner.queue() is xgrad.config.state.queue is not None
        assert not runner.at_once()
        thread = threading.Thread(target=lambda: found.append(runner.queue()))
        thread.start()
        thread.join()
        with suspended("a test"):
            assert runner.queue() is None
        assert runner.queue() is not None
    assert found == [None]
    assert runner.queue() is None


def test_a_mode_looks_on_in_its_block_only(monkeypatch):
    monkeypatch.setattr(runner, "backends", False)  # True once a test has declared a backend
    with OperatorMode():
        assert not runner.at_once()
    assert runner.at_once()


def test_threads_are_lazy_from_the_first_if_the_environment_says_so(monkeypatch):
    for value, lazy in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv("XGRAD_LAZY", value)
        assert (Runner().always_lazy, Runner().plain) == (lazy, not lazy)


def test_arrays_of_declared_backends_are_found():
    here, there = xgrad.ones(2), xgrad.ones(2, device=CHIP)
    assert not runner.on_backend([here._array, None, 2.0])
    assert runner.on_backend([here._array, there._array])
    assert runner.on_backend([(here._array, there._array)])


def test_what_a_lazy_block_left_is_evaluated_in_lists_and_holders():
    with xgrad.lazy():
        x = xgrad.ones(2).mul_(3)
        y = xgrad.ones(2) + x
        arrays = [y._array, 2.0, None]
        assert x._array.__class__ is y._array.__class__ is Pending
        runner.evaluate(arrays, holders=[x])
        assert x._array.__class__ is not Pending
    assert arrays[0].__class__ is not Pending
    assert arrays[1:] == [2.0, None]
    np.testing.assert_array_equal(arrays[0], [4, 4])


def test_a_write_after_a_lazy_block_runs_at_once_on_what_the_block_left():
    with xgrad.lazy():
        x, y = xgrad.ones(2) * 2, xgrad.ones(2) * 3
        x.add_(y)
    address = x._array.unsafe_buffer_pointer()
    x.add_(1)
    assert x._array.unsafe_buffer_pointer() == address  # its memory is donated
    x.add_(y)
    assert x.tolist() == [9, 9]
    view = x[:1]
    view.mul_(y[:1])
    assert x.tolist() == [27, 9]


def test_while_a_function_is_traced_each_call_asks(monkeypatch):
    monkeypatch.setenv("XGRAD_LAZY", "")
    one = Runner()
    one.trace(True)
    assert not one.plain
    one.trace(False)
    assert one.plain
    one.trace(True)
    one.ask()  # another thread enters a lazy block
    one.trace(False)
    assert not one.plain
    before = runner.plain
    assert xgrad.compile(lambda x: (x * 2, runner.plain))(xgrad.ones(3))[1] is False
    assert runner.plain is before
