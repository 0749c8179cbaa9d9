"""dynamic=: sizes that vary are padded to buckets, and what depends on the padding is an error."""

import gc

import numpy as np
import pytest

import xgrad

from ..oracle import values


def rows(n):
    return xgrad.tensor(values((n, 3), n))


@pytest.mark.exhaustive
def test_results_are_those_of_the_exact_size_and_each_bucket_is_traced_once():
    step = xgrad.compile(lambda x: (x * 2, x.sum(1)), dynamic={"x": 0})
    for n in (3, 4, 5, 7, 8, 3, 6):
        x = rows(n)
        double, sums = step(x)
        assert (double.shape, sums.shape) == ((n, 3), (n,))
        np.testing.assert_allclose(double.numpy(), 2 * x.numpy())
        np.testing.assert_allclose(sums.numpy(), x.numpy().sum(1))
    assert step.metrics().traces == 2  # of 4 and of 8


def test_a_result_that_depends_on_the_padding_is_an_error_and_nothing_is_done():
    count = xgrad.zeros(())

    @xgrad.compile(dynamic={"x": 0})
    def mean(x):
        count.add_(1)
        return x.mean()

    with pytest.raises(ValueError, match=r"result 0 of .*mean depends on the padding: at size 3, padded to 4"):
        mean(rows(3))
    assert count.item() == 0
    assert mean(rows(4)).item() == pytest.approx(float(rows(4).mean()))  # nothing is padded
    assert count.item() == 1


@pytest.mark.exhaustive
def test_what_is_valid_is_told_and_state_moves_on_once_a_call():
    weight = xgrad.ones(3, requires_grad=True)

    @xgrad.compile(dynamic={"x": 0})
    def step(x, valid):
        weight.grad = None
        mask = xgrad.arange(x.shape[0]) < valid
        loss = ((x * weight).sum(1) * mask).sum() / valid
        loss.backward()
        with xgrad.no_grad():
            weight.sub_(weight.grad, alpha=0.1)
        return loss.detach()

    expected = np.ones(3)
    for n in (3, 4, 5):
        x = rows(n)
        assert step(x).item() == pytest.approx(float((x.numpy() * expected).sum(1).mean()))
        expected = expected - 0.1 * x.numpy().mean(0)
        np.testing.assert_allclose(weight.detach().numpy(), expected)


def test_given_buckets_are_the_sizes_and_the_largest_is_the_limit():
    step = xgrad.compile(lambda x: x + 1, dynamic={"x": 0}, buckets=[5, 10])
    for n in (2, 5, 7, 10):
        assert step(rows(n)).shape == (n, 3)
    assert step.metrics().traces == 2
    with pytest.raises(ValueError, match=r"a size of 11 is over the largest of buckets=\[5, 10\]"):
        step(rows(11))


def test_several_arguments_vary_together_and_the_others_stay():
    step = xgrad.compile(lambda x, y, z: (x @ z, y * 2), dynamic={"x": 0, "y": 1})
    x, y, z = rows(3), xgrad.tensor(values((2, 3), 1)), xgrad.tensor(values((3, 2), 2))
    product, double = step(x, y, z)
    np.testing.assert_allclose(product.numpy(), x.numpy() @ z.numpy(), rtol=1e-6)
    np.testing.assert_allclose(double.numpy(), 2 * y.numpy())
    with pytest.raises(ValueError, match=r"must have one size, but got \{'x': 3, 'y': 2\}"):
        step(x, y[:, :2], z)


def test_the_check_can_be_left_out():
    unchecked = xgrad.compile(lambda x: x.sum() / x.shape[0], dynamic={"x": 0}, check=False)
    assert unchecked(rows(3)).item() == pytest.approx(float(rows(3).sum()) / 4)


def test_entries_that_were_dropped_leave_nothing_behind():
    step = xgrad.compile(lambda x: (x * 2, x.sum(1)), dynamic={"x": 0})
    for n in (3, 5):
        step(rows(n))
    assert len(step._buckets._cuts) == 2
    step.reset()
    gc.collect()
    assert len(step._buckets._cuts) == 0
    assert step(rows(3))[1].shape == (3,)


def test_an_unknown_parameter_is_an_error_at_once():
    with pytest.raises(TypeError, match="dynamic= names no parameter of the function: y"):
        xgrad.compile(lambda x: x, dynamic={"y": 0})
