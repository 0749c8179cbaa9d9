"""Results, graphs, arguments and traces are freed by reference counts alone."""

import gc
import weakref

import pytest

import xgrad

from ..oracle import leaf


@pytest.fixture(autouse=True)
def _no_gc():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def values(n=3, seed=0):
    return leaf(xgrad, n, seed=seed).detach() * 1


def alive(*refs):
    return [r() is not None for r in refs]


def test_results_and_their_graph_are_freed():
    w, step = leaf(xgrad, 3), xgrad.compile(lambda x: (x * 2, (w * x).exp()))
    for _ in range(2):
        found = step(values())
        refs = [weakref.ref(t) for t in found] + [weakref.ref(found[1].grad_fn)]
        arrays = [weakref.ref(t._held()) for t in found]
        del found
        assert not any(alive(*refs))
        assert not any(alive(*arrays))


def test_the_graph_is_freed_after_backward():
    w, step = leaf(xgrad, 3), xgrad.compile(lambda x: (w * x).exp())
    for _ in range(2):
        x = values()
        y = step(x)
        held = weakref.ref(x)
        y.sum().backward()
        node = weakref.ref(y.grad_fn)
        del x
        assert not any(alive(held))
        del y
        assert not any(alive(node))


def test_arguments_are_not_kept():
    """Neither by the trace nor by a run."""
    step = xgrad.compile(lambda x, d: x * 2 + d["a"])
    for _ in range(2):
        x, d = values(), {"a": values(seed=1)}
        refs = [weakref.ref(x), weakref.ref(d["a"]), weakref.ref(x._held()), weakref.ref(d["a"]._held())]
        step(x, d)
        del x, d
        assert not any(alive(*refs))


def test_what_was_replaced_is_not_kept():
    d, step = {"a": values()}, None

    def function(x):
        d["a"] = d["a"] * x

    step = xgrad.compile(function)
    for _ in range(3):
        old = weakref.ref(d["a"])
        step(values(seed=1))
        assert not any(alive(old))


def test_written_arguments_are_not_kept():
    step = xgrad.compile(lambda x, w: (x.mul_(2), (x * w).sum().backward())[1])
    for _ in range(2):
        x, w = values(), leaf(xgrad, 3, seed=1)
        step(x, w)
        refs = [weakref.ref(x), weakref.ref(w), weakref.ref(w.grad), weakref.ref(x._held())]
        del x, w
        assert not any(alive(*refs))


def test_views_and_their_bases_are_not_kept():
    step = xgrad.compile(lambda v: (v.mul_(2), v[1:])[1])
    for _ in range(2):
        base = values(5)
        view = base[1:]
        out = step(view)
        refs = [weakref.ref(base), weakref.ref(view), weakref.ref(out), weakref.ref(base._held())]
        del base, view, out
        assert not any(alive(*refs))


def test_a_failed_trace_keeps_nothing():
    class StopError(Exception):
        pass

    def function(x):
        y = x * 2
        made.append(weakref.ref(y))
        raise StopError

    made, step = [], xgrad.compile(function)
    x = values()
    with pytest.raises(StopError):
        step(x)
    refs = [weakref.ref(x), weakref.ref(x._held())]
    del x
    gc.collect()  # an exception and its frames are a cycle
    assert not any(alive(*refs, *made))


@pytest.mark.unverified("counts what the trace made")
def test_what_is_made_in_a_trace_is_freed_after_it(monkeypatch):
    w, noted, exp = leaf(xgrad, 3), [], xgrad.Tensor.exp

    def noting(t):
        y = exp(t)
        noted.extend([weakref.ref(y), weakref.ref(y.grad_fn)])
        return y

    monkeypatch.setattr(xgrad.Tensor, "exp", noting)  # a library's class: what it collects is not looked at

    def function(x):
        y = (x * w).exp()
        y.sum().backward(retain_graph=True)
        return y * 2

    xgrad.compile(function)(values())
    assert len(noted) == 2
    assert not any(alive(*noted))


def test_a_compiled_function_is_freed():
    step, x = xgrad.compile(lambda: x * 2), values()
    step()
    ref = weakref.ref(step)
    del step
    gc.collect()
    assert not any(alive(ref))


def test_reset_frees_the_programs():
    step = xgrad.compile(lambda x: x * 2)
    step(values())
    entry = weakref.ref(step._entries[0])
    step.reset()
    gc.collect()
    assert not any(alive(entry))
