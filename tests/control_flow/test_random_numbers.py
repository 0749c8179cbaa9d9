"""Random numbers in branches and loops of a program are eager's, and so are the generators afterwards."""

import jax
import numpy as np
import pytest

import xgrad
from xgrad.utils.checkpoint import checkpoint

STARTS = (1.0, -1.0, 1.0, 5.0)


def positive(x):
    return x.sum() > 0


def agree(function, starts=STARTS, grads=True):
    """Compare values, gradients, later draws and generators of eager calls and of a program's."""
    found = []
    for run in (function, xgrad.compile(function)):
        own, values = xgrad.Generator().manual_seed(3), []
        xgrad.manual_seed(0)
        for start in starts:
            x = xgrad.full((3,), start, requires_grad=grads)
            y = run(x, own)
            if y.requires_grad:
                y.sum().backward()
            values += [y, x.grad if y.requires_grad else y, xgrad.rand(2), own.get_state(), xgrad.get_rng_state()]
        found.append([v.detach().numpy() for v in values])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert run.metrics().traces == 1, run.metrics().reasons


def test_a_branch_draws_what_it_draws_eagerly():
    def f(x, own):
        def many(x):
            return x * xgrad.rand(3) + xgrad.randn(3, generator=own) * x

        y = xgrad.rand(3) * x
        y = xgrad.cond(positive(x), many, lambda x: xgrad.nn.functional.dropout(x, 0.5), (y,))
        return y + xgrad.rand(3)

    agree(f)


def test_a_branch_that_draws_nothing_leaves_the_generator():
    agree(lambda x, own: xgrad.cond(positive(x), lambda x: x * xgrad.rand(3), lambda x: x * 3, (x,)))


def test_draws_after_a_backward_go_on():
    def f(x, own):
        y = xgrad.cond(positive(x), lambda x: x * xgrad.rand(3), lambda x: x * xgrad.randn(3), (x,))
        y.sum().backward()
        return x.grad + xgrad.rand(3)

    agree(f)


def test_branches_in_branches():
    def inner(x):
        return xgrad.cond(x[0] > 2, lambda x: x * xgrad.rand(3), lambda x: x + xgrad.randn(3) * x, (x * xgrad.rand(3),))

    agree(lambda x, own: xgrad.cond(positive(x), inner, lambda x: x * xgrad.rand(3), (x,)))


def test_steps_of_a_loop():
    def f(x, own):
        def body(i, x):
            return i + 1, x.abs() * (1 + xgrad.rand(3, generator=own)) + xgrad.rand(())

        return xgrad.while_loop(lambda i, x: x.sum() < 12, body, (xgrad.tensor(0), x * xgrad.rand(3)))[1]

    agree(f)
    agree(f, grads=False)


def test_a_checkpoint_draws_the_same_again():
    def block(x):
        y = xgrad.cond(positive(x), lambda x: x * xgrad.rand(3), lambda x: x * xgrad.randn(3), (x,))
        return (y * xgrad.rand(3)).sin()

    def slope(x, own):
        checkpoint(block, x, use_reentrant=True).sum().backward()
        return x.grad.clone()

    agree(lambda x, own: checkpoint(block, x, use_reentrant=False) * xgrad.rand(3))
    agree(slope)


def test_entries_of_a_batch_draw_numbers_of_their_own():
    def entries(x, own):
        loop = lambda x: xgrad.while_loop(positive, lambda x: (x - xgrad.rand(()),), (x,))[0]  # noqa: E731
        return xgrad.vmap(loop, randomness="different")(x.reshape(3, 1))

    agree(entries)


def test_the_default_generator_may_be_seeded_before_in_the_function():
    def f(x, own):
        xgrad.manual_seed(7)
        return xgrad.cond(positive(x), lambda x: x * xgrad.rand(3), lambda x: x * 3, (x,))

    agree(f)


def test_a_key_of_jaxs():
    def f(x, key):
        with xgrad.random.use_key(key):
            y = xgrad.cond(positive(x), lambda x: x * xgrad.rand(3), lambda x: x * 3, (x,))
            return y + xgrad.rand(3)

    f, key = xgrad.to_jax(f), jax.random.key(0)
    for start in (1.0, -1.0):
        x = np.full(3, start, np.float32)
        np.testing.assert_allclose(jax.jit(f)(x, key), f(x, key), rtol=1e-6)


def test_the_tapes_gradient_draws_from_the_key_too():
    def f(x, key):
        with xgrad.random.use_key(key):
            return xgrad.cond(positive(x), lambda x: x * xgrad.rand(3), lambda x: x * 3, (x,)).sum()

    slope, key = jax.grad(xgrad.to_jax(f, grad="tape")), jax.random.key(0)
    for start in (1.0, -1.0):
        x = np.full(3, start, np.float32)
        np.testing.assert_allclose(jax.jit(slope)(x, key), slope(x, key), rtol=1e-6)


@pytest.mark.parametrize(
    "branch",
    [
        lambda x: x * xgrad.rand(3, generator=xgrad.manual_seed(5)),
        lambda x: x * xgrad.rand(3, generator=xgrad.Generator().manual_seed(5)),
    ],
    ids=["seeded", "made"],
)
def test_seeds_and_new_generators_are_refused(branch):
    run = xgrad.compile(lambda x: xgrad.cond(positive(x), branch, lambda x: x * 3, (x,)))
    xgrad.manual_seed(0)
    before = xgrad.get_rng_state().tolist()
    with pytest.raises(NotImplementedError, match="may draw random numbers from a generator that goes on"):
        run(xgrad.ones(3))
    assert xgrad.get_rng_state().tolist() == before


def test_a_condition_of_a_loop_and_a_trace_without_a_key_are_refused():
    run = xgrad.compile(lambda x: xgrad.while_loop(lambda x: xgrad.rand(()) < x.sum(), lambda x: (x - 1,), (x,)))
    with pytest.raises(NotImplementedError, match="the condition of a loop of a program draws no random numbers"):
        run(xgrad.ones(3))
    f = xgrad.to_jax(lambda x: xgrad.cond(positive(x), lambda x: x * xgrad.rand(3), lambda x: x, (x,)))
    with pytest.warns(UserWarning, match="become constants"), pytest.raises(NotImplementedError, match="use_key"):
        jax.jit(f)(np.ones(3, np.float32))
