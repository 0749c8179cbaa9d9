"""What gives another value each time: iterators from outside are refused, clocks and random numbers are warned of."""

import contextlib
import ctypes
import datetime
import gc
import itertools
import random
import sys
import time
import weakref

import numpy as np
import pytest

import xgrad

pytestmark = pytest.mark.unverified("the eager run advances and draws too")


def endless():
    while True:
        yield 2.0


def _late_cycle():
    made = itertools.cycle([1, 2])
    return next(made), next(made), next(made), made


ITERATORS = {
    "a generator": endless,
    "a generator expression": lambda: (v for v in [1.0, 2.0]),
    "a list's": lambda: iter([1.0, 2.0]),
    "a dict's": lambda: iter({1: 2, 2: 3}),
    "a range's": lambda: iter(range(3)),
    "itertools.count": itertools.count,
    "itertools.cycle": lambda: itertools.cycle([1, 2]),
    "a cycle's second round": lambda: _late_cycle()[-1],
    "itertools.chain": lambda: itertools.chain([1], [2]),
    "map": lambda: map(float, [1, 2]),
}  # fmt: skip
OPAQUE = {"itertools.cycle", "a cycle's second round", "itertools.chain"} if sys.version_info >= (3, 14) else set()


@pytest.mark.filterwarnings("ignore:Python iterable type")  # JAX, of arguments
@pytest.mark.parametrize("where", ["closure", "list", "argument"])
@pytest.mark.parametrize("name", [name for name in ITERATORS if name not in OPAQUE])
def test_an_iterator_from_outside_that_the_function_advances_is_refused(name, where):
    made = ITERATORS[name]()
    holder = [made]
    function = (lambda i, x: x * next(made)) if where == "closure" else (lambda i, x: x * next(holder[0]))
    if where == "argument":
        function = lambda i, x: x * next(i)  # noqa: E731
    with pytest.raises(NotImplementedError, match=r"advances .* which was made outside.*Call next\(\) outside"):
        xgrad.compile(function)(made if where == "argument" else 0, xgrad.ones(3))


def test_the_line_that_advances_a_generator_is_named():
    made = endless()

    def step(x):
        for value in made:
            return x * value

    with pytest.raises(NotImplementedError, match=r"the generator endless \(.*test_progress.py, line \d+, in step\)"):
        xgrad.compile(step)(xgrad.ones(3))


@contextlib.contextmanager
def scope():
    yield 3.0


def test_iterators_of_the_functions_own_and_those_that_rest():
    count, generator = itertools.count(7), endless()

    def step(x):
        own = endless()
        x = x * next(own) * next(iter([3.0])) * sum(v for v in [1.0, 2.0]) * next(itertools.count(5))
        with scope() as factor:
            return x * factor if count is not None and generator is not None else x

    compiled = xgrad.compile(step)
    for _ in range(2):
        assert compiled(xgrad.ones(2)).tolist() == step(xgrad.ones(2)).tolist() == [270.0, 270.0]
    assert compiled.metrics().traces == 1
    assert next(count) == 7


RNG, LEGACY, RANDOM = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)
CONSTANTS = {
    "random.random": (random.random, "random numbers of Python .*test_progress.py, line"),
    "random.uniform": (lambda: random.uniform(0, 1), "random numbers of Python .*test_progress.py, line"),
    "random.choice": (lambda: random.choice([1.0, 2.0]), "random numbers of Python"),
    "random.Random": (lambda: RANDOM.random(), "random numbers of Python"),
    "np.random.rand": (lambda: float(np.random.rand()), "random numbers of NumPy"),
    "a generator of NumPy's": (lambda: float(RNG.normal()), "random numbers of NumPy"),
    "a RandomState": (lambda: float(LEGACY.normal()), "random numbers of NumPy"),
    "time.time": (lambda: time.time(), r"time.time\(\) \(.*test_progress.py, line"),
    "time.perf_counter": (lambda: time.perf_counter(), r"time.perf_counter\(\)"),
    "datetime.now": (lambda: datetime.datetime.now().year, r"datetime.now\(\)"),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CONSTANTS)
def test_clocks_and_random_numbers_are_warned_of_once(name):
    read, said = CONSTANTS[name]
    compiled = xgrad.compile(lambda x: x * read() * 1.0)
    with pytest.warns(UserWarning, match=f"the function uses {said}") as warned:
        first = compiled(xgrad.ones(2))
    assert len(warned) == 1
    assert "Read it outside and give it as a tensor" in str(warned[0].message)
    assert first.tolist() == compiled(xgrad.ones(2)).tolist()  # and a warning is an error


def test_random_numbers_with_a_seed_of_the_functions_own_are_no_news():
    def step(x):
        return x * random.Random(0).random() * float(np.random.default_rng(0).normal())

    compiled = xgrad.compile(step)
    assert compiled(xgrad.ones(2)).tolist() == pytest.approx(step(xgrad.ones(2)).tolist())


class Rated:
    def __init__(self):
        self.rate = 2.0


class Counter:
    def __call__(self, phase, info):
        global collections
        collections += 1


collections = 0


def test_callbacks_of_the_garbage_collector_are_no_part_of_the_function():
    """Hypothesis and memory profilers have such callbacks; a collection may come at any allocation of a trace."""

    def count(phase, info):
        global collections
        collections += 1

    callbacks = [count, Counter()]
    gc.callbacks.extend(callbacks)
    try:

        @xgrad.compile
        def step(x):
            gc.collect()
            return x * 2

        before = collections
        assert [step(xgrad.ones(2)).tolist() for _ in range(2)] == [[2.0, 2.0]] * 2
        assert collections > before
        assert step.metrics().traces == 1
    finally:
        for callback in callbacks:
            gc.callbacks.remove(callback)


@pytest.mark.parametrize("kind", [weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet])
def test_what_the_collector_drops_from_a_weak_container_is_no_change_by_the_function(kind):
    class Thing:
        pass

    kept, gone = Thing(), Thing()
    gone.itself = gone  # a cycle: the collector finds it
    weak = kind()
    for n, thing in enumerate((kept, gone)):
        if kind is weakref.WeakSet:
            weak.add(thing)
        elif kind is weakref.WeakValueDictionary:
            weak[n] = thing
        else:
            weak[thing] = n

    @xgrad.compile
    def step(x):
        gc.collect()
        return x * len(weak)

    gc.disable()
    try:
        del gone, thing
        first = step(xgrad.ones(2)).tolist()
    finally:
        gc.enable()
    assert first == [1.0, 1.0]
    assert step(xgrad.ones(2)).tolist() == [1.0, 1.0]
    weak.clear()
    assert step(xgrad.ones(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", [weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet])
def test_weak_containers_of_others_from_which_the_collector_drops_are_no_part_of_the_function(kind):
    class Thing:
        pass

    weak = kind()

    def add(thing):
        if kind is weakref.WeakSet:
            weak.add(thing)
        elif kind is weakref.WeakValueDictionary:
            weak[len(weak)] = thing
        else:
            weak[thing] = None

    @xgrad.compile
    def step(x):
        gc.collect()
        return x * 2

    gone, kept = Thing(), Thing()
    gone.itself = gone
    gc.disable()
    try:
        add(gone)
        gc.collect()  # old enough that the function's collection is the first to find it
        del gone
        step(xgrad.ones(2))
    finally:
        gc.enable()
    assert len(weak) == 0
    add(kept)
    step(xgrad.ones(2))
    assert step.metrics().traces == 1, step.metrics().reasons


def test_a_function_that_collects_garbage_is_guarded_all_the_same():
    made = Rated()
    address = id(made)

    def step(x):
        rated = ctypes.cast(address, ctypes.py_object).value  # reached in no way that a guard can follow
        gc.collect()
        return x * rated.rate

    gc.collect()  # what other tests left, and weak references to it
    compiled = xgrad.compile(step)
    for rate in (2.0, 3.0):
        made.rate = rate
        assert compiled(xgrad.ones(2)).tolist() == [rate] * 2
    assert compiled.metrics().traces == 2
