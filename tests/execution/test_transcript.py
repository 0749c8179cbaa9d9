"""The second backward of a structure notes what the first one has noted, and nothing else changes."""

import contextlib
import gc
import weakref

import pytest
import torch

import xgrad
from xgrad.engine import transcript
from xgrad.execution import queue as queues

from ..oracle import same


@pytest.fixture
def replays(monkeypatch):
    """The outlines of backwards that were replayed."""
    transcript._known.clear()
    monkeypatch.setattr(transcript, "_misses", [0])
    found = []
    replay = transcript.Transcript.replay

    def counted(self, task, outline):
        done = replay(self, task, outline)
        found.append(outline) if done else None
        return done

    monkeypatch.setattr(transcript.Transcript, "replay", counted)
    return found


def in_steps(T, step, count=4):
    """Run `step(T, i)` in a lazy block each."""
    found = []
    for i in range(count):
        with xgrad.lazy() if T is xgrad else contextlib.nullcontext():
            found.append(step(T, i))
            if T is xgrad:
                xgrad.sync()  # with every thread lazy, no block ends
    return found


def both(make, count=4):
    """Compare the steps that `make(T)` returns a function for."""
    same(in_steps(xgrad, make(xgrad), count), in_steps(torch, make(torch), count))


def leaves(T):
    return (
        T.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]], dtype=T.float64).requires_grad_(),
        T.tensor([[1.0, 0.5, 0.75], [-1.0, 2.0, 0.1]], dtype=T.float64).requires_grad_(),
    )


def assert_empty():
    """No transcript has an array."""
    results = [out for known in transcript._known.values() for *_, out, _ in known.entries]
    parts = [p for out in results for p in (out if out.__class__ is tuple else (out,))]
    assert all(p.value is None and p.queue is None for p in parts)


def trained(T, w, b, loss):
    loss.backward()
    with T.no_grad():
        w -= 0.1 * w.grad
        b -= 0.1 * b.grad
    found = w.grad.clone(), b.grad.clone(), w.detach().clone()
    w.grad = b.grad = None
    return found


def test_each_step_of_a_training_loop_but_the_first_is_a_replay(replays):
    def make(T):
        w, b = leaves(T)
        return lambda T, i: trained(T, w, b, ((w * b).tanh() @ w.T + (b / 2).exp().sum()).pow(2).mean())

    both(make)
    assert len(replays) >= 3


def test_replays_use_one_program():
    w, _ = leaves(xgrad)
    xgrad.lazy.reset()
    for _ in range(5):
        with xgrad.lazy():
            (w.exp() * w).sum().backward()
            xgrad.sync()
    assert len(xgrad.lazy.metrics().programs) <= 2  # the second adds to `.grad`, all others too
    assert xgrad.lazy.metrics().launches == 5


def test_saved_numbers_may_change(replays):
    def make(T):
        w, b = leaves(T)
        return lambda T, i: trained(T, w, b, (w * (i + 0.5) + b * (2.5 - i)).tanh().sum() * float(i + 2))

    both(make)
    assert replays


def test_one_float_in_two_places_becomes_two(replays):
    same_one = 3.5

    def make(T):
        w, b = leaves(T)

        def step(T, i):
            first, second = (same_one, same_one) if i < 2 else (1.25 * i, 0.5 * i)
            return trained(T, w, b, (w * first).tanh().sum() + (b * second).tanh().sum())

        return step

    both(make)
    assert replays


def test_integers_are_part_of_the_structure():
    def make(T):
        w, b = leaves(T)
        return lambda T, i: trained(T, w, b, (w * (i // 2 + 2) + b).pow(i // 2 + 2).sum())

    both(make, 6)


def test_views_writes_and_slices(replays):
    def make(T):
        w, b = leaves(T)

        def step(T, i):
            buffer = w * 2
            buffer[0].mul_(b[1])
            buffer[:, 1] = b[:, 0]
            part, rest = buffer.split([1, 2], 1)
            return trained(T, w, b, (part * rest).t().tanh().sum() + buffer.select(1, i % 2).sum())

        return step

    both(make, 6)
    assert replays


def test_gradients_accumulate():
    def make(T):
        w, b = leaves(T)

        def step(T, i):
            for _ in range(3):
                (w * b).tanh().sum().backward()
            return w.grad.clone(), b.grad.clone()

        return step

    both(make)


def test_gradients_that_are_asked_for(replays):
    def make(T):
        w, b = leaves(T)

        def step(T, i):
            h = (w * b).tanh()
            y = (h * w).sum()
            if i % 2:
                return T.autograd.grad(y, [h, b])
            given = T.tensor(float(i), dtype=T.float64), T.ones(2, 3, dtype=T.float64)
            return T.autograd.grad([y, h], [w, h], given, allow_unused=True)

        return step

    both(make, 6)
    assert replays


def test_a_detached_branch_is_another_structure():
    def make(T):
        w, b = leaves(T)

        def step(T, i):
            h = w * b
            h = h if i % 2 else h.detach()
            return trained(T, w, b, (h * h).sum() + (w + b).sum())

        return step

    both(make, 6)


def test_other_leaves_shapes_and_dtypes(replays):
    shapes = [(2,), (2,), (3,), (2,), (3,)]

    def make(T):
        def step(T, i):
            x = T.ones(*shapes[i], dtype=T.float64 if i < 3 else T.float32).requires_grad_()
            y = T.full(shapes[i], float(i), dtype=T.float64).requires_grad_(i != 3)
            (x * y).exp().sum().backward()
            return x.grad, y.grad

        return step

    both(make, 5)


def test_hooks_are_called_though_the_structure_is_known():
    w, b = leaves(xgrad)
    seen = []

    def step(hook):
        with xgrad.lazy():
            h = w * b
            if hook == "tensor":
                h.register_hook(lambda g: seen.append(hook) or g * 2)
            elif hook == "node":
                h.grad_fn.register_hook(lambda *_: seen.append(hook))
            elif hook == "retained":
                h.retain_grad()
            h.exp().sum().backward()
            if hook == "retained":
                seen.append(h.grad.shape)
            found, w.grad, b.grad = w.grad, None, None
            return found

    plain = step(None)
    same(step(None), plain)
    same(step("tensor"), plain * 2)
    same(step("node"), plain)
    same(step("retained"), plain)
    handle = w.register_hook(lambda g: seen.append("leaf"))
    same(step(None), plain)
    handle.remove()
    handle = b.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    same(step(None), plain)
    handle.remove()
    same(step(None), plain)
    assert seen == ["tensor", "node", (2, 3), "leaf", "accumulated"]


def test_a_value_that_was_written_since_is_an_error():
    w, b = leaves(xgrad)
    for written in (False, False, True):
        with xgrad.lazy():
            h = w.exp()
            y = (h * b).sum()
            if written:
                h.add_(1)
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    y.backward()
            else:
                y.backward()


def test_a_replay_frees_the_graph():
    w, b = leaves(xgrad)
    for _ in range(3):
        with xgrad.lazy():
            y = (w * b).exp().sum()
            y.backward()
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                y.backward()


def test_a_replay_frees_the_nodes_that_would_have_run(replays):
    def make(T):
        w, b = leaves(T)

        def step(T, i):
            h = (w * b).exp()
            (found,) = T.autograd.grad((h * h).sum(), [h])
            h.sum().backward()
            grad, w.grad, b.grad = w.grad, None, None
            return found, grad

        return step

    both(make)
    assert len(replays) > 4


def test_a_retained_graph_runs_again(replays):
    def make(T):
        w, b = leaves(T)

        def step(T, i):
            y = (w * b).exp().sum()
            y.backward(retain_graph=True)
            y.backward()
            found, w.grad = w.grad, None
            return found

        return step

    both(make)
    assert replays


def test_an_error_in_the_loop_leaves_what_eager_would():
    class Fails(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise ArithmeticError("no")

    for _ in range(3):
        w, b = leaves(xgrad)
        with xgrad.lazy():
            with pytest.raises(ArithmeticError):
                (Fails.apply(w) + b * 2).sum().backward()
            assert w.grad is None
            same(b.grad, torch.full((2, 3), 2.0, dtype=torch.float64))


@pytest.mark.eager("lifetimes")
def test_a_replay_holds_nothing():
    w, b = leaves(xgrad)
    for _ in range(4):
        gc.disable()
        try:
            with xgrad.lazy():
                h = (w * b).exp()
                node = weakref.ref(h.grad_fn)
                saved = weakref.ref(h)
                h.sum().backward()
                del h
                assert node() is None
                assert saved() is None
            w.grad = b.grad = None
        finally:
            gc.enable()
    assert transcript._known
    assert_empty()


def test_a_replay_that_fails_leaves_no_value_in_its_transcript(monkeypatch):
    w, b = leaves(xgrad)

    def step():
        with xgrad.lazy():
            (w * b).exp().sum().backward()
            xgrad.sync()
            return w.grad

    step()
    w.grad = None
    expected, w.grad = step(), None

    def fails(*_):
        raise ValueError("out of luck")

    monkeypatch.setattr(queues.programs.latest, "jitted", fails)
    with pytest.raises(ValueError, match="out of luck"):
        step()
    same(w.grad, expected)  # operator by operator
    assert_empty()


def test_leaves_without_the_need_of_a_gradient_get_none():
    w, b = leaves(xgrad)
    for i in range(4):
        with xgrad.lazy():
            y = (w * b).exp().sum()
            w.requires_grad_(i != 2)
            y.backward()
            assert (w.grad is None) == (i == 2)
            w.requires_grad_()
            w.grad = b.grad = None


def test_transcripts_are_bounded(monkeypatch):
    monkeypatch.setattr(transcript, "MOST", 3)
    monkeypatch.setattr(transcript, "_misses", [0])
    transcript._known.clear()
    w, b = leaves(xgrad)
    for n in range(8):
        with xgrad.lazy():
            y = w * b
            for _ in range(n):
                y = y + 1
            y.sum().backward()
            w.grad = b.grad = None
    assert len(transcript._known) <= 3
    monkeypatch.setattr(transcript, "MOST_ENTRIES", 20)
    with xgrad.lazy():
        (w * b).exp().sum().backward()
        xgrad.sync()
    assert sum(len(known.entries) for known in transcript._known.values()) <= 20


def test_a_loop_whose_structures_never_repeat_looks_for_few_of_them(monkeypatch, replays):
    monkeypatch.setattr(transcript, "PATIENCE", 4)
    outlines = []
    complete = transcript.Outline.complete
    monkeypatch.setattr(transcript.Outline, "complete", lambda *args: outlines.append(1) or complete(*args))
    w, b = leaves(xgrad)
    with xgrad.lazy():
        for _ in range(24):  # each begins at another place of the queue
            (w * b).sum().backward()
    assert len(outlines) < 10
    xgrad.sync()
    for _ in range(24):
        with xgrad.lazy():
            (w * b).sum().backward()
            xgrad.sync()
    assert len(replays) > 4  # a loop that repeats is found again
