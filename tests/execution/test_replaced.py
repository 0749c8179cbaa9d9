"""An operator that fails when it is computed: what was written with its result has its old value."""

import jax
import pytest

import xgrad

optax = pytest.importorskip("optax")


@pytest.fixture(autouse=True)
def _lazy():
    with xgrad.lazy():
        yield


def failing():
    """Return a scalar that depends on one that can't be computed, and what has to live for that."""
    huge = xgrad.empty(2**47) + xgrad.zeros(1)
    return huge[0] * 1, huge


def fails():
    with pytest.raises(xgrad.errors.OutOfMemoryError, match="can't allocate memory"):
        xgrad.sync()


def dropped(read):
    with pytest.raises(xgrad.errors.LostValueError, match="has no value"):
        read()


def test_weight_has_the_value_of_the_last_write_that_was_computed():
    w, other = xgrad.ones(3, requires_grad=True), xgrad.ones(3)
    bad, _huge = failing()
    with xgrad.no_grad():
        w.mul_(3)
        w.sub_(bad)
        w.mul_(5)
        other.sub_(bad)
        other._write((xgrad.ones(3) * 7)._read())  # which reads none of what was there
    saved = (w * w).sum()
    fails()
    assert w.tolist() == [3, 3, 3]
    assert other.tolist() == [7, 7, 7]
    dropped(saved.item)
    dropped(saved.backward)  # the value that it saved is none that w has had
    with xgrad.no_grad():
        w.add_(1)
    assert w.tolist() == [4, 4, 4]


def test_views_show_what_their_base_has_again():
    base = xgrad.ones(2, 3)
    view, bad = base[1], failing()
    view.add_(bad[0])
    base.mul_(2)
    dropped_row = view.clone()
    fails()
    assert base.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert view.tolist() == [1, 1, 1]
    dropped(dropped_row.tolist)
    view.add_(1)
    assert base.tolist() == [[1, 1, 1], [2, 2, 2]]


@pytest.mark.parametrize("write", [lambda y, bad: y.add_(bad), lambda y, bad: y[0].copy_(bad)])
def test_a_value_whose_write_was_recorded_is_dropped(write):
    """Its history is that of another value: a gradient through it would be wrong."""
    x = xgrad.ones(3, requires_grad=True)
    y, bad = x.clone(), failing()
    write(y, bad[0] * x[0])
    fails()
    dropped(y.tolist)
    assert x.tolist() == [1, 1, 1]


def test_gradients_that_were_accumulated_are_there():
    w = xgrad.ones(3, requires_grad=True)
    (w * 2).sum().backward()
    bad = failing()
    (w * bad[0]).sum().backward()
    fails()
    assert w.grad.tolist() == [2, 2, 2]


def test_memory_of_another_owner_is_not_written():
    array = jax.numpy.ones(2048)
    x = xgrad.from_dlpack(array)
    bad = failing()
    x.add_(bad[0])
    fails()
    x.add_(1)
    xgrad.sync()
    assert array.tolist() == [1] * 2048
    assert x[0].item() == 2


def test_step_of_an_optimizer_that_fails_changes_neither_weights_nor_state():
    w = xgrad.ones(3, requires_grad=True)
    optimizer = xgrad.interop.optax.Optimizer([w], optax.sgd(0.5, momentum=0.5))
    (w * 2).sum().backward()
    optimizer.step()
    bad = failing()
    optimizer.zero_grad()
    (w * bad[0]).sum().backward()
    optimizer.step()
    fails()
    assert w.tolist() == [0, 0, 0]
    del bad
    w.grad = xgrad.zeros(3)
    optimizer.step()
    assert w.tolist() == [-0.5, -0.5, -0.5]  # half of the first step's momentum


def test_what_a_write_replaced_gives_its_memory_to_the_result():
    x = xgrad.ones(64, 64)
    x.add_(1)
    xgrad.sync()
    before = x._array.unsafe_buffer_pointer()
    x.add_(1)
    xgrad.sync()
    assert x._array.unsafe_buffer_pointer() == before
