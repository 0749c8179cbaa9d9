"""Generators and samplers: reproducible, of the right distribution, gradient 0, usable from threads and in traces."""

import contextlib
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
import xgrad.random

from ..oracle import same_error

N = 4096


def moments(x):
    values = np.asarray(x.detach().to(xgrad.float64)._read())
    return values.mean(), values.std()


SAMPLES = {
    "rand": (lambda: xgrad.rand(N), 0.5, 12**-0.5),
    "randn": (lambda: xgrad.randn(N), 0, 1),
    "randint": (lambda: xgrad.randint(-2, 3, (N,)), 0, 2**0.5),
    "bernoulli": (lambda: xgrad.full((N,), 0.25).bernoulli(), 0.25, (0.25 * 0.75) ** 0.5),
    "bernoulli_": (lambda: xgrad.empty(N).bernoulli_(0.25), 0.25, (0.25 * 0.75) ** 0.5),
    "normal": (lambda: xgrad.normal(xgrad.full((N,), 3.0), 2.0), 3, 2),
    "normal_": (lambda: xgrad.empty(N).normal_(3, 2), 3, 2),
    "uniform_": (lambda: xgrad.empty(N).uniform_(1, 3), 2, 2 * 12**-0.5),
    "exponential_": (lambda: xgrad.empty(N).exponential_(2.0), 0.5, 0.5),
    "geometric_": (lambda: xgrad.empty(N).geometric_(0.5), 2, 2**0.5),
    "log_normal_": (lambda: xgrad.empty(N).log_normal_(0, 0.5).log(), 0, 0.5),
    "random_": (lambda: xgrad.empty(N, dtype=xgrad.int32).random_(0, 5), 2, 2**0.5),
    "poisson": (lambda: xgrad.poisson(xgrad.full((N,), 4.0)), 4, 2),
    "binomial": (lambda: xgrad.binomial(xgrad.full((N,), 8.0), xgrad.full((N,), 0.25)), 2, 1.5**0.5),
    "multinomial": (lambda: xgrad.tensor([1.0, 0, 3]).multinomial(N, True), 1.5, 0.75**0.5),
}


@pytest.mark.exhaustive
@pytest.mark.one_in(14)
@pytest.mark.parametrize("name", SAMPLES)
def test_distribution_and_reproducibility(name):
    make, mean, deviation = SAMPLES[name]
    xgrad.manual_seed(0)
    first, second = make(), make()
    xgrad.manual_seed(0)
    assert first.tolist() == make().tolist()
    assert first.tolist() != second.tolist()
    found = moments(first)
    assert abs(found[0] - mean) < 6 * deviation / N**0.5
    assert abs(found[1] - deviation) < 0.1 * deviation


def test_cauchy_has_its_quartiles():
    xgrad.manual_seed(0)
    x = np.asarray(xgrad.empty(N).cauchy_(1, 2)._read())
    assert np.allclose(np.quantile(x, [0.25, 0.5, 0.75]), [-1, 1, 3], atol=0.3)


@pytest.mark.exhaustive
def test_without_replacement_nothing_comes_twice():
    xgrad.manual_seed(0)
    drawn = xgrad.ones(3, 20).multinomial(20)
    assert [sorted(row) for row in drawn.tolist()] == [list(range(20))] * 3
    assert sorted(xgrad.randperm(20).tolist()) == list(range(20))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "float16", "bfloat16"])
def test_random_without_bounds_draws_the_largest_value(dtype):
    mine, theirs = (t.zeros(40_000, dtype=getattr(t, dtype)).random_() for t in (xgrad, torch))
    assert float(mine.max()) == float(theirs.max())
    from_100 = xgrad.zeros(9_000, dtype=xgrad.int8).random_(100, None)
    assert (int(from_100.min()), int(from_100.max())) == (100, 127)


def test_bounds_of_integers_by_position_and_by_name():
    x = xgrad.zeros(3)
    for seven in (
        xgrad.randint_like(x, 7, 8),
        xgrad.randint_like(x, 7, high=8),
        xgrad.randint_like(x, low=7, high=8),
        xgrad.zeros(3).random_(7, 8),
        xgrad.zeros(3).random_(7, to=8),
        xgrad.zeros(3).random_(**{"from": 7, "to": 8}),
    ):
        assert seven.tolist() == [7, 7, 7]
    assert xgrad.randint_like(x, 1).tolist() == xgrad.zeros(3).random_(to=1).tolist() == [0, 0, 0]
    for wrong in (lambda: xgrad.randint_like(x, 1, 2, 3), lambda: xgrad.randint_like(x), lambda: x.random_(1, 2, 3)):
        with pytest.raises(TypeError, match="takes"):
            wrong()
    for named in ({"from": 1}, {"high": 1}):
        with pytest.raises(TypeError, match="takes at most two bounds"):
            x.random_(**named)


@pytest.mark.exhaustive
def test_dtypes_and_shapes():
    assert xgrad.rand(2, 3, dtype=xgrad.bfloat16).dtype == xgrad.bfloat16
    assert xgrad.randn((2,), dtype=xgrad.complex64).dtype == xgrad.complex64
    assert xgrad.randint_like(xgrad.ones(2, 3), 5).dtype == xgrad.float32
    assert xgrad.randint(7, (2, 3)).shape == (2, 3)
    assert xgrad.randint(low=1, high=2, size=(4,)).tolist() == [1, 1, 1, 1]
    assert set(xgrad.empty(200, dtype=xgrad.bool).random_().tolist()) == {True, False}
    assert xgrad.rand(2, requires_grad=True).is_leaf


def test_state_is_saved_restored_and_forked():
    state = xgrad.get_rng_state()
    first = xgrad.rand(3).tolist()
    xgrad.set_rng_state(state)
    with xgrad.fork_rng(devices=[], device_type="cpu"):
        assert xgrad.rand(3).tolist() == first
    assert xgrad.rand(3).tolist() == first
    g = xgrad.Generator()
    assert g.manual_seed(3) is g
    assert g.initial_seed() == 3
    assert xgrad.rand(2, generator=g).tolist() != xgrad.rand(2, generator=g).tolist()
    twin = g.clone_state()
    assert xgrad.rand(2, generator=g).tolist() == xgrad.rand(2, generator=twin).tolist()
    with pytest.raises(TypeError, match="uint32"):
        g.set_state(xgrad.ones(2))
    with pytest.raises(ValueError, match="Overflow"):
        xgrad.manual_seed(1 << 65)
    with pytest.raises(TypeError, match="Generator"):
        xgrad.rand(2, generator=3)


def test_seeds_that_differ_in_the_upper_word_differ():
    one, other = (xgrad.Generator().manual_seed(s) for s in (5, 5 + (1 << 32)))
    assert xgrad.rand(2, generator=one).tolist() != xgrad.rand(2, generator=other).tolist()


def test_threads_never_draw_the_same_key():
    g, drawn = xgrad.Generator().manual_seed(0), []

    def draw():
        for _ in range(50):
            drawn.append(tuple(np.asarray(g.next_key()).tolist()))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(set(drawn)) == 200


@pytest.mark.exhaustive
def test_samples_have_the_gradient_zero():
    p = xgrad.full((3,), 0.5, requires_grad=True)
    (p.bernoulli() * 2).sum().backward()
    assert p.grad.tolist() == [0, 0, 0]
    x = xgrad.ones(3, requires_grad=True)
    y = x * 2
    y[1:].normal_()
    y.sum().backward()
    assert x.grad.tolist() == [2, 0, 0]
    mean = xgrad.zeros(2, requires_grad=True)
    xgrad.normal(mean, 1.0).sum().backward()
    assert mean.grad.tolist() == [0, 0]


def test_a_traced_key_makes_a_trace_random():
    @jax.jit
    def program(key):
        with xgrad.random.use_key(key):
            return xgrad.rand(2)._read(), xgrad.rand(2)._read()

    first, second = program(jax.random.key(0))
    assert first.tolist() != second.tolist()
    assert program(jax.random.key(1))[0].tolist() != first.tolist()
    assert program(jax.random.PRNGKey(0))[0].tolist() == first.tolist()


def test_the_default_generator_in_a_trace_warns_and_survives():
    with pytest.warns(UserWarning, match="constants of the compiled program"):
        jax.jit(lambda: xgrad.rand(2)._read())()
    assert len(xgrad.rand(2).tolist()) == 2


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (lambda T: T.randint(3, 3, (2,)), "'from' to be less than 'to'"),
        (lambda T: T.rand(2, dtype=T.int64), "not implemented"),
        (lambda T: T.rand(-1), "negative dimension"),
        (lambda T: T.bernoulli(T.tensor([2.0])), "p_in >= 0 && p_in <= 1"),
        (lambda T: T.ones(2).bernoulli_(2.0), r"p to be in \[0, 1\]"),
        (lambda T: T.normal(0.0, -1.0, (2,)), "std >= 0.0"),
        (lambda T: T.ones(2).uniform_(1, 0), r"\[from, to\) range"),
        (lambda T: T.ones(2).exponential_(-1), "lambda > 0.0"),
        (lambda T: T.ones(2).geometric_(2), r"p to be in \(0, 1\)"),
        (lambda T: T.ones(2).multinomial(3), "without replacement"),
        (lambda T: T.tensor([-1.0, 2]).multinomial(1), "element < 0"),
        (lambda T: T.tensor([0.0, 0]).multinomial(1), "sum of probabilities <= 0"),
    ],
)
def test_wrong_parameters(program, match):
    same_error(program, match)


@pytest.mark.exhaustive
def test_binomial_numbers_of_sure_trials_and_of_none():
    x = xgrad.binomial(xgrad.tensor([[3.0], [0.0]]), xgrad.tensor([0.0, 1.0]))
    assert x.tolist() == [[0, 3], [0, 0]]
    halves = xgrad.binomial(xgrad.full((9,), 4.0, dtype=xgrad.bfloat16), xgrad.ones(9, dtype=xgrad.bfloat16))
    assert halves.dtype == xgrad.bfloat16
    assert halves.tolist() == [4.0] * 9
    with pytest.raises(RuntimeError, match="Found dtype Double but expected Float"):
        xgrad.binomial(xgrad.ones(1), xgrad.ones(1, dtype=xgrad.float64))
    with pytest.raises(ValueError, match="binomial only supports floating-point dtypes for count, got: Long"):
        xgrad.binomial(xgrad.tensor([1]), xgrad.tensor([1]))
    with pytest.raises(RuntimeError, match="derivative for aten::binomial is not implemented"):
        xgrad.binomial(xgrad.ones(2, requires_grad=True), xgrad.ones(2)).sum().backward()


@pytest.mark.exhaustive
def test_gumbel_softmax_draws_categories():
    chances = np.array([0.2, 0.5, 0.3])
    logits = xgrad.tensor(np.log(chances)).expand(N, 3).clone().requires_grad_()
    hard = xgrad.nn.functional.gumbel_softmax(logits, tau=0.5, hard=True)
    assert set(np.unique(hard.detach().numpy())) <= {0.0, 1.0}
    np.testing.assert_allclose(hard.detach().numpy().mean(0), chances, atol=0.04)
    xgrad.manual_seed(5)
    hard, weights = xgrad.nn.functional.gumbel_softmax(logits, hard=True, dim=0), xgrad.arange(3.0)
    xgrad.manual_seed(5)
    soft = xgrad.nn.functional.gumbel_softmax(logits, dim=0)
    found = [xgrad.autograd.grad((x * weights).sum(), logits)[0].numpy() for x in (hard, soft)]
    np.testing.assert_allclose(*found, rtol=1e-9)
    assert found[0].any()
    np.testing.assert_allclose(soft.sum(0).detach().numpy(), 1, rtol=1e-6)
    with pytest.warns(UserWarning, match="`eps` parameter is deprecated"):
        xgrad.nn.functional.gumbel_softmax(logits, eps=1e-3)
    with pytest.raises(RuntimeError, match="dtype must be a floating point"):
        xgrad.nn.functional.gumbel_softmax(xgrad.tensor([1, 2]))


@pytest.mark.exhaustive
def test_inplace_forms_of_random_layers_write_what_the_others_give():
    F, x = xgrad.nn.functional, xgrad.linspace(-2, 2, 24).reshape(3, 8)
    for written, plain in (
        (lambda x: F.rrelu_(x, 0.1, 0.9, True), lambda x: F.rrelu(x, 0.1, 0.9, True)),
        (lambda x: xgrad.feature_dropout_(x, 0.5, True), lambda x: xgrad.feature_dropout(x, 0.5, True)),
    ):
        y = x.clone()
        xgrad.manual_seed(2)
        assert written(y) is y
        xgrad.manual_seed(2)
        np.testing.assert_array_equal(y.numpy(), plain(x).numpy())
        assert (y != x).any()


# -- under a trace of JAX's -------------------------------------------------------------------------------------------


def _forks(x):
    with xgrad.random.fork_rng():
        return x + xgrad.rand(2)._read()


def _sets(x):
    xgrad.random.set_rng_state(xgrad.random.get_rng_state())
    return x + xgrad.rand(2)._read()


def _seeds(x):
    xgrad.manual_seed(3)
    return x + xgrad.rand(2)._read()


def _draws_a_seed(x):
    xgrad.seed()
    return x + xgrad.rand(2)._read()


def _clones(x):
    clone = xgrad.default_generator.clone_state()
    clone.set_state(xgrad.default_generator.get_state())
    xgrad.default_generator.set_state(clone.get_state())
    return x + xgrad.rand(2, generator=clone)._read()


def _fails(x):
    with xgrad.random.fork_rng():
        xgrad.rand(2)
        raise ZeroDivisionError


TRACES = {
    "jit": lambda f: jax.jit(f),
    "vmap": lambda f: jax.vmap(f),
    "grad": lambda f: jax.grad(lambda x: f(x).sum()),
    "scan": lambda f: lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, jnp.zeros(2)),
    "checkpoint": lambda f: jax.checkpoint(f),
    "compile": lambda f: lambda x: xgrad.compile(lambda t: xgrad.as_tensor(f(t)))(xgrad.ones(2)),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("changes", [_forks, _sets, _seeds, _draws_a_seed, _clones, _fails])
@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.filterwarnings("ignore:Random numbers that are drawn under a JAX trace")
def test_generator_survives_a_trace(changes, trace):
    expected = pytest.raises(ZeroDivisionError) if changes is _fails else contextlib.nullcontext()
    if (trace, changes) == ("compile", _draws_a_seed):  # each call would have the seed of the first
        expected = pytest.raises(RuntimeError, match="Call it outside of the compiled function")
    with expected:
        TRACES[trace](changes)(jnp.ones(2))
    generator = xgrad.default_generator
    assert not isinstance(generator._key, jax.core.Tracer)
    state = generator.get_state()
    first = xgrad.rand(2).tolist()
    generator.set_state(state)
    assert xgrad.rand(2).tolist() == first


def test_fork_under_a_trace_gives_the_state_back():
    xgrad.manual_seed(1)
    before = xgrad.get_rng_state().tolist()
    with pytest.warns(UserWarning, match="become constants"):
        jax.jit(lambda x: _forks(x))(jnp.ones(2))
    assert xgrad.get_rng_state().tolist() == before


def test_state_that_is_traced_is_refused():
    xgrad.manual_seed(1)
    before = xgrad.get_rng_state().tolist()

    def sets(key):
        xgrad.set_rng_state(xgrad.as_tensor(key))
        return key

    with pytest.raises(xgrad.errors.TracedValueError, match="use_key"):
        jax.jit(sets)(jax.random.PRNGKey(0))
    assert xgrad.get_rng_state().tolist() == before

    def forks_from(key):
        with xgrad.random.use_key(key), xgrad.random.fork_rng():
            inner = xgrad.rand(2)._read()
        return inner

    assert jax.jit(forks_from)(jax.random.PRNGKey(0)).shape == (2,)


@pytest.mark.eager("arrays")
@pytest.mark.parametrize("dtype", [xgrad.float32, xgrad.float64])
def test_numbers_are_those_that_jax_draws_for_the_shape(dtype):
    """They are drawn as a vector, which compiles faster."""
    for name, draw in (("rand", jax.random.uniform), ("randn", jax.random.normal)):
        generator = xgrad.Generator().manual_seed(3)
        key = xgrad.Generator().manual_seed(3)
        drawn = getattr(xgrad, name)(2, 3, 5, dtype=dtype, generator=generator)
        expected = draw(xgrad.random.next_key(key), (2, 3, 5), dtype.name)
        assert (drawn._read() == expected).all()


HALVES = {
    "randn": lambda dtype: xgrad.randn(N * 16, dtype=dtype),
    "normal_": lambda dtype: xgrad.empty(N * 16, dtype=dtype).normal_(),
    "normal": lambda dtype: xgrad.normal(xgrad.zeros(N * 16, dtype=dtype), 1.0),
    "exponential_": lambda dtype: xgrad.empty(N * 16, dtype=dtype).exponential_().log(),
    "log_normal_": lambda dtype: xgrad.empty(N * 16, dtype=dtype).log_normal_(0, 1).log(),
    "cauchy_": lambda dtype: xgrad.empty(N * 16, dtype=dtype).cauchy_().atan() * 3,
}


@pytest.mark.parametrize("dtype", [xgrad.bfloat16, xgrad.float16])
@pytest.mark.parametrize("name", HALVES)
def test_halves_are_drawn_as_float32_and_rounded(name, dtype):
    drawn = np.asarray(HALVES[name](dtype).to(xgrad.float32)._read())
    assert np.isfinite(drawn).all()
    assert len(np.unique(drawn)) > 500  # of 7 random bits there would be 128
    assert np.abs(drawn).max() > 3.5


@pytest.mark.parametrize(("dtype", "count"), [(xgrad.bfloat16, 256), (xgrad.float16, 2048)])
def test_uniform_halves_stay_below_one(dtype, count):
    for drawn in (xgrad.rand(N * 16, dtype=dtype), xgrad.empty(N * 16, dtype=dtype).uniform_()):
        numbers = np.asarray(drawn.to(xgrad.float32)._read())
        assert len(np.unique(numbers)) == count
        assert numbers.min() == 0
        assert numbers.max() == 1 - 1 / count


def test_counts_beyond_int32():
    with xgrad.base.limits.x64_for_now(False):
        counts = xgrad.poisson(xgrad.full((64,), 1e12)), xgrad.zeros(64).geometric_(1e-12)
        for found in counts:
            assert 0.5e12 < float(found.mean()) < 2e12


REFUSED = {
    "negative rate": (lambda T: T.poisson(T.tensor([-1.0])), "rate"),
    "rate of an integer": (lambda T: T.poisson(T.tensor([1])), "not implemented for"),
    "probability of an integer": (lambda T: T.bernoulli(T.tensor([1])), "not implemented for"),
    "permutation of bytes": (lambda T: T.randperm(300, dtype=T.uint8), "."),
    "permutation of halves": (lambda T: T.randperm(3000, dtype=T.float16), "."),
    "integers of a complex dtype": (lambda T: T.randint(0, 2, (3,), dtype=T.complex64), "handles"),
    "an infinite range": (lambda T: T.zeros(3).uniform_(0, float("inf")), "."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_draws(name):
    same_error(*REFUSED[name])


@pytest.mark.parametrize(("dtype", "high"), [(xgrad.bool, 3), (xgrad.float16, 70000)])
def test_integers_fit_their_dtype(dtype, high):
    with pytest.raises(OverflowError, match="out of bounds"):
        xgrad.randint(0, high, (3,), dtype=dtype)
