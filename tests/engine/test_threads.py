"""Several threads: backward over shared graphs and leaves, modes of a thread, writes."""

import threading
from functools import partial

import numpy as np
import pytest
import torch

import xgrad

from ..oracle import leaf, same, values


def in_threads(*functions):
    """Run functions at the same time; return what they return, raise what they raise."""
    results, start = [None] * len(functions), threading.Barrier(len(functions))

    def work(i, function):
        start.wait()
        try:
            results[i] = function()
        except BaseException as error:
            results[i] = error

    threads = [threading.Thread(target=work, args=item) for item in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def test_two_threads_accumulate_into_one_leaf():
    n = 100
    x = leaf(xgrad, 3)

    def work():
        for _ in range(n):
            (x * 2).sum().backward()

    in_threads(work, work)
    same(x.grad, torch.full((3,), 4.0 * n, dtype=torch.float64))


def test_two_threads_run_one_retained_graph():
    x, w = leaf(xgrad, 2, 3), leaf(xgrad, 3, seed=1)
    base = x * 1
    base[0].mul_(w)
    z = (base.tanh() * base).sum()
    (expected,) = xgrad.autograd.grad(z, x, retain_graph=True)

    def work():
        return [xgrad.autograd.grad(z, x, retain_graph=True)[0] for _ in range(25)]

    for gradients in in_threads(work, work):
        for g in gradients:
            same(g, torch.from_numpy(expected.numpy().copy()))


def test_of_two_threads_that_release_one_graph_one_may_be_told():
    """Whoever comes second gets the whole gradient or the "second time" error, and nothing in between."""
    for _ in range(10):
        x = leaf(xgrad, 3)
        y = x
        for _ in range(20):
            y = y * y
        z = y.sum()
        (expected,) = xgrad.autograd.grad(z, x, retain_graph=True)

        def work(z=z, x=x):
            try:
                return xgrad.autograd.grad(z, x)[0]
            except RuntimeError as error:
                return str(error)

        for g in in_threads(work, work):
            if isinstance(g, str):
                assert "second time" in g
            else:
                same(g, torch.from_numpy(expected.numpy().copy()))


def test_graph_made_in_one_thread_runs_in_another():
    x = leaf(xgrad, 3)
    y = (x * x).sum()
    in_threads(y.backward)
    same(x.grad, 2 * leaf(torch, 3).detach())


def test_modes_are_of_one_thread():
    seen = []

    def other():
        seen.append(xgrad.is_grad_enabled())
        with xgrad.views.tracking("geometry"):
            seen.append((leaf(xgrad, 2, 3) * 1)[0]._view.tracking)

    with xgrad.no_grad(), xgrad.views.tracking("replay"):
        in_threads(other)
        assert not xgrad.is_grad_enabled()
    assert seen == [True, "geometry"]


def test_hooks_run_in_the_thread_that_runs_backward():
    names = []
    x = leaf(xgrad, 3)
    x.register_hook(lambda grad: names.append(threading.current_thread().name))
    y = (x * x).sum()
    thread = threading.Thread(target=y.backward, name="mine")
    thread.start()
    thread.join()
    assert names == ["mine"]


def test_writes_of_two_threads_into_parts_of_one_base():
    """Each write is whole: none is lost, and none shows a buffer that was given away."""
    base = xgrad.zeros(2, 64, dtype=xgrad.float64)
    rows = base[0], base[1]

    def work(row):
        def write():
            for _ in range(100):
                row.add_(1)
                row.sum().item()

        return write

    in_threads(work(rows[0]), work(rows[1]))
    same(base, torch.full((2, 64), 100.0, dtype=torch.float64))
    assert base._version == 200


def test_reader_and_writer_of_one_storage():
    base = xgrad.zeros(4, 1000, dtype=xgrad.float64)
    view = base[1]

    def write():
        for _ in range(200):
            view.add_(1)

    def read():
        for _ in range(200):
            assert len(set(base[1].tolist())) == 1

    in_threads(write, read)


def test_error_in_one_thread_leaves_the_other_alone():
    x = leaf(xgrad, 3)
    y = x * 1
    bad, good = (y * y).sum(), (x * 3).sum()
    y.add_(1)

    def fails():
        with pytest.raises(RuntimeError, match="inplace"):
            bad.backward()

    in_threads(fails, good.backward)
    same(x.grad, torch.full((3,), 3.0, dtype=torch.float64))


def test_views_of_one_tensor_made_in_several_threads_share_one_storage():
    for _ in range(50):
        x = leaf(xgrad, 4, 3) * 1
        views = in_threads(*(partial(x.select, 0, i) for i in range(4)))
        assert {v.storage_id for v in views} == {x.storage_id}
        in_threads(*(partial(view.detach().add_, i + 1) for i, view in enumerate(views)))
        for i, view in enumerate(views):
            np.testing.assert_array_equal(view.detach().numpy(), x.detach()[i].numpy())


def test_leaf_first_used_in_several_threads_has_one_accumulator():
    for _ in range(200):
        x = leaf(xgrad, 3)
        edges = {y.grad_fn.next_functions[0][0] for y in in_threads(*[lambda x=x: x * 2] * 3)}
        assert len(edges) == 1


@pytest.mark.exhaustive
def test_view_read_during_a_write_is_not_stale_afterwards():
    for n in range(8):
        base = xgrad.zeros(64, 5 + n)  # a new shape: the view's program compiles while the other thread writes
        view = base[3:40, 1:4]
        in_threads(view._read, lambda base=base: [base.add_(1) for _ in range(5)])
        np.testing.assert_array_equal(view.numpy(), 5)


@pytest.mark.exhaustive
def test_metadata_of_a_gradient_while_another_thread_accumulates():
    x = leaf(xgrad, 200, 200)
    (x * 1).sum().backward()
    done = threading.Event()

    def read():
        seen = set()
        while not done.is_set():
            seen.add((x.grad.shape, x.grad.dtype, x.grad.device.type))
        return seen

    def accumulate():
        try:
            for _ in range(50):
                (x * 1).sum().backward()
        finally:
            done.set()

    seen, _ = in_threads(read, accumulate)
    assert len(seen) <= 1


@pytest.mark.exhaustive
def test_eight_threads_run_one_graph_two_hundred_times_each():
    """Integers are exact in float64: not one accumulation may be lost or done twice."""
    x, w = leaf(xgrad, 3), xgrad.ones(3, dtype=xgrad.float64, requires_grad=True)
    y = ((x * 0 + 2) * w).sum()

    def work():
        for _ in range(200):
            y.backward(retain_graph=True)

    in_threads(*[work] * 8)
    same(w.grad, torch.full((3,), 2.0 * 1600, dtype=torch.float64))
    same(x.grad, torch.zeros(3, dtype=torch.float64))


def test_eight_threads_with_graphs_and_hooks_of_their_own():
    def work(i):
        seen, packed = [], []
        x = leaf(xgrad, 3)
        for k in range(20):
            with xgrad.autograd.graph.saved_tensors_hooks(lambda t: packed.append(i) or t, lambda t: t):
                y = x * x
            y.register_hook(lambda grad: seen.append(i) or grad * (i + 1))
            if k % 2:
                with xgrad.no_grad():
                    assert not (x * 2).requires_grad
            y.sum().backward()
        return seen, packed, x.grad

    for i, (seen, packed, grad) in enumerate(in_threads(*(partial(work, i) for i in range(8)))):
        assert seen == [i] * 20
        assert packed == [i] * 40
        same(grad, torch.from_numpy(values((3,))) * 40 * (i + 1), rtol=1e-12)
