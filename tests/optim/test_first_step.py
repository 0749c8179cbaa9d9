"""The program of an optimizer's first step is compiled with those of the first backward, beside them."""

import gc
import sys
import threading

import pytest

import xgrad
from xgrad.execution.programs.ahead import compiled, expected
from xgrad.execution.runner import runner
from xgrad.optim.placing import filled

pytestmark = pytest.mark.eager("launches")


@pytest.fixture(autouse=True)
def _no_backend_is_declared(monkeypatch):
    """As in a new process: an earlier test may have declared one."""
    monkeypatch.setattr(runner, "backends", False)


OPTIMIZERS = {
    "SGD": {"lr": 0.1}, "SGD ": {"lr": 0.1, "momentum": 0.9, "nesterov": True}, "Adam": {"weight_decay": 0.1},
    "AdamW": {"amsgrad": True}, "NAdam": {}, "RAdam": {}, "Adamax": {}, "Adagrad": {}, "Adadelta": {},
    "RMSprop": {"momentum": 0.9, "centered": True}, "Rprop": {}, "ASGD": {}, "Adam ": {"lr": xgrad.tensor(0.1)},
}  # fmt: skip


def losses(name, options, n, place=None):
    """The losses of three steps, and what each part of the first one compiled."""
    w = xgrad.full((n, 3), 0.5, device=place).requires_grad_()
    b = xgrad.full((3,), 0.25, device=place).requires_grad_()
    optimizer = getattr(xgrad.optim, name.strip())([w, b], **options)
    found, counts = [], []
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((xgrad.ones(2, n, device=place) @ w + b).tanh() ** 2).sum()
        loss.backward()
        before = compiled.count
        optimizer.step()
        counts.append(compiled.count - before)
        found.append(loss.item())
    return found, counts


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_first_step_compiles_nothing_itself(name, monkeypatch):
    n = 5 + list(OPTIMIZERS).index(name)
    found, counts = losses(name, OPTIMIZERS[name], n)
    assert counts == [0, 0, 0]
    monkeypatch.setattr("xgrad.engine.programs.ahead.expected", {})
    assert losses(name, OPTIMIZERS[name], n)[0] == found


def test_on_a_device_that_was_named():
    assert losses("AdamW", {}, 31, "cpu:0")[1] == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "options"),
    [("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}), ("Adafactor", {}), ("Adam", {"lr": 1})],
)
def test_other_optimizers_step_as_before(name, options):
    class Own(getattr(xgrad.optim, name)):
        def _arrays(self, group, p):
            return super()._arrays(group, p)

    w = xgrad.full((4, 3), 0.5).requires_grad_()
    optimizer = (Own if name == "Adam" else getattr(xgrad.optim, name))([w], **options)
    (w * w).sum().backward()
    before = w.tolist()
    optimizer.step()
    assert w.tolist() != before


def test_an_optimizer_is_expected_until_it_steps_and_not_kept():
    gc.collect()
    known = len(expected)
    w = xgrad.ones(3, requires_grad=True)
    one, other = xgrad.optim.Adam([w]), xgrad.optim.SGD([w])
    assert len(expected) == known + 2
    (w * w).sum().backward()
    one.step()
    assert len(expected) == known + 1
    del other
    gc.collect()
    assert len(expected) == known
    assert not w.grad_fn
    assert list(one.state) == [w]


def test_a_prediction_changes_nothing_before_the_step():
    w = xgrad.ones(37, requires_grad=True)
    optimizer = xgrad.optim.AdamW([w])
    (w.exp() * w).sum().backward()
    assert not optimizer.state
    assert optimizer.state_dict()["state"] == {}
    assert w._version == 0


def test_an_optimizer_need_not_be_hashable():
    class Own(xgrad.optim.SGD):
        def __eq__(self, other):
            return self is other

    w = xgrad.ones(3, requires_grad=True)
    optimizer = Own([w], lr=0.5)
    w.sum().backward()
    optimizer.step()
    assert w.tolist() == [0.5] * 3


def test_a_thread_may_make_optimizers_while_another_runs_backward(monkeypatch):
    w = xgrad.ones(3, requires_grad=True)
    kept = [xgrad.optim.SGD([xgrad.ones(1, requires_grad=True)]) for _ in range(1000)]
    ended = threading.Event()

    def make():
        p = xgrad.ones(2, requires_grad=True)
        while not ended.is_set():
            xgrad.optim.SGD([p])

    thread = threading.Thread(target=make)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(100):
            monkeypatch.setattr("xgrad.engine.programs.ahead._seen.count", -1)  # as after a new program
            w.sum().backward()
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert len(kept) == 1000
    assert w.grad is not None
    assert w.grad.tolist() == [100.0] * 3


def test_parameters_of_one_shape_are_traced_once():
    calls = []

    class Counted(xgrad.optim.AdamW):
        rule = xgrad.optim.AdamW.rule._replace(
            name="counted", update=lambda *given: calls.append(1) or xgrad.optim.AdamW.rule.update(*given)
        )

    params = [xgrad.ones(n, 2, requires_grad=True) for n in (1, 2, 1, 2, 1)]
    for p in params:
        p.grad = xgrad.ones(*p.shape)
    Counted(params).step()
    assert len(calls) == 2


def test_state_on_a_cpu_compiles_nothing():
    p = xgrad.zeros(600, 701)
    before = compiled.count
    assert filled(p, 0.25).sum().item() == 600 * 701 / 4
    assert compiled.count <= before + 1  # the sum
