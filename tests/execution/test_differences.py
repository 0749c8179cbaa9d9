"""What differs where a thread is lazy: each of tests/lanes.py's DIFFERENCES as a test, and its words in the docs.

The tests that assert eager's side of these are marked `eager(difference)`, and do not run under XGRAD_LAZY=1.
"""

import pathlib
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.execution.pending import Pending

from ..lanes import DIFFERENCES, LAZY

LARGE = 64, 64  # arrays that are donated


@pytest.fixture(autouse=True)
def _lazy():
    with xgrad.lazy():
        yield


def test_arrays_are_pending_and_jax_gets_its_own():
    x = xgrad.ones(3) * 2
    assert type(x._read()) is Pending
    assert (x._read().shape, x._read().dtype, x._read().weak_type) == ((3,), np.float32, False)
    assert "Pending" in repr(x._read())
    for array in (jnp.asarray(x), x.__jax_array__(), jax.tree.map(lambda a: a, [x._read()])[0]):
        assert isinstance(array, jax.Array)
    assert type(x._read()) is Pending  # with its value now, which the same object shows
    assert x._read().addressable_shards[0].data.tolist() == [2, 2, 2]


def test_addresses_are_those_of_the_program_that_a_write_is_a_part_of():
    x, y = xgrad.ones(LARGE), xgrad.ones(3)
    x.add_(1)
    y.add_(1)
    xgrad.sync()
    before = x._array.unsafe_buffer_pointer()
    x[0].mul_(3)
    x.add_(1)
    assert x._held().unsafe_buffer_pointer() == before  # one program, which has the memory of what it replaces
    held = x._held()
    x.add_(1)
    assert x._held().unsafe_buffer_pointer() != before  # somebody has the array
    assert (held[0, 0], held[1, 0], x[0, 0].item()) == (7, 3, 8)


def test_addresses_a_copy_of_another_librarys_memory_is_made_at_once():
    array = np.zeros(1024, np.float32)
    own = xgrad.from_dlpack(array, copy=True)
    array[0] = 5
    assert own[0].item() == 0
    copied = xgrad.from_numpy(array) * 1
    array[0] = 6
    assert copied[0].item() == 5


def test_lifetimes_an_operand_lives_until_its_queue_is_evaluated():
    x = xgrad.ones(LARGE) * 1
    xgrad.sync()
    array = weakref.ref(x._array)
    tensor = weakref.ref(x)
    y = x.sum()
    del x
    assert tensor() is None  # tensors, nodes and hooks die as in eager code
    assert array() is not None
    assert y.item() == 64 * 64
    assert array() is None


def test_lifetimes_what_is_dropped_before_is_not_computed():
    xgrad.sync()
    xgrad.lazy.reset()
    x = xgrad.ones(3) * 2
    del x
    xgrad.sync()
    assert xgrad.lazy.metrics().launches == 0


def test_launches_are_programs_of_many_operators():
    xgrad.sync()
    xgrad.lazy.reset()
    x = xgrad.ones(3)
    for _ in range(4):
        y = ((x + 1) * x).exp().sum()
        y.item()
    metrics = xgrad.lazy.metrics()
    assert metrics.launches == 4
    assert metrics.operations >= 4 * 4


def test_launches_are_none_at_the_end_of_a_block_in_a_lazy_thread():
    xgrad.sync()
    xgrad.lazy.reset()
    with xgrad.lazy():
        x = xgrad.ones(3) * 2
    assert xgrad.lazy.metrics().launches == 0
    assert x.tolist() == [2, 2, 2]


def test_failures_of_a_value_come_when_it_is_computed():
    x, bad = xgrad.tensor([-1.0, 2.0]), xgrad.tensor([5, 1])
    jax.config.update("jax_debug_nans", True)
    try:
        y = x.log()
        with pytest.raises(FloatingPointError) as error:
            y.sum().item()
    finally:
        jax.config.update("jax_debug_nans", False)
    assert "test_differences.py:" in "".join(error.value.__notes__)
    weight = xgrad.ones(4, 2)
    rows = xgrad.nn.functional.embedding(bad * 1, weight)  # 5 of 4: not known yet
    assert np.isnan(rows.numpy()).tolist() == [[True, True], [False, False]]
    with pytest.raises(IndexError):
        xgrad.nn.functional.embedding(bad, weight)  # it has its value
    assert np.isnan(x.quantile(x * 0.5).numpy()).tolist() == [True, False]
    assert (bad * 0.0).multinomial(1).shape == (1,)
    with pytest.raises(RuntimeError, match="sum of probabilities"):
        xgrad.tensor([0.0, 0.0]).multinomial(1)


def test_failures_of_a_number_that_does_not_fit_come_at_the_call():
    mask, numbers = xgrad.tensor([True, False]), xgrad.tensor([300, 2])
    assert xgrad.ones(2).masked_fill(mask, numbers[0]).shape == (2,)
    assert "masked_fill" in xgrad.lazy.pending()  # all integers fit: nothing is read
    with pytest.raises(xgrad.errors.NumberOverflowError, match="300 cannot be converted to type uint8"):
        xgrad.ones(2, dtype=xgrad.uint8).masked_fill(mask, numbers[0])


def test_failures_of_64_bits_come_behind_the_evaluation():
    xgrad.sync()
    x = xgrad.ones(3, dtype=xgrad.float64) * 2
    jax.config.update("jax_enable_x64", False)
    try:
        assert x.tolist() == [2, 2, 2]  # evaluated in the mode in which it was noted
        with pytest.raises(xgrad.errors.DtypeDisabledError):
            x + 1
        assert xgrad.ones(3).to(xgrad.int32).argmax().dtype == xgrad.int32
        xgrad.sync()
    finally:
        jax.config.update("jax_enable_x64", True)
    assert xgrad.ones(3).to(xgrad.int32).argmax().dtype == xgrad.int64
    assert (x * x).tolist() == [4, 4, 4]


def test_failures_for_want_of_memory_are_those_of_the_evaluation():
    x = xgrad.ones(3) * 2
    y = xgrad.empty(2**47) + x[0]
    with pytest.raises(xgrad.errors.OutOfMemoryError, match="can't allocate memory") as error:
        xgrad.sync()
    assert "test_differences.py:" in "".join(error.value.__notes__)
    assert x.tolist() == [2, 2, 2]
    for use in (lambda: y.sum(), lambda: x + y[0], lambda: y.tolist()):
        with pytest.raises(xgrad.errors.LostValueError, match="has no value"):
            use()


def test_each_difference_has_a_test_and_a_line_in_the_docs():
    text = (pathlib.Path(__file__).parents[2] / "docs/concepts/lazy.md").read_text()
    listed = text.partition("## What differs")[2].partition("\n## ")[0]
    for name in DIFFERENCES:
        assert any(test.startswith(f"test_{name}_") for test in globals()), name
        assert f"- **{name.capitalize()}**" in listed, name


@pytest.mark.eager("launches")
def test_a_marked_test_does_not_run_where_always_lazy():
    assert not LAZY
