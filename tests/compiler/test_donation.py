"""Buffers that a compiled function replaces are used up where nobody else holds them, and nowhere else."""

import re
import threading

import jax
import numpy as np
import pytest

import xgrad

from ..oracle import leaf


def owned(n=4):
    """A tensor that owns its buffer: a kernel made it."""
    return xgrad.ones(n, dtype=xgrad.float64) * 1


def adding(t):
    t.add_(1)


def weak(t):
    """A way to see whether the buffer is used up that does not hold it."""
    import weakref

    return weakref.ref(t._held())


def pointer(t):
    return t._held().unsafe_buffer_pointer()


def test_what_nobody_else_holds_is_changed_where_it_is():
    t, step = owned(), xgrad.compile(adding)
    step(t)
    first = pointer(t)
    for _ in range(3):
        step(t)
    assert pointer(t) == first
    np.testing.assert_array_equal(t.numpy(), np.full(4, 5.0))


def test_so_are_storages_with_views_and_grads():
    base, w = owned(), owned().requires_grad_()
    view = base[1:]
    w.grad = owned()

    @xgrad.compile
    def step():
        view.mul_(2)
        (w * 3).sum().backward()

    step()
    first = pointer(base), pointer(w.grad)
    step()
    assert (pointer(base), pointer(w.grad)) == first
    np.testing.assert_array_equal(base.numpy(), [1, 4, 4, 4])


def test_nothing_is_used_up_where_it_is_not_wanted():
    t, step = owned(), xgrad.compile(adding, donate=False)
    for i in range(3):
        before = t._held()
        step(t)
        assert not before.is_deleted()
        np.testing.assert_array_equal(np.asarray(before), np.full(4, 1.0 + i))


def without_grad(t):
    with xgrad.no_grad():
        return t.__jax_array__()


def another(array):
    """An array over the buffer of one that it does not refer to."""
    return jax.device_put(array, array.sharding)


HELD = {
    "the array that was read": lambda t: t._read(),
    "the array": lambda t: t._held(),
    "__jax_array__": without_grad,
    "a second array over its buffer": lambda t: another(without_grad(t)),
    "a second one, by an alias": lambda t: another(without_grad(t.detach())),
    "a second one, by data": lambda t: another(without_grad(t.data)),
    "NumPy": lambda t: t.numpy(),
    "NumPy, by an alias": lambda t: t.detach().numpy(),
    "NumPy, by data": lambda t: t.data.numpy(),
    "NumPy, of a view": lambda t: t[1:].numpy(),
    "NumPy, of a shape": lambda t: t.view(2, 2).numpy(),
    "asarray": lambda t: np.asarray(t),
    "dlpack": lambda t: np.from_dlpack(t),
    "a shard": lambda t: without_grad(t).addressable_shards[0].data,
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", HELD)
def test_what_somebody_holds_keeps_its_values(name):
    t, step = owned(), xgrad.compile(adding)
    for i in range(3):
        held = HELD[name](t)
        copy = np.array(held)
        step(t)
        np.testing.assert_array_equal(np.asarray(held), copy)
        np.testing.assert_array_equal(t.numpy(), np.full(4, 2.0 + i))


ALIASES = {
    "detach": lambda t: t.detach(),
    "view": lambda t: t[1:],
    "data": lambda t: t.data,
    "t": lambda t: t.view(2, 2).t(),
}


@pytest.mark.parametrize("name", ALIASES)
def test_aliases_see_what_is_written(name):
    t, step = owned(), xgrad.compile(adding)
    alias = ALIASES[name](t)
    for i in range(3):
        alias.sum()  # reads it
        step(t)
        np.testing.assert_array_equal(alias.numpy().ravel(), np.full(alias.numel(), 2.0 + i))


@pytest.mark.parametrize("function", [lambda t, w: t.exp(), lambda t, w: t * w, lambda t, w: t[1:] * w[1:]])
def test_what_an_eager_graph_saved_is_kept_and_its_change_is_noticed(function):
    w, t, step = owned().requires_grad_(), owned(), xgrad.compile(adding)
    y = function(t, w)
    if y.requires_grad:
        step(t)
        with pytest.raises(xgrad.errors.VersionError, match="modified by an inplace operation"):
            y.sum().backward()
    z = (t * 1).requires_grad_()
    out = z.exp()
    saved = out.detach()
    step(saved)
    with pytest.raises(xgrad.errors.VersionError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_change_that_data_hides_is_seen_by_an_eager_graph_as_in_pytorch():
    w, t = owned().requires_grad_(), owned()
    step = xgrad.compile(lambda t: t.data.add_(1))
    y = t * w
    step(t)
    step(t)
    y.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full(4, 3.0))


def test_what_the_user_gave_is_kept():
    given = jax.numpy.ones(4)
    second = another(given)
    mine = np.ones(4)
    step = xgrad.compile(adding)
    for t in (xgrad.asarray(given), xgrad.from_numpy(mine), xgrad.asarray(second)):
        step(t)
        step(t)
        np.testing.assert_array_equal(t.numpy(), np.full(4, 3.0))
    np.testing.assert_array_equal(np.asarray(given), np.ones(4))
    np.testing.assert_array_equal(np.asarray(second), np.ones(4))
    np.testing.assert_array_equal(mine, np.ones(4))


def test_an_array_that_is_an_argument_too_is_not_used_up():
    t = owned()
    step = xgrad.compile(lambda t, a: t.add_(xgrad.asarray(a)))
    for i in range(3):
        array = without_grad(t)
        step(t, array)
        assert not array.is_deleted()
        np.testing.assert_array_equal(t.numpy(), np.full(4, 2.0 ** (i + 1)))


def test_what_a_call_returned_is_not_used_up_by_the_next():
    t = owned()

    @xgrad.compile
    def step():
        old = t.clone()
        t.add_(1)
        return old, t.detach(), t * 1

    found = [step() for _ in range(3)]
    for i, (old, alias, new) in enumerate(found):
        np.testing.assert_array_equal(old.numpy(), np.full(4, 1.0 + i))
        np.testing.assert_array_equal(alias.numpy(), np.full(4, 4.0))
        np.testing.assert_array_equal(new.numpy(), np.full(4, 2.0 + i))


def test_what_a_result_needs_for_its_backward_is_not_used_up():
    w, buffer = owned().requires_grad_(), owned()

    @xgrad.compile
    def step(x):
        y = (w * x).exp()
        buffer.copy_(y.detach())
        return y

    x = owned()
    results = [step(x) for _ in range(3)]
    sum(y.sum() for y in results).backward()
    np.testing.assert_allclose(w.grad.numpy(), 3 * np.exp(np.ones(4)))
    np.testing.assert_allclose(buffer.numpy(), np.exp(np.ones(4)))


def test_an_input_that_is_written_and_needed_for_the_backward_of_a_result():
    """Unlike eager code, which reads it in backward, a call keeps it as it left it: later calls do not change it."""
    w, x = owned().requires_grad_(), owned()

    @xgrad.compile
    def step():
        y = w * x
        with xgrad.no_grad():
            x.detach().data.add_(1)  # unnoticed, as in PyTorch
        return y

    ys = [step() for _ in range(3)]
    sum(y.sum() for y in ys).backward()
    np.testing.assert_array_equal(w.grad.numpy(), np.full(4, 2.0 + 3 + 4))


@pytest.mark.unverified("the program is made to fail, and an eager run does not")
def test_a_failing_program_leaves_everything(monkeypatch):
    t, w = owned(), owned()
    step = xgrad.compile(lambda: (t.add_(1), w.mul_(t)))
    step()
    (entry,) = step._entries
    with monkeypatch.context() as broken:
        broken.setattr(entry, "_call", lambda operands: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            step()
    np.testing.assert_array_equal(t.numpy(), np.full(4, 2.0))
    assert (t._version, w._version) == (1, 1)
    step()
    np.testing.assert_array_equal(t.numpy(), np.full(4, 3.0))
    np.testing.assert_array_equal(w.numpy(), np.full(4, 6.0))


def test_one_buffer_under_two_storages_is_copied():
    """`device_put` makes a second array over one buffer, of which neither knows."""
    t = owned()
    u = xgrad.asarray(another(without_grad(t)))
    step = xgrad.compile(lambda: (t.add_(1), u.mul_(5)))
    step()
    step()
    np.testing.assert_array_equal(t.numpy(), np.full(4, 3.0))
    np.testing.assert_array_equal(u.numpy(), np.full(4, 25.0))


def test_threads_call_and_read_at_once():
    t, step, failures, stop = owned(), xgrad.compile(adding), [], threading.Event()
    view = t[1:]
    step(t)

    def guarded(work):
        def run():
            try:
                work()
            except Exception as error:
                failures.append(error)

        return threading.Thread(target=run)

    def calls():
        for _ in range(100):
            step(t)

    def reads():
        while not stop.is_set():
            assert len(set(t.tolist())) == 1
            assert len(set(view.clone().tolist())) == 1
            assert len(set(np.array(t.detach().numpy()).tolist())) == 1

    writers, readers = [guarded(calls) for _ in range(2)], [guarded(reads) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not failures
    assert t._version == 201
    np.testing.assert_array_equal(t.numpy(), np.full(4, 202.0))


def traced_beside(mine, theirs):
    """What goes wrong in a thread that works on `theirs` while functions of `mine` are traced."""
    failures, stop = [], threading.Event()

    def eager():
        try:
            while not stop.is_set():
                (theirs * 2).sum().item()
                theirs.detach()[1:].tolist()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=eager)
    thread.start()
    try:
        for i in range(10):
            xgrad.compile(lambda i=i: (mine * i).tanh().sum().detach())()
    finally:
        stop.set()
        thread.join()
    return failures


@pytest.mark.exhaustive
def test_a_thread_traces_while_another_works_on_other_tensors():
    assert not traced_beside(leaf(xgrad, 3), leaf(xgrad, 3, seed=1))


@pytest.mark.exhaustive
def test_a_thread_traces_while_another_works_on_the_same_tensors():
    w = leaf(xgrad, 3)
    assert not traced_beside(w, w)


def test_results_take_the_memory_of_the_operands_that_they_replace():
    # JAX pairs donated operands with results of their shape in order: in another order XLA copies what is read later.
    net = xgrad.nn.Sequential(xgrad.nn.Linear(8, 8), xgrad.nn.BatchNorm1d(8), xgrad.nn.Linear(8, 8))
    optimizer = xgrad.optim.AdamW(net.parameters())

    @xgrad.compile
    def step(x):
        optimizer.zero_grad()
        loss = (net(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x = xgrad.ones(4, 8)
    step(x)
    header = step.as_text(x).partition("entry_computation")[0]
    pairs = re.findall(r"\{(\d+)\}: \((\d+), \{\}, m\w+-alias\)", header)
    assert len(pairs) == 4 * len(list(net.parameters())) + 3  # with two averages, a step; the buffers
    assert all(result == operand for result, operand in pairs)
