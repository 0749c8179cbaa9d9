"""The generated function that sees the usual call: it asks no guard, and lets nothing pass that a guard would stop."""

from collections import defaultdict
from types import SimpleNamespace

import pytest

import xgrad
from xgrad.compiler.guards.match import Match


@pytest.fixture
def asked(monkeypatch):
    """How often a call was left to the guards."""
    calls, found = [], Match._found
    monkeypatch.setattr(Match, "_found", lambda self, leaves: calls.append(leaves) or found(self, leaves))
    return calls


def test_the_usual_call_asks_no_guard(asked):
    options, table, w = SimpleNamespace(scale=2.0), {"a": 1.0, "b": [3.0]}, xgrad.ones(3)
    compiled = xgrad.compile(lambda x, n: x * options.scale + table["b"][0] * w * n)
    x = xgrad.ones(3)
    for _ in range(3):
        assert compiled(x, 2).tolist() == [8.0] * 3
    assert not asked


def test_an_equal_object_is_left_to_the_guards(asked):
    options = SimpleNamespace(scale=1000.5)
    compiled, x = xgrad.compile(lambda x: x * options.scale), xgrad.ones(3)
    compiled(x)
    options.scale = float("1000.5")  # another object
    compiled(x)
    assert len(asked) == 1
    assert compiled.metrics().traces == 1


def test_another_dictionary_as_attributes_is_seen():
    options = SimpleNamespace(scale=2.0)
    compiled, x = xgrad.compile(lambda x: x * options.scale), xgrad.ones(3)
    compiled(x)
    options.__dict__.clear()
    options.__dict__.update(scale=3.0)
    assert compiled(x).tolist() == [3.0] * 3

    class Options:
        def __init__(self):
            self.scale = 2.0

    other = Options()
    compiled = xgrad.compile(lambda x: x * other.scale)
    compiled(x)
    other.__dict__ = {"scale": 4.0}
    assert compiled(x).tolist() == [4.0] * 3


def test_a_dictionary_that_makes_what_is_missing_is_not_asked_to():
    table = defaultdict(lambda: 5.0, a=2.0, b=1.0)
    compiled, x = xgrad.compile(lambda x: x * table["a"]), xgrad.ones(3)
    compiled(x)
    del table["a"]
    assert compiled(x).tolist() == [5.0] * 3  # traced anew: the function itself makes it


@pytest.mark.parametrize("count", [3, 40])  # fewer and more names than have a condition each
def test_each_of_several_names_is_looked_at(count):
    table = {f"n{i}": float(i) for i in range(count)}
    compiled, x = xgrad.compile(lambda x: x * sum(table.values())), xgrad.ones(3)
    for i in range(0, count, max(1, count // 3)):
        table[f"n{i}"] += 1.0
        assert compiled(x).tolist() == [sum(table.values())] * 3


def test_each_of_several_names_that_are_missing_is_looked_at():
    class Options:
        a = b = c = d = e = f = 1.0

    options, x = Options(), xgrad.ones(3)
    compiled = xgrad.compile(lambda x: x * (options.a + options.b + options.c + options.d + options.e + options.f))
    for i, name in enumerate(["", *"abcdef"]):
        if name:
            setattr(options, name, 2.0)  # in place of the class's
        for _ in range(2):
            assert compiled(x).tolist() == [6.0 + i] * 3
    assert compiled.metrics().traces == 7


def test_tensors_that_come_to_share_a_storage_are_seen():
    a, b = xgrad.ones(3), xgrad.ones(3)

    @xgrad.compile
    def step(a, b):
        a.add_(1)
        return b * 1

    assert step(a, b).tolist() == [1.0] * 3
    shared = a[:]
    assert step(a, shared).tolist() == a.tolist()


def test_flags_of_tensors_are_seen():
    w = xgrad.ones(3)
    compiled = xgrad.compile(lambda x: (x * w).sum())
    x = xgrad.ones(3)
    assert not compiled(x).requires_grad
    w.requires_grad_()
    assert compiled(x).requires_grad
    calls = []
    w.register_hook(calls.append)
    compiled(x).backward()
    assert len(calls) == 1


def test_a_tensor_that_looked_bare_and_gets_more_is_seen():
    compiled = xgrad.compile(lambda x: (x * 2).sum() if x.grad is None else x.grad * 3)
    x = xgrad.ones(3, requires_grad=True)

    def traces():
        compiled(x), compiled(x)
        return compiled.metrics().traces

    assert traces() == 1
    x.scale = 2.0
    assert traces() == 2
    del x.scale
    handle = x.register_hook(lambda grad: grad * 2)
    assert traces() == 3
    handle.remove()
    x.grad = xgrad.ones(3)
    assert traces() == 4
    compiled.reset()
    x = xgrad.ones(3, requires_grad=True)
    x.grad = None
    assert compiled(x).tolist() == compiled(x).tolist() == 6.0
    x.grad = xgrad.ones(3)  # an attribute that was there before
    assert compiled(x).tolist() == [3.0] * 3


def test_the_text_does_not_grow_with_the_number_of_tensors():
    sizes = []
    for count in (4, 40):
        compiled = xgrad.compile(lambda xs: sum(x.sum() for x in xs))
        xs = [xgrad.ones(3) for _ in range(count)]
        for _ in range(2):
            assert compiled(xs).item() == 3 * count
        sizes.append(len(compiled._entries[0].match._quick.__code__.co_code))
    assert sizes[0] == sizes[1]


def test_each_tensor_of_each_kind_is_compared(asked):
    a, b = ([xgrad.full((3,), 2.0 * i + n, requires_grad=bool(n)) for i in range(3)] for n in (0, 1))
    compiled = xgrad.compile(lambda a, b: [x * 2 + y.detach() * 10 for x, y in zip(a, b)])
    mixed = [a[0], b[1], a[2]], [b[0], a[1], b[2]]
    for _ in range(2):
        assert [y.tolist()[0] for y in compiled(*mixed)] == [10.0, 26.0, 58.0]
    assert not asked
    for x in (*a, *b):
        traces = compiled.metrics().traces
        x.data = x.data.double() if x.dtype == xgrad.float32 else x.data
        compiled(*mixed)
        assert compiled.metrics().traces == traces + 1
