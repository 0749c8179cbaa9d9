"""What a fused program makes of the structure of its queue: results that are alive, sums of gradients and writes."""

import contextlib
import importlib.util
import sys

import jax
import pytest

import xgrad
from xgrad.engine.programs import segment
from xgrad.execution import queue as queues
from xgrad.execution import references
from xgrad.execution.owned import lend

from ..oracle import same
from .test_lazy import both, failing


def test_several_results_at_the_bound_of_pending_operations_are_alive(monkeypatch):
    monkeypatch.setattr(queues.Queue, "most", 4)
    with xgrad.lazy():
        x = xgrad.tensor([3.0, 1.0, 2.0])
        for _ in range(6):
            x = xgrad.sort(x)[0] + 1
    assert x.tolist() == [7, 8, 9]


def test_a_gradient_that_was_written_is_added_to():
    def program(T):
        p = T.ones(4, requires_grad=True)
        (p * 2).sum().backward()
        p.grad[0] = 0
        (p * 3).sum().backward()
        return p.grad

    both(program)


def test_a_segment_whose_program_fails_takes_pending_arrays_operator_by_operator(monkeypatch):
    monkeypatch.setattr(segment.Program, "traced", lambda *args: lambda *args: 1 / 0)
    try:
        with xgrad.lazy():
            x = xgrad.tensor([1.0, 2.0, 3.0], requires_grad=True)
            x.prod().backward(compiled=True)  # JAX's derivative
    finally:
        segment.clear()
    assert x.grad.tolist() == [6, 3, 2]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_result_that_failed_is_not_taken_for_a_later_one(position):
    op = xgrad.interop.jax.from_jax(failing)
    with xgrad.lazy():
        x = xgrad.ones(3)
        before = [x * 2 for _ in range(position)]
        bad = op(x)
        after = bad * 2
        with pytest.raises(Exception, match="no such value"):
            xgrad.sync()
        more = [x * n for n in (10, 20, 30, 40)]
        for lost in (bad, after):
            with pytest.raises(xgrad.errors.LostValueError, match="has no value"):
                lost + 1
        same(sum(more) + sum(before), [100 + 2 * position] * 3)


def test_a_program_that_jax_checks_for_nans_donates_nothing():
    w, beside = xgrad.ones(64, 64), None
    with xgrad.lazy():
        for value in (1.0, 0.0):
            w.fill_(value)
            xgrad.sync()
            with jax.debug_nans(value == 0):
                w.div_(w)
                beside = xgrad.ones(3) * 2
                with pytest.raises(FloatingPointError) if value == 0 else contextlib.nullcontext():
                    xgrad.sync()
        assert beside.tolist() == [2, 2, 2]


def test_the_metrics_say_why_a_program_is_another():
    w = xgrad.ones(32, 33)
    xgrad.sync()
    xgrad.lazy.reset()
    extra = before = None
    for step in range(3):
        with xgrad.lazy():
            before = lend(w._array, w) if step == 0 else None  # what refers to it keeps its memory in the first step
            w.mul_(0.5)
            extra = w * 3 if step == 2 else None
            w.add_(1)
            xgrad.sync()
    first, second, third = xgrad.lazy.metrics().programs
    assert "for the first time" in first
    assert "other operands are donated" in second
    assert "for the first time" in third
    del extra, before


def test_a_debugger_that_looks_on_while_reference_counts_are_measured_changes_none():
    source = importlib.util.find_spec(references.__name__)
    again = importlib.util.module_from_spec(source)

    def watch(frame, event, argument):
        assert frame.f_locals is not None
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        source.loader.exec_module(again)
    finally:
        sys.settrace(before)
    names = ("_ALONE", "_EACH", "_ATTRIBUTE", "_RESULTS")
    assert [getattr(again, name) for name in names] == [getattr(references, name) for name in names]
