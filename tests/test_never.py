"""What must never happen: a silently wrong gradient, in each of the ways in which others got one; in both paths."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad

from .oracle import as_torch, data, leaf, outcome, same, same_error

pytestmark = pytest.mark.usefixtures("path")


def first_and_second(T, loss, *inputs):
    first = T.autograd.grad(loss, inputs, create_graph=True)
    return first, T.autograd.grad(sum((g * g).sum() for g in first), inputs)


# -- in-place through a view -------------------------------------------------------------------------------------------


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "take",
    [
        lambda b: b[1:],
        lambda b: b[:, ::2],
        lambda b: b.select(1, 2),
        lambda b: b.t(),
        lambda b: b.t()[1:, 0],
        lambda b: b.diagonal(),
        lambda b: b.diagonal(1).unsqueeze(0),
    ],
    ids=["slice", "slice with a step", "select", "t", "t and slice", "diagonal", "other diagonal"],
)
def test_inplace_through_a_view_loses_no_gradient(take):
    def program(T):
        x = leaf(T, 3, 3)
        base = x * 1
        view = take(base)
        w = leaf(T, *view.shape, seed=1)
        view.mul_(w)
        view.add_(w)
        return base, first_and_second(T, (base * base * base).sum(), x, w)

    as_torch(program)


@pytest.mark.parametrize("several", [lambda b: b.split(1), lambda b: b.unbind(0), lambda b: b.chunk(3)])
def test_inplace_through_split_or_unbind_is_refused_while_recorded(several):
    def program(T):
        base = leaf(T, 3, 3) * 1
        several(base)[1].mul_(2)

    same_error(program, "multiple views")


@pytest.mark.parametrize("several", [lambda b: b.split(1), lambda b: b.unbind(0), lambda b: b.chunk(3)])
def test_inplace_through_split_or_unbind_that_is_not_recorded_reaches_the_base(several):
    def program(T):
        x = leaf(T, 3, 3)
        base = T.zeros(3, 3, dtype=T.float64)
        with T.no_grad():
            several(base)[1].fill_(2.0)
        return base, first_and_second(T, (base * x * x).sum(), x)

    as_torch(program)


def test_reading_split_or_unbind_after_the_base_was_written():
    """Torch refuses the stale view; a view that is taken anew has the right gradient."""

    def stale(T):
        base = leaf(T, 3, 3) * 1
        rows = base.unbind(0)
        base.mul_(2)
        (rows[0] * 2).sum().backward()

    same_error(stale, "multiple views")

    def fresh(T):
        x = leaf(T, 3, 3)
        base = x * 1
        base.unbind(0)
        base.mul_(x)
        rows = base.unbind(0)
        return first_and_second(T, (rows[0] * rows[1]).sum(), x)

    as_torch(fresh)


# -- an in-place view operation on a view ------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "move",
    [
        lambda v: v.t_(),
        lambda v: v.transpose_(0, 1),
        lambda v: v.unsqueeze_(0).transpose_(1, 2).squeeze_(0),
        lambda v: v.swapaxes_(0, 1),
    ],
)
def test_inplace_view_operation_on_a_view(move):
    def program(T):
        x, W = leaf(T, 2, 3, 3), leaf(T, 3, 3, seed=1)
        base = x * 1
        v = base[0]
        move(v)
        v.mul_(W)
        return base, v, first_and_second(T, (base * base * data(T, (2, 3, 3), 3)).sum(), x, W)

    as_torch(program)


# -- a write after expand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expand", [lambda x: x.expand(3, 3), lambda x: x.expand(3, 3).t(), lambda x: x.expand(3, 3)[1:]]
)
def test_write_after_expand_is_refused(expand):
    def program(T):
        base = leaf(T, 3) * 1
        expand(base).mul_(data(T, (3, 3))[: expand(base).shape[0]])

    same_error(program, "single memory location|overlap")


@pytest.mark.parametrize("write", [lambda v: v.fill_(xgrad.tensor(2.0)), lambda v: v.add_(1), lambda v: v.mul_(2)])
def test_every_write_to_an_expanded_view_but_a_number_is_refused(write):
    base = leaf(xgrad, 3) * 1
    with pytest.raises(xgrad.errors.OverlapError):
        write(base.expand(2, 3))
    same(base, leaf(torch, 3))


def test_write_into_the_base_shows_in_an_expanded_view():
    def program(T):
        x = leaf(T, 3)
        base = x * 1
        wide = base.expand(2, 3)
        base.mul_(x)
        return wide, first_and_second(T, (wide * wide).sum(), x)

    as_torch(program)


@pytest.mark.parametrize(
    "overlapping",
    [lambda b: b.unfold(0, 2, 1), lambda b: b.as_strided((3, 2), (1, 1), 0)],
    ids=["unfold", "as_strided"],
)
def test_write_into_a_view_that_overlaps_itself_is_refused(overlapping):
    """PyTorch accepts it, and its gradients are wrong."""
    base = leaf(xgrad, 4) * 1
    for write in (lambda v: v.mul_(2), lambda v: v.copy_(v), lambda v: v.__setitem__(0, 1.0)):
        view = overlapping(base)
        if write(view.detach().clone()) is None:
            continue
        with pytest.raises(xgrad.errors.OverlapError):
            write(view)
    same(base, leaf(torch, 4))


def test_source_that_overlaps_the_written_view_is_read_as_it_was():
    """PyTorch refuses `x.add_(x.t())`; here the sum is that of the values from before the write."""
    x, tx = leaf(xgrad, 3, 3), leaf(torch, 3, 3)
    base, tbase = x * 1, tx * 1
    base.add_(base.t())
    tbase = tbase + tbase.t()
    base[1:].copy_(base[:-1])
    tbase = torch.cat([tbase[:1], tbase[:-1]])
    base.sum().backward(), tbase.sum().backward()
    same((base, x.grad), (tbase, tx.grad))


# -- flatten and reshape -----------------------------------------------------------------------------------------------


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "shape_of",
    [
        lambda b: b.flatten(),
        lambda b: b.reshape(-1),
        lambda b: b.t().reshape(-1),  # a copy
        lambda b: b.t().flatten(),
        lambda b: b[:, 1:].reshape(2, -1),
        lambda b: b.ravel(),
        lambda b: b[:, :2].contiguous().view(-1),
    ],
)
def test_flatten_and_reshape_keep_the_graph(shape_of):
    def program(T):
        x = leaf(T, 2, 4)
        base = x * 1
        flat = shape_of(base)
        flat.mul_(data(T, tuple(flat.shape), 5))
        return base, flat, first_and_second(T, (flat * flat * flat).sum() + (base * base).sum(), x)

    as_torch(program)


# -- .data -------------------------------------------------------------------------------------------------------------


def test_data_assignment_with_live_views_is_no_silent_wrong_gradient():
    """After `base.data = other` an old view shows the old storage: a recorded write through it is refused."""
    base = leaf(xgrad, 2, 3) * 1
    view = base[0]
    base.data = data(xgrad, (2, 3), 5)
    with pytest.raises(xgrad.errors.InplaceViewError, match="no longer shares storage"):
        view.mul_(2)
    same(view, leaf(torch, 2, 3)[0])
    same(base, data(torch, (2, 3), 5))


def test_data_assignment_keeps_the_history_and_new_views_are_right():
    def program(T):
        x = leaf(T, 2, 3)
        base = x * 2
        old = base[0]
        base.data = data(T, (2, 3), 5)
        view = base[1]
        view.mul_(3)
        return base, old, view, first_and_second(T, (base * base).sum(), x)

    as_torch(program)


def test_data_assignment_of_another_shape_changes_what_the_leaf_expects():
    def program(T):
        x = leaf(T, 3)
        (x * 2).sum().backward()
        x.data = data(T, (2, 2), 5)
        x.grad = None
        (x * x).sum().backward()
        return x, x.grad

    as_torch(program)


def test_write_through_data_shows_in_every_alias():
    def program(T):
        x = leaf(T, 2, 3)
        base = x * 1
        view, alias = base.t()[1], base.detach()[0]
        base.data[:, 1].zero_()
        return base, view, alias, base._version, first_and_second(T, (base * base).sum() + (view * view).sum(), x)

    as_torch(program)


# -- no_grad and stale siblings ----------------------------------------------------------------------------------------


def test_write_under_no_grad_with_a_stale_sibling():
    def program(T):
        x = leaf(T, 2, 3)
        base = x * 1
        a, b = base[0], base[:, 1]
        a.mul_(x[1])
        with T.no_grad():
            a.add_(1)
        loss = (b * b).sum() + (a * a).sum()
        return a, b, first_and_second(T, loss, x)

    as_torch(program)


def test_view_made_under_no_grad_must_not_be_written_while_recording():
    def program(T):
        base = leaf(T, 2, 3) * 1
        with T.no_grad():
            view = base[0]
        view.mul_(2)

    same_error(program, "no_grad mode")


def test_view_whose_history_cannot_be_told_retains_nothing():
    """To ask it to retain its gradient is no error; to ask for its `grad_fn` is."""

    def program(T):
        x = leaf(T, 2)
        with T.no_grad():
            v = x[:1]
        x.detach().add_(1)
        v.retain_grad()
        return v.requires_grad, v.retains_grad

    as_torch(program)

    def asked(T):
        x = leaf(T, 2)
        with T.no_grad():
            v = x[:1]
        x.detach().add_(1)
        return v.grad_fn

    same_error(asked, "no_grad mode")


def test_view_made_before_and_written_under_no_grad():
    def program(T):
        x = leaf(T, 2, 3)
        base = x * 1
        view = base[0]
        with T.no_grad():
            view.mul_(2)
        return base, view.grad_fn is not None, first_and_second(T, (base * base).sum() + (view * view).sum(), x)

    as_torch(program)


def test_optimizer_step_under_no_grad_through_a_view_of_a_parameter():
    def program(T):
        x = leaf(T, 2, 3)
        row, found = x[0], []
        for _ in range(3):
            (g,) = T.autograd.grad((row * row).sum() + x.sum(), x)
            with T.no_grad():
                x[0].sub_(g[0] * 0.1)
                row = x[0]
            row = x[0]
            found.append(g)
        return x, found, x._version

    as_torch(program)


def test_saved_value_that_was_overwritten_is_told():
    def program(T):
        base = leaf(T, 2, 3) * 1
        z = (base[0] * base[0]).sum()
        with T.no_grad():
            base[0].zero_()
        z.backward()

    same_error(program, "modified by an inplace operation")


# -- dtypes ------------------------------------------------------------------------------------------------------------


def test_no_dtype_is_silently_narrowed():
    def program(T):
        x = leaf(T, 3)
        narrow = T.zeros(3, dtype=T.float32)
        wide = narrow * x
        mixed = narrow.clone()
        mixed.add_(x)
        return wide.dtype == T.float64, mixed.dtype == T.float32, x.dtype == T.float64, (x * 2.0).dtype == T.float64

    as_torch(program)
    big = xgrad.tensor([2**53 + 1], dtype=xgrad.int64)
    assert big.item() == 2**53 + 1
    assert xgrad.tensor([1e-300], dtype=xgrad.float64).item() == 1e-300
    assert xgrad.from_numpy(np.array([2**53 + 1])).item() == 2**53 + 1


def test_result_that_does_not_fit_in_place_is_refused():
    def program(T):
        T.zeros(3, dtype=T.int64).add_(0.5)

    same_error(program, "can't be cast")
    same_error(lambda T: data(T, (3,)).mul_(1j), "can't be cast")


def test_integers_that_do_not_fit_are_refused():
    with pytest.raises(OverflowError):
        xgrad.tensor([2**70])


# -- buffers and traces ------------------------------------------------------------------------------------------------


def test_donated_buffer_is_not_in_use():
    """A value that was read, saved or handed out before a write is that of before the write."""
    x = leaf(xgrad, 50, 1000)
    base = x * 1
    row, held = base[0], base._read()
    before, product = np.asarray(held).copy(), base * x
    with xgrad.no_grad():
        for _ in range(3):
            row.add_(1)
    np.testing.assert_array_equal(np.asarray(held), before)
    with pytest.raises(RuntimeError, match="inplace"):
        product.sum().backward()
    same(base[0], torch.from_numpy(before[0] + 3))


def test_tracer_is_not_kept_after_its_trace():
    """Reading a view inside of `jax.jit` caches nothing that is used outside."""
    base = data(xgrad, (2, 3))
    view, alias = base.t(), base.detach()[1]

    @jax.jit
    def traced(scale):
        inside = view * xgrad.as_tensor(scale)
        alias.sum()
        return inside._read()

    traced(jnp.ones(()))
    same(view, data(torch, (2, 3)).t())
    base.mul_(2)
    same(alias, data(torch, (2, 3))[1] * 2)


def test_gradients_inside_a_trace_equal_those_outside():
    def loss(array):
        x = xgrad.as_tensor(array).requires_grad_()
        base = x * 1
        base[0].mul_(base[1].clone())
        (g,) = xgrad.autograd.grad((base * base).sum(), x)
        return g._read()

    array = jnp.asarray(np.linspace(0.1, 0.6, 6).reshape(2, 3))
    np.testing.assert_allclose(jax.jit(loss)(array), loss(array), rtol=1e-12)

    def functional(array):
        base = array.at[0].multiply(array[1])
        return (base * base).sum()

    np.testing.assert_allclose(loss(array), jax.grad(functional)(array), rtol=1e-12)


def test_write_in_another_thread_is_seen_by_the_checks():
    y = leaf(xgrad, 3) * 1
    z = (y * y).sum()
    thread = threading.Thread(target=lambda: y.detach().add_(1))
    thread.start()
    thread.join()
    assert isinstance(outcome(lambda T: z.backward(), xgrad), xgrad.errors.VersionError)
