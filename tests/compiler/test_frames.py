"""A trace sees the frames of users' code, wherever it runs, and passes over operators that run none."""

import io
import sys

import jax.numpy as jnp
import pytest

import xgrad
from xgrad.compiler.guards.frames import Frames
from xgrad.dispatch.kernel import kernel_of
from xgrad.dispatch.operator import Operator
from xgrad.dispatch.tables import OPERATORS

FACTOR = {"by": 2.0}


@xgrad.from_jax
def scaled(x):
    return x * FACTOR["by"]


@pytest.mark.parametrize("grad", [False, True])
def test_what_a_users_operator_reads_is_guarded(grad, monkeypatch):
    def run(x):
        if not grad:
            return scaled(x)
        leaf = x.detach().requires_grad_()
        (scaled(leaf) * leaf).sum().backward()
        return leaf.grad / 2

    step, x = xgrad.compile(run), xgrad.ones(3, dtype=xgrad.float64)
    assert step(x).tolist() == [2.0] * 3
    monkeypatch.setitem(FACTOR, "by", 5.0)
    assert step(x).tolist() == run(x).tolist()


def test_functions_of_control_flow_are_seen(monkeypatch):
    def run(x):
        return xgrad.cond(x.sum() > 0, lambda y: y * FACTOR["by"], lambda y: y + 1, (x,))

    step, x = xgrad.compile(run), xgrad.ones(3, dtype=xgrad.float64)
    assert step(x).tolist() == [2.0] * 3
    monkeypatch.setitem(FACTOR, "by", 5.0)
    assert step(x).tolist() == [5.0] * 3


def test_only_operators_of_the_package_are_own():
    assert kernel_of(OPERATORS["relu"], ()).own
    assert not kernel_of(Operator("scaled", lambda x: x * FACTOR["by"]), ()).own
    own = [name for name, op in OPERATORS.items() if op.is_of_package]
    assert len(own) > 300


def test_frames_are_seen_again_after_an_operator_that_fails(monkeypatch):
    def helper(x):
        return x * FACTOR["by"]

    def run(x):
        try:
            xgrad.mm(x, x)
        except RuntimeError:
            return helper(x)

    step, x = xgrad.compile(run), xgrad.ones(2, 3, dtype=xgrad.float64)
    assert step(x)[0].tolist() == [2.0] * 3
    monkeypatch.setitem(FACTOR, "by", 5.0)
    assert step(x)[0].tolist() == [5.0] * 3


def test_operators_are_traced_without_a_profile_and_users_profiles_see_all():
    seen, events = [], []
    op = OPERATORS["relu"]
    before, function = dict(op.kernels), op.function

    def watching(x):
        seen.append(sys.getprofile())
        return function(x)

    watching.__code__ = watching.__code__.replace(co_filename=function.__code__.co_filename)
    try:
        op.function = watching
        op.kernels.clear()
        xgrad.compile(lambda x: x.relu())(xgrad.ones(5, dtype=xgrad.float64))
        assert seen == [None]
        op.kernels.clear()
        sys.setprofile(lambda frame, event, arg: events.append(frame.f_code.co_name))
        try:
            xgrad.compile(lambda x: x.relu())(xgrad.ones(5, dtype=xgrad.float64))
        finally:
            sys.setprofile(None)
        assert seen[1] is not None
    finally:
        op.function = function
        op.kernels.clear()
        op.kernels.update(before)
    assert jnp.ones(1).sum() == 1  # JAX is as it was


@pytest.fixture
def events(monkeypatch):
    """A dot for each event of JAX's frames that a trace sees, and an "e" for one of edges.py; text has no guard."""
    found, watch = io.StringIO(), Frames.watch

    def watching(self):
        watch(self)
        see = sys.getprofile()

        def counting(frame, event, arg):
            module = str(frame.f_globals.get("__name__"))
            if module.startswith("jax."):
                found.write(".")
            elif module == "xgrad.engine.edges":
                found.write("e")
            see(frame, event, arg)

        counting.may_pause = True
        sys.setprofile(counting)

    monkeypatch.setattr(Frames, "watch", watching)
    return found


def test_calls_of_our_own_programs_are_not_seen(events):
    x = xgrad.ones(3, 7, dtype=xgrad.float64, requires_grad=True)
    for _ in range(2):  # the first trace makes the kernels
        events.truncate(0)
        xgrad.compile(lambda x: (x.exp() * x.sin() + 1).sum())(x)
    assert "e" not in events.getvalue()  # where operators look for the nodes of their arguments
    assert events.getvalue().count(".") < 600  # each of five calls has some 300


def test_hooks_within_an_operator_are_seen():
    seen = io.StringIO()

    def pack(t):
        seen.write("yes " if sys.getprofile() is not None else "no ")
        return t

    def run(x):
        leaf = x.detach().requires_grad_()
        with xgrad.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            return (leaf.exp() * leaf).sum()

    xgrad.compile(run, verify=False)(xgrad.ones(3, dtype=xgrad.float64))
    assert seen.getvalue() == "yes yes yes "


def test_a_step_is_not_seen(events):
    w = [xgrad.ones(3, 4, requires_grad=True) for _ in range(30)]
    optimizer = xgrad.optim.AdamW(w)
    for each in w:
        each.grad = xgrad.ones(3, 4)
    xgrad.compile(optimizer.step)()
    assert events.getvalue().count(".") < 10_000  # 120 tensors become operands
