"""Parts of a lazy program that repeat are one program, called many times; nothing is lost when one of them fails."""

import copy

import jax
import numpy as np
import pytest

import xgrad
import xgrad.nn.functional as F
from xgrad.execution import segments
from xgrad.execution.fused import programs

from ..deep import deep, fail


@pytest.fixture(autouse=True)
def smaller(monkeypatch):
    """Cut programs that are as small as tests are."""
    monkeypatch.setattr(segments, "MIN_SAVED_ENTRIES", 8)
    monkeypatch.setattr(segments, "BYTES", 1)


def train(model, steps, optimizer=xgrad.optim.AdamW):
    x = xgrad.linspace(-1, 1, 32).reshape(4, 8)
    optimizer = optimizer(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def parts():
    return programs.latest.segments.parts


@pytest.mark.parametrize("optimizer", [xgrad.optim.AdamW, xgrad.optim.SGD])
def test_layers_give_what_they_give_one_operator_at_a_time(optimizer):
    model, same = deep(24), deep(24)
    losses = train(model, 3, optimizer)
    with xgrad.lazy():
        assert train(same, 3, optimizer) == pytest.approx(losses, rel=1e-5)
        assert len(parts()) > 20
    for a, b in zip(model.parameters(), same.parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(force=True), b.numpy(force=True), rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=2e-3, atol=1e-5)


def test_a_deeper_model_compiles_no_more_programs():
    counts = []
    for count in (36, 60):
        model = deep(count)
        with xgrad.lazy():
            train(model, 1)
            counts.append(len({id(part.program) for part in parts()}))
    assert counts[0] == counts[1] < 10


def test_a_long_loop_compiles_some_turns_of_it(monkeypatch):
    monkeypatch.setattr(segments, "BYTES", 1 << 23)
    x = xgrad.linspace(0, 1, 8).requires_grad_()
    with xgrad.lazy():
        y = x
        for _ in range(1200):
            y = y * 0.99 + 0.01
        y.sum().backward()
        xgrad.sync()
        assert len({id(part.program) for part in parts()}) < 12
        assert max(len(part.program.programs) for part in parts()) < 800
    assert x.grad.tolist() == pytest.approx([0.99**1200] * 8, rel=1e-4)
    assert y.tolist() == pytest.approx((1 - (1 - x.detach()) * 0.99**1200).tolist(), rel=1e-5)


def test_writes_through_views_of_one_root_take_its_memory():
    root = xgrad.zeros(64, 1024)
    with xgrad.lazy():
        for i in range(64):
            root[i].add_(i)
        xgrad.sync()
        donated = [part.program.donated for part in parts()]
        assert all(donated[1:])
    assert root[:, 5].tolist() == list(range(64))


def test_the_weights_memory_is_given_to_the_new_weights():
    model = deep(12, 64)
    x = xgrad.ones(4, 64)
    optimizer = xgrad.optim.SGD(model.parameters(), lr=0.01)

    def pointers():
        return {p._read().unsafe_buffer_pointer() for p in model.parameters() if p.ndim == 2}

    for step in range(3):
        before = pointers()
        with xgrad.lazy():
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            xgrad.sync()
        assert step == 0 or len(pointers() - before) <= 1  # a gradient has the memory of one, which has another
    assert programs.latest.segments is not None


def test_a_program_gives_each_result_memory_of_its_own():
    """A segment may give the memory of what another one gave to its result: that must never be an input's."""
    x = jax.numpy.arange(1000.0)
    first, second, third = jax.jit(lambda x: [x, (y := x + 1), y])(x)
    assert len({a.unsafe_buffer_pointer() for a in (x, first, second, third)}) == 4


def test_the_metrics_count_parts():
    xgrad.lazy.reset()
    with xgrad.lazy():
        train(deep(24), 1)
    metrics = xgrad.lazy.metrics()
    assert "parts of" in metrics.programs[0]
    assert metrics.launches > 20
    assert metrics.compiling > 0


def stepped(model):
    """Note a step of a model, and return its parameters' old values and those that eager mode gives."""
    twin = copy.deepcopy(model)
    train(twin, 1)
    old, new = ([p.numpy(force=True).copy() for p in m.parameters()] for m in (model, twin))
    return old, new


def note(model):
    x = xgrad.linspace(-1, 1, 32).reshape(4, 8)
    optimizer = xgrad.optim.AdamW(model.parameters(), lr=0.01)
    F.mse_loss(model(x), x).backward()
    optimizer.step()


def test_an_interrupt_before_the_last_segments_loses_nothing(monkeypatch):
    model = deep(24)
    _, new = stepped(model)
    with xgrad.lazy():
        note(model)
        with monkeypatch.context() as patch:
            fail(patch, None, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                xgrad.sync()
        xgrad.sync()
    for p, value in zip(model.parameters(), new, strict=True):
        np.testing.assert_allclose(p.numpy(force=True), value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("first", [True, False])
def test_a_failure_in_the_last_segments_leaves_old_values_or_new_ones(monkeypatch, first):
    model = deep(24)
    if not first:  # from the second run on, C code calls the segments
        with xgrad.lazy():
            note(deep(24))
            xgrad.sync()
    old, new = stepped(model)
    with xgrad.lazy():
        note(model)
        with monkeypatch.context() as patch:
            fail(patch, 1, RuntimeError("a failure"))
            with pytest.raises(RuntimeError, match="a failure"):
                xgrad.sync()
        now = [p.numpy(force=True) for p in model.parameters()]
    kept = [np.array_equal(value, before) for value, before in zip(now, old, strict=True)]
    for value, after, same in zip(now, new, kept, strict=True):
        if not same:
            np.testing.assert_allclose(value, after, rtol=1e-4, atol=1e-6)
    if not first:
        assert any(kept)
        assert not all(kept)
    assert all(np.isfinite(train(model, 2)))
