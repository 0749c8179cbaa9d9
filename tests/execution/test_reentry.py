"""Finalizers, signal handlers and interrupts in the middle of lazy execution: nothing is lost, mixed up or waits."""

import threading
from collections import OrderedDict

import pytest

import xgrad
from xgrad.execution import owned
from xgrad.execution import queue as queues
from xgrad.execution.fused import Programs, programs
from xgrad.execution.metrics import Recorder


@pytest.fixture(autouse=True)
def _fresh():
    xgrad.lazy.reset()


def once(monkeypatch, where, name, between):
    """Call `between` once in the next call of `where.name`, as a finalizer or a signal handler would be."""
    before = getattr(where, name)

    def interrupted(*args):
        monkeypatch.setattr(where, name, before)
        between()
        return before(*args)

    monkeypatch.setattr(where, name, interrupted)


def fails():
    with pytest.raises(RuntimeError):
        xgrad.ones(2) * xgrad.ones(3)


USES = {
    "read": lambda side: side[0].sum().item(),
    "note": lambda side: side.append(side[0] * 5),
    "both": lambda side: side.append((side[0] * 5 + 1).exp()) or side[-1].sum().item(),
    "fail": lambda side: fails(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["outside", "alive_of"])
def test_tensors_are_used_in_the_middle_of_a_note_and_of_an_evaluation(monkeypatch, name, use):
    with xgrad.lazy():
        x = xgrad.ones(3)
        y, side = x * 2, [x * 7]
        once(monkeypatch, queues, name, lambda: USES[use](side))
        z = y + xgrad.tensor([10.0, 20.0, 30.0])
        u = x * 4
        xgrad.sync()
        assert z.tolist() == [12, 22, 32]
        assert (z - y).tolist() == [10, 20, 30]
        assert (y * 3 + u).tolist() == [10, 10, 10]
        assert side[0].tolist() == [7, 7, 7]
        assert len(side) == 1 or side[1].isfinite().all()


def test_an_operand_that_was_entered_in_the_middle_of_a_note_keeps_its_number(monkeypatch):
    class Inputs(list):
        def append(self, x):
            super().append(x)
            if self.between:
                between, self.between = self.between, None
                between()

    with xgrad.lazy():
        a, b = xgrad.tensor([1.0, 2.0, 3.0]), xgrad.tensor([10.0, 20.0, 30.0])
        xgrad.sync()
        queue, side = xgrad.config.state.queue, []
        queue.inputs = Inputs()
        queue.inputs.between = lambda: side.append(b * 2)
        y = a * 3
        z = a * 5
        assert (y + z).tolist() == [8, 16, 24]
        assert side[0].tolist() == [20, 40, 60]


@pytest.mark.parametrize(("where", "name"), [(Recorder, "new"), (Programs, "_reason")])
def test_an_evaluation_within_an_evaluation_does_not_wait_for_it(monkeypatch, where, name):
    monkeypatch.setattr(programs, "found", OrderedDict())
    with xgrad.lazy():
        x, other = xgrad.ones(3) * 2, []

        def between():
            other.append(xgrad.lazy.metrics())
            other.append(x.sum().item())

        once(monkeypatch, where, name, between)
        y = x.sinh().cosh()
        assert y.isfinite().all().item()
        assert other[1] == 6
        assert x.tolist() == [2, 2, 2]


def test_an_interrupt_before_the_program_loses_nothing(monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    with xgrad.lazy():
        w = xgrad.ones(3)
        w.mul_(3)
        y = w + 1
        once(monkeypatch, Recorder, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            xgrad.sync()
        assert (y * 2).tolist() == [8, 8, 8]
        assert w.tolist() == [3, 3, 3]


def test_a_write_of_another_thread_in_the_middle_of_a_note_is_not_lost(monkeypatch):
    w = xgrad.tensor([1.0, 1.0, 1.0])

    def write():
        thread = threading.Thread(target=lambda: w.fill_(7))
        thread.start()
        thread.join()

    with xgrad.lazy():
        once(monkeypatch, owned, "aval_of", write)
        w * 2
    assert w.tolist() == [7, 7, 7]
