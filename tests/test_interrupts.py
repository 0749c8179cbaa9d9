"""Interrupts lose no value: a short run of the attack in tests/property/interrupts.py, and what it cannot time."""

import gc
import json
import pathlib
import signal
import subprocess
import sys
import threading

import jax
import pytest

import xgrad
from xgrad.base import limits
from xgrad.compiler import in_segments
from xgrad.execution import donation, fused, segments
from xgrad.tensor_methods import printing
from xgrad.views import transaction

from .deep import deep
from .property import interrupts

pytestmark = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals arrive in the main thread"
)
N = 1 << 15
ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture(scope="module", params=[3.0, pytest.param(8.0, marks=pytest.mark.exhaustive)])
def counts(request):
    """What the attack counted, in a process of its own: an interrupt in a finalizer is a warning of pytest's."""
    pytest.importorskip("optax")
    code = "import json; from tests.property import interrupts; print(json.dumps(interrupts.run(SECONDS, 0)))"
    code = code.replace("SECONDS", str(request.param))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("kind", interrupts.KINDS)
def test_interrupt_leaves_the_old_value_or_the_new_one(counts, kind):
    found = counts[kind]
    assert found["lost"] == 0, found


class Stop(BaseException):
    pass


def stopped(monkeypatch, name, work):
    """Have `work` interrupted where it first calls a function of `donation`."""

    def stop(*_):
        monkeypatch.undo()
        raise Stop

    monkeypatch.setattr(donation, name, stop)
    with pytest.raises(Stop):
        work()
    monkeypatch.undo()


@pytest.mark.eager("failures")
def test_first_call_that_is_interrupted_loses_nothing(monkeypatch):
    """In it JAX goes through Python, where an interrupt may come after XLA took the memory."""
    x = xgrad.ones(3, N)
    view = x[1]
    stopped(monkeypatch, "_note_need", lambda: x.add_(7))
    assert x._version == 1
    assert [x[0, 0].item(), view[0].item()] == [8, 8]


def test_program_runs_in_c_again_after_its_first_call_was_interrupted():
    """JAX runs a program through Python ever after if its first call was broken off."""
    x = xgrad.ones(5, N)

    def stop(*_):
        raise Stop

    def work():
        signal.setitimer(signal.ITIMER_REAL, 1e-3)  # while it is traced and compiled
        for _ in range(1000):
            x.clamp_(-3.0, 3.0)

    before = signal.signal(signal.SIGALRM, stop)
    gc.disable()  # Hypothesis has a callback of the collector, and Python swallows what is raised in one
    try:
        with pytest.raises(Stop):
            work()
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for _ in range(3):  # the first may copy, while a traceback holds the array, and the next one be compiled
        x.clamp_(-3.0, 3.0)
    ran = []
    sys.setprofile(lambda frame, event, _: ran.append(frame.f_globals.get("__name__", "")))
    try:
        x.clamp_(-3.0, 3.0)
    finally:
        sys.setprofile(None)
    assert not any(name.endswith(".pjit") for name in ran)


@pytest.mark.eager("launches")
@pytest.mark.exhaustive
def test_cleared_caches_are_a_first_call_again(monkeypatch):
    x = xgrad.ones(3, N)
    x.add_(7)
    jax.clear_caches()
    aside = []
    put = donation._put_aside
    monkeypatch.setattr(donation, "_put_aside", lambda box: (aside.append(len(box)), put(box)))
    x.add_(7)
    assert aside[:1] == [1]
    assert x[0, 0].item() == 15


def _stepping(how):
    """Return a step of AdamW that runs so."""
    width = 64 if how == "lazy" else 8  # what is small is not donated there
    model, x = deep(12, width), xgrad.ones(2, width)
    optimizer = xgrad.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    def lazily():
        with xgrad.lazy():
            step()

    return {"eager": step, "lazy": lazily}.get(how) or xgrad.compile(step)


@pytest.mark.eager("launches")
@pytest.mark.exhaustive
@pytest.mark.unverified("a verified call runs in Python too")
@pytest.mark.parametrize("how", ["eager", "lazy", "compiled", "in parts"])
def test_cleared_caches_are_a_first_step_again(monkeypatch, how):
    """No event says so: JAX runs a program that was compiled ahead through Python once more."""
    monkeypatch.setattr(in_segments, "SAVED", 1 if how == "in parts" else 1 << 30)
    for module in (segments, in_segments):
        monkeypatch.setattr(module, "MIN_SAVED_ENTRIES", 8)
    monkeypatch.setattr(in_segments, "OPERATIONS", 1)
    step, counts = _stepping(how), []
    for module in (transaction, fused):
        monkeypatch.setattr(module, "copied", lambda arrays: (counts.append(len(arrays)), donation.copied(arrays))[1])
    for _ in range(3):
        step()
    if how.startswith(("comp", "in")):
        assert (step._entries[0]._segments is not None) == (how == "in parts")
    counts.clear()
    step()
    assert sum(counts) == 0
    jax.clear_caches()
    step()
    assert sum(counts) >= 36
    counts.clear()
    step()
    assert sum(counts) == 0


@pytest.mark.eager("failures")
def test_lost_value_is_told_in_words():
    x, view = xgrad.ones(2, N), xgrad.ones(N)

    def failing(donate, where=None):
        program = donation.Writing(lambda a: a + 1, None)
        program.jitted = broken
        return program

    def broken(array):
        array.delete()
        raise RuntimeError("RESOURCE: no more")

    with pytest.raises(xgrad.errors.LostValueError, match=r"lost \(\[2, 32768\] float32\).*x\.data ="):
        x._rewrite(failing)
    gc.collect()
    for read in (x.numpy, x.sum, lambda: x + 1, lambda: x.add_(1), lambda: x[0].item(), lambda: repr(x)):
        with pytest.raises(xgrad.errors.LostValueError, match="the value of this tensor was lost"):
            read()
    assert x.shape == (2, N)
    x.data = xgrad.ones(2, N)
    assert x.sum().item() == 2 * N
    view.view(2, -1)
    with pytest.raises(xgrad.errors.LostValueError):
        view._rewrite(failing)
    with pytest.raises(xgrad.errors.LostValueError, match="the value of this tensor was lost"):
        view.numpy()


@pytest.mark.eager("launches")
def test_another_sharding_is_put_aside_too(monkeypatch):
    """JAX compiles what it has traced before, and traces nothing."""
    x = xgrad.ones(3, N)
    x.mul_(5)
    aside = []
    put = donation._put_aside
    monkeypatch.setattr(donation, "_put_aside", lambda box: (aside.append(len(box)), put(box)))
    y = xgrad.ones(3, N).to(jax.devices()[1]).clone()
    aside.clear()
    y.mul_(5)
    assert aside == [1]
    y.mul_(5)
    assert (aside, y[0, 0].item()) == ([1], 25)


@pytest.mark.parametrize("block", [xgrad.no_grad, xgrad.inference_mode])
def test_no_code_of_pythons_runs_at_the_end_of_a_block_that_restores_a_mode(block):
    entered = block()
    entered.__enter__()
    calls = []
    leave = entered.__exit__
    sys.setprofile(lambda frame, event, argument: event == "call" and calls.append(frame.f_code.co_name))
    leave(None, None, None)
    sys.setprofile(None)
    assert calls == []
    assert xgrad.is_grad_enabled()


def test_an_interrupt_at_the_start_of_a_block_leaves_what_was_there(monkeypatch):
    def then_stop(function):
        def interrupted(*args, **kwargs):
            function(*args, **kwargs)
            if args == (None,) or kwargs:
                raise Stop

        return interrupted

    def see(frame, event, argument):
        pass

    see.may_pause = True
    set_profile, before = sys.setprofile, sys.getprofile()
    monkeypatch.setattr(sys, "setprofile", then_stop(set_profile))
    set_profile(see)
    try:
        with pytest.raises(Stop), limits.unseen():
            pass
        assert sys.getprofile() is see
    finally:
        set_profile(before)
    monkeypatch.setattr(printing, "set_printoptions", then_stop(printing.set_printoptions))
    with pytest.raises(Stop), printing.printoptions(precision=1):
        pass
    assert printing.options.precision != 1


def test_a_draw_while_its_thread_holds_the_lock():
    generator = xgrad.default_generator
    with generator._lock:
        xgrad.rand(2)
