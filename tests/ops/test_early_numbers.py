"""The first numbers and constants of a kind, which the host makes: they are those that the programs would make."""

import jax
import numpy as np
import pytest

import xgrad
from xgrad.base import threefry
from xgrad.execution.programs.ahead import compiled
from xgrad.execution.runner import runner
from xgrad.ops.create import host_first as early
from xgrad.random import default_generator

SEEDS = (0, 7, 2**31, 2**32 - 1, 2**32, 2**63 + 5)

DRAWS = {
    "rand": lambda shape: xgrad.rand(shape),
    "rand_like": lambda shape: xgrad.rand_like(xgrad.ones(shape)),
    "randn": lambda shape: xgrad.randn(shape),
    "randint": lambda shape: xgrad.randint(-3, 11, shape, dtype=xgrad.int32),
    "randint of all": lambda shape: xgrad.randint(-(2**31), 2**31 - 1, shape, dtype=xgrad.int32),
    "uniform_": lambda shape: xgrad.empty(shape).uniform_(-0.3, 0.7),
    "normal_": lambda shape: xgrad.empty(shape).normal_(0.5, 2.0),
    "uniform_ of a view": lambda shape: xgrad.empty((2, *shape))[1].uniform_(-0.3, 0.7),
}


@pytest.fixture
def first(monkeypatch):
    """As in a new process: no kind was made yet, and no backend declared."""
    monkeypatch.setattr(early, "_made", {})
    monkeypatch.setattr(runner, "backends", False)


@pytest.mark.parametrize("seed", SEEDS)
def test_threefry_is_that_of_jax(seed):
    key = jax.random.PRNGKey(np.uint32(seed & 0xFFFFFFFF))
    if seed >> 32:
        key = jax.random.fold_in(key, np.uint32(seed >> 32))
    words = threefry.key_of(seed)
    assert words == tuple(key.tolist())
    assert threefry.split(words) == tuple(tuple(k.tolist()) for k in jax.random.split(key))
    for count in (0, 1, 1000, (1 << 14) + 3):
        np.testing.assert_array_equal(threefry.bits(words, count), jax.random.bits(key, (count,), "uint32"))
    np.testing.assert_array_equal(threefry.uniform(words, 1000), jax.random.uniform(key, (1000,), "float32"))
    for low, high in ((0, 1), (0, 10), (-5, 7), (0, 65537), (-(2**31), 2**31 - 1), (-(2**31), 3)):
        expected = jax.random.randint(key, (1000,), low, high, "int32")
        np.testing.assert_array_equal(threefry.integers(words, 1000, low, high), expected)


@pytest.mark.eager("launches")
@pytest.mark.parametrize("name", DRAWS)
def test_first_draws_are_those_of_the_program(first, monkeypatch, name):
    def drawn():
        xgrad.manual_seed(5)
        return [DRAWS[name](shape).numpy() for shape in ((3, 5), (7,), (3, 5))] + [xgrad.rand(2).numpy()]

    early_ones = drawn()
    assert early._made
    monkeypatch.setattr(early, "_RESULTS", 0)
    monkeypatch.setattr(early, "_made", {})
    late_ones = drawn()
    monkeypatch.setattr("xgrad.random._EARLY", 0)
    late_keys = drawn()
    for a, b, c in zip(early_ones, late_ones, late_keys, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


@pytest.mark.eager("launches")
def test_keys_of_the_host_go_over_into_those_of_the_program(monkeypatch):
    def drawn(count):
        monkeypatch.setattr("xgrad.random._EARLY", count)
        generator = xgrad.Generator().manual_seed(11)
        return [xgrad.randperm(6, generator=generator).tolist() for _ in range(6)]

    assert drawn(0) == drawn(3) == drawn(100)


@pytest.mark.eager("launches")
def test_first_results_need_no_program(first):
    xgrad.manual_seed(3)
    xgrad.rand(1)  # the first question for a trace
    before = compiled.count
    xgrad.zeros(3, 17)
    xgrad.ones(17, dtype=xgrad.bfloat16)
    xgrad.empty(5, 17)
    xgrad.rand(3, 17)
    xgrad.randint(0, 9, (3, 17), dtype=xgrad.int32)
    assert compiled.count == before


@pytest.mark.eager("launches")
def test_host_made_tensors_are_owned(first):
    """An in-place write needs no copy, as after a program."""
    xgrad.zeros(2048).add_(1)  # compiled: its first call works on a copy
    for made in (xgrad.zeros(2048), xgrad.rand(2048)):
        address = made._held().unsafe_buffer_pointer()
        made.add_(1)
        assert made._held().unsafe_buffer_pointer() == address


def test_states_of_host_keys(first):
    """Saved, restored, forked, cloned: between keys of the host and of programs."""
    generator = xgrad.Generator().manual_seed(9)
    state = generator.get_state()
    expected = [xgrad.randn(3, generator=generator).tolist() for _ in range(4)]
    generator.set_state(state)
    assert [xgrad.randn(3, generator=generator).tolist() for _ in range(4)] == expected
    generator.manual_seed(9)
    twin = generator.clone_state()
    assert [xgrad.randn(3, generator=g).tolist() for g in (twin, generator)] == [expected[0]] * 2
    assert [xgrad.randn(3, generator=g).tolist() for g in (twin, generator)] == [expected[1]] * 2


def test_seeds_set_in_a_compiled_function_hold_in_each_call():
    @xgrad.compile
    def draw():
        xgrad.manual_seed(4)
        return xgrad.rand(3) + 0

    xgrad.manual_seed(4)
    expected = xgrad.rand(3).tolist(), xgrad.rand(2).tolist()
    for _ in range(2):
        assert (draw().tolist(), xgrad.rand(2).tolist()) == expected


def test_draws_in_a_trace_of_jax_warn_and_leave_the_state_concrete(first):
    xgrad.manual_seed(2)
    with pytest.warns(UserWarning, match="become constants"):
        jax.jit(lambda x: jax.numpy.asarray(xgrad.rand(3)) + x)(1.0)
    assert not isinstance(default_generator._key, jax.core.Tracer)
    inside = xgrad.rand(3).tolist()
    xgrad.manual_seed(2)
    xgrad.rand(3)
    assert xgrad.rand(3).tolist() == inside


@pytest.mark.eager("launches")
def test_other_generators_of_jax_are_used_as_before(first):
    with jax.threefry_partitionable(False):
        xgrad.manual_seed(1)
        found = xgrad.rand(5).numpy()
        key = jax.random.split(jax.random.PRNGKey(1))[1]
        np.testing.assert_array_equal(found, jax.random.uniform(key, (5,), "float32"))
