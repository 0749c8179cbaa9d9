"""Random numbers: the sequence is the eager one, and goes on from call to call."""

import jax
import numpy as np
import pytest

import xgrad
from xgrad.utils.checkpoint import checkpoint

F = xgrad.nn.functional


def draws(x):
    y = xgrad.rand(3) + xgrad.randn(3)
    return y + xgrad.rand_like(x) * x, F.dropout(x, 0.5), xgrad.randint(0, 9, (2,)), xgrad.randperm(4)


def in_place(x):
    y = x * 1
    y.uniform_()
    return y.normal_() + xgrad.bernoulli(y.sigmoid())


def with_gradient(x):
    w = xgrad.ones(3, requires_grad=True)
    F.dropout(w * x, 0.3).square().sum().backward()
    return w.grad


def same_draws(function, before, calls=3, between=lambda: None):
    """The results of several calls, eager and compiled, each sequence after `before()`."""
    x, compiled, found = xgrad.tensor([1.0, 2.0, 3.0]), xgrad.compile(function), []
    for f in (function, compiled):
        before()
        results = []
        for _ in range(calls):
            results.append(jax.tree_util.tree_map(np.asarray, f(x)))
            between()
        results.append(xgrad.rand(2).numpy())  # it goes on after the calls
        found.append(results)
    jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), *found)
    assert compiled.metrics().traces == 1
    first, second = (jax.tree_util.tree_leaves(r)[0] for r in found[1][:2])
    assert not np.array_equal(first, second)


@pytest.mark.exhaustive
@pytest.mark.one_in(4)
@pytest.mark.parametrize("function", [draws, in_place, with_gradient])
@pytest.mark.filterwarnings("error")
def test_the_default_generator(function):
    same_draws(function, lambda: xgrad.manual_seed(7))


def test_eager_draws_between_calls():
    same_draws(draws, lambda: xgrad.manual_seed(3), between=lambda: xgrad.rand(1))


def test_a_seed_anew_before_each_call_gives_the_same():
    step = xgrad.compile(lambda: xgrad.rand(3))
    found = []
    for _ in range(3):
        xgrad.manual_seed(5)
        found.append(step().tolist())
    assert found[0] == found[1] == found[2]
    xgrad.manual_seed(6)
    assert step().tolist() != found[0]
    assert step.metrics().traces == 1


def test_a_generator_of_ones_own():
    eager, mine, other = (xgrad.Generator() for _ in range(3))
    for generator in (eager, mine, other):
        generator.manual_seed(11)

    def step(generator):
        return xgrad.rand(3, generator=generator), xgrad.randn(2)

    compiled = xgrad.compile(step)
    before = xgrad.get_rng_state().numpy().copy()
    for _ in range(3):
        np.testing.assert_array_equal(compiled(mine)[0].numpy(), step(eager)[0].numpy())
    again = xgrad.rand(3, generator=xgrad.Generator().manual_seed(11))
    np.testing.assert_array_equal(compiled(other)[0].numpy(), again.numpy())
    assert not np.array_equal(before, xgrad.get_rng_state().numpy())


def test_a_generator_in_a_closure_is_one_that_is_not_shared():
    generator = xgrad.Generator().manual_seed(2)
    eager = xgrad.Generator().manual_seed(2)
    step = xgrad.compile(lambda: xgrad.rand(2, generator=generator))
    for _ in range(3):
        np.testing.assert_array_equal(step().numpy(), xgrad.rand(2, generator=eager).numpy())
    generator.manual_seed(2)
    np.testing.assert_array_equal(step().numpy(), xgrad.rand(2, generator=xgrad.Generator().manual_seed(2)).numpy())


def test_use_key():
    step = xgrad.compile(lambda: (xgrad.rand(3), xgrad.randn(3)))

    def under(key, f, calls):
        with xgrad.random.use_key(key):
            return [f()[0].tolist() for _ in range(calls)]

    for seed in (0, 1, 0):
        key = jax.random.key(seed)
        assert under(key, step, 3) == under(key, step._function, 3)
    assert step.metrics().traces == 1
    step()
    assert step.metrics().traces == 2


def test_use_key_inside():
    def step(x):
        with xgrad.random.use_key(jax.random.key(3)):
            return xgrad.rand(2) + x

    compiled, x = xgrad.compile(step), xgrad.zeros(2)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(x).numpy(), step(x).numpy())


def test_manual_seed_inside():
    def step():
        xgrad.manual_seed(9)
        return xgrad.rand(2)

    compiled = xgrad.compile(step)
    for _ in range(3):
        found, after = compiled(), xgrad.rand(2)
        expected, then = step(), xgrad.rand(2)
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
        np.testing.assert_array_equal(after.numpy(), then.numpy())


def test_a_generator_that_is_made_inside():
    def step():
        return xgrad.rand(2, generator=xgrad.Generator().manual_seed(3))

    compiled = xgrad.compile(step)
    for _ in range(2):
        np.testing.assert_array_equal(compiled().numpy(), step().numpy())


def test_a_failed_trace_takes_no_random_numbers():
    def step(x):
        return xgrad.rand(2) * xgrad.rand(2).sum().item()

    xgrad.manual_seed(1)
    expected = xgrad.rand(2).numpy()
    xgrad.manual_seed(1)
    with pytest.raises(xgrad.errors.TracedValueError):
        xgrad.compile(step)(1)
    np.testing.assert_array_equal(xgrad.rand(2).numpy(), expected)


def test_fork_rng_inside():
    def step():
        with xgrad.random.fork_rng():
            a = xgrad.rand(2)
        return a, xgrad.rand(2)

    xgrad.manual_seed(4)
    compiled = xgrad.compile(step)
    for _ in range(2):
        a, b = compiled()
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(
    ("use_reentrant", "inside"), [(True, True), (False, True), (False, False)], ids=["reentrant", "inside", "outside"]
)
def test_a_checkpoint_draws_the_same_again(use_reentrant, inside):
    own = xgrad.Generator()

    def block(x):
        return (F.dropout(x, 0.5) * xgrad.rand(3)).sin() * xgrad.rand(3, generator=own)

    def loss(x):
        y = checkpoint(block, checkpoint(block, x, use_reentrant=use_reentrant), use_reentrant=use_reentrant).sum()
        if inside:
            y.backward()
        return y.detach() if inside else y

    found = []
    for f in (loss, xgrad.compile(loss)):
        xgrad.manual_seed(1)
        own.manual_seed(2)
        x = xgrad.tensor([1.0, 2.0, 3.0], requires_grad=True)
        for _ in range(2):
            y = f(x)
            if not inside:
                y.backward()
        found.append([y.detach().numpy(), x.grad.numpy(), xgrad.rand(2).numpy(), xgrad.rand(2, generator=own).numpy()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
