"""Several threads call compiled functions for the first time, on the same tensors, beside others that run eagerly."""

import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import xgrad
from xgrad.compiler.guards.frames import _New

STEPS = 4
pytestmark = pytest.mark.unverified("other threads write between the two runs")


@contextmanager
def quick_switches():
    """Threads take turns so often that they meet in the middle of everything."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(2e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def together(*works):
    """Call functions in a thread each, all at the same time; raise what one of them raises."""
    barrier, failures = threading.Barrier(len(works)), []

    def run(work):
        barrier.wait()
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    with quick_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "the threads wait for each other"
    if failures:
        raise failures[0]


def weight(*values):
    return xgrad.tensor(values, dtype=xgrad.float64, requires_grad=True)


@pytest.mark.parametrize("count", [2, 8])
def test_first_calls_together_write_what_one_thread_would(count):
    for _ in range(4):
        w, total = weight(1.0, 2.0, 3.0), xgrad.zeros(3, dtype=xgrad.float64)

        @xgrad.compile
        def step(x, w=w, total=total):
            (g,) = xgrad.autograd.grad((w * x).sum(), w)
            total.add_(g)
            with xgrad.no_grad():
                w.add_(x)
            return x * 2

        xs = [xgrad.full((3,), float(2**i), dtype=xgrad.float64) for i in range(count)]
        together(*[lambda x=x, step=step: [step(x) for _ in range(STEPS)] for x in xs])
        added = STEPS * float(2**count - 1)
        np.testing.assert_array_equal(w.detach().numpy(), np.array([1.0, 2.0, 3.0]) + added)
        np.testing.assert_array_equal(total.numpy(), np.full(3, added))
        assert step.metrics()[:2] == (count * STEPS, 1)


def test_eager_readers_beside_a_first_call_see_values():
    for _ in range(4):
        w = weight(1.0, 2.0, 3.0)
        view, done, seen = w.detach()[1:], threading.Event(), []

        @xgrad.compile
        def step(x, w=w):
            w.grad = None
            (w * x).tanh().sum().backward()
            with xgrad.no_grad():
                w.add_(x)
            return w.sum()

        def read(w=w, view=view, done=done, seen=seen):
            while not done.is_set():
                value = float((w * 2)[0])
                seen.append(value)
                assert value in {2.0 + 2 * i for i in range(STEPS + 1)}
                assert float(view[0]) in {2.0 + i for i in range(STEPS + 1)}
                assert (w.requires_grad, w.is_leaf, w.shape) == (True, True, (3,))

        def work(step=step, done=done):
            try:
                for _ in range(STEPS):
                    step(xgrad.ones(3, dtype=xgrad.float64))
            finally:
                done.set()

        together(read, work, read)
        assert seen
        np.testing.assert_array_equal(w.detach().numpy(), [5.0, 6.0, 7.0])


def test_writers_beside_a_first_call_lose_nothing():
    w, shared = xgrad.zeros(3, dtype=xgrad.float64), xgrad.zeros(3, dtype=xgrad.float64)
    part = shared[:]

    def write():
        for _ in range(100):
            w.add_(1)
            part.add_(1)

    def work():
        for i in range(STEPS):
            xgrad.compile(lambda i=i: (w * i + shared).sum())()

    together(write, work)
    assert w.tolist() == shared.tolist() == [100.0] * 3


def test_two_functions_that_call_each_other_are_traced_in_two_threads():
    for _ in range(4):
        w = xgrad.zeros(3, dtype=xgrad.float64)
        functions = {}

        @xgrad.compile
        def first(n, w=w, functions=functions):
            w.add_(1)
            return functions["second"](n - 1) if n else w.sum()

        @xgrad.compile
        def second(n, w=w, functions=functions):
            w.add_(10)
            return functions["first"](n - 1) if n else w.sum()

        functions.update(first=first, second=second)
        together(lambda first=first: first(3), lambda second=second: second(3))
        assert w.tolist() == [44.0] * 3


def test_a_trace_that_fails_beside_one_that_does_not():
    w = weight(1.0, 2.0, 3.0)

    @xgrad.compile
    def fails(x):
        with xgrad.no_grad():
            w.mul_(x)
        raise KeyError("the user's")

    @xgrad.compile
    def works(x):
        with xgrad.no_grad():
            w.add_(x)

    def failing():
        for _ in range(STEPS):
            with pytest.raises(KeyError, match="the user's"):
                fails(xgrad.ones(3, dtype=xgrad.float64))

    together(failing, lambda: [works(xgrad.ones(3, dtype=xgrad.float64)) for _ in range(STEPS)])
    np.testing.assert_array_equal(w.detach().numpy(), [5.0, 6.0, 7.0])
    assert "__getattribute__" not in vars(xgrad.Tensor)


def test_what_a_function_puts_into_containers_is_there_once():
    for _ in range(4):
        state = {}

        @xgrad.compile
        def step(x, state=state):
            total = state.get("total")
            state["total"] = x.sum() if total is None else total + x.sum()

        # Of two shapes: one thread traces while the other calls.
        shapes = (2, 3)
        together(*[lambda n=n, step=step: [step(xgrad.ones(n)) for _ in range(STEPS)] for n in shapes])
        assert float(state["total"]) == STEPS * sum(shapes)


def test_draws_beside_a_first_call_are_all_different():
    xgrad.manual_seed(0)
    drawn = []

    def draw():
        for _ in range(30):
            drawn.append(float(xgrad.rand(())))

    def compiled():
        for _ in range(STEPS):
            drawn.append(float(xgrad.compile(lambda: xgrad.rand(()))()))

    together(draw, compiled, draw)
    assert len(set(drawn)) == 60 + STEPS
    xgrad.manual_seed(0)
    assert sorted(drawn) == sorted(float(xgrad.rand(())) for _ in drawn)


def test_a_first_call_keeps_no_other_threads_half_built_tuples():
    done = threading.Event()
    errors = []

    def build():  # CPython resizes the tuple while it is built: it must have no second reference
        while not done.is_set():
            try:
                tuple(i for i in range(40))
            except SystemError as error:
                errors.append(error)

    def trace():
        new = _New()
        new.start()
        started = time.monotonic()
        try:
            while time.monotonic() - started < 3 and not errors:
                new.before_collection()
                new.among([object()])
        finally:
            new.stop()
            done.set()

    together(build, trace)
    assert errors == []


def test_no_audit_hook_runs_while_young_objects_are_listed():
    # A hook in Python lets other threads run. It stays as long as its process, which therefore is another one.
    script = """
import sys
from xgrad.compiler.guards.frames import _young

events = []
sys.addaudithook(lambda event, _: events.append(event))
_young()
listed = events[:]
assert listed == ["gc.get_objects"], listed
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_method_is_compiled_once_for_its_object():
    class Counter:
        def __init__(self):
            self.total = xgrad.zeros((), dtype=xgrad.float64)

        @xgrad.compile
        def add(self, x):
            self.total.add_(x)

    for _ in range(4):
        counter = Counter()
        together(*[lambda counter=counter: counter.add(xgrad.tensor(1.0, dtype=xgrad.float64))] * 4)
        assert (float(counter.total), *counter.add.metrics()[:2]) == (4, 4, 1)


def test_a_compiled_function_in_a_hook_of_another_thread():
    w = weight(1.0, 2.0, 3.0)
    double = xgrad.compile(lambda grad: grad * 2)
    step = xgrad.compile(lambda x: (w * x).sum())

    def hooked():
        x = weight(1.0, 1.0, 1.0)
        x.register_hook(double)
        (x * w.detach()).sum().backward()
        assert x.grad.tolist() == [2.0, 4.0, 6.0]

    def backward():
        x = xgrad.ones(3, dtype=xgrad.float64)
        (grad,) = xgrad.autograd.grad(step(x), w)
        assert grad.tolist() == [1.0] * 3

    together(hooked, backward, hooked, backward)


@pytest.mark.parametrize("beside", ["compiled", "eager"])
def test_undonated_writes_of_two_threads_are_all_there(beside):
    x = xgrad.zeros(3, dtype=xgrad.float64)
    one = xgrad.ones(3, dtype=xgrad.float64)
    step = xgrad.compile(lambda: x.add_(one), donate=False)
    step()

    def call(work):
        return lambda: [work() for _ in range(100)] and None

    together(call(step), call(step if beside == "compiled" else lambda: x.add_(one)))
    assert (x.tolist(), x._version) == ([201.0] * 3, 201)


def test_two_functions_that_put_into_one_container():
    v = xgrad.ones(3, dtype=xgrad.float64)

    def putting(cache, key):
        def put(x):
            cache[key] = x * 2
            return x + 1

        return xgrad.compile(put)

    for _ in range(2):
        cache = {}
        functions = [putting(cache, key) for key in "abc"]
        together(*[lambda f=f: [f(v) for _ in range(2)] for f in functions])
        assert sorted(cache) == ["a", "b", "c"]
        assert all(tensor.tolist() == [2.0] * 3 for tensor in cache.values())


def test_counts_in_a_container_are_not_lost():
    cache = {"n": xgrad.zeros((), dtype=xgrad.float64)}

    @xgrad.compile
    def step():
        cache["n"] = cache["n"] + 1

    together(*[lambda: [step() for _ in range(20)]] * 2)
    assert cache["n"].item() == 40


def test_a_traced_function_may_wait_for_another_threads_call():
    """That call runs uncompiled: the trace would wait for it, and it for the trace."""
    x, seen, first = xgrad.ones(3, dtype=xgrad.float64), {}, threading.get_ident()
    other = xgrad.compile(lambda v: v * 3)

    def calls():
        seen["same"], seen["other"] = step(x), other(x)

    @xgrad.compile
    def step(v):
        if threading.get_ident() == first:
            thread = threading.Thread(target=calls)
            thread.start()
            thread.join(60)
        return v + 1

    assert step(x).tolist() == [2.0] * 3
    assert {name: tensor.tolist() for name, tensor in seen.items()} == {"same": [2.0] * 3, "other": [3.0] * 3}
