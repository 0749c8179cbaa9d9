"""What checkpoints are for: memory.  Lifetimes, with the collector off; and bytes, under `jax.jit` too."""

import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ..oracle import leaf, same

VARIANTS = (False, True)


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(references):
    return sum(r() is not None for r in references)


class Watched:
    """A block of which the intermediate arrays of each run are watched."""

    def __init__(self):
        self.runs = []
        self.most = 0  # of all runs, alive at once

    def __call__(self, x):
        seen = []
        self.runs.append(seen)
        for _ in range(4):
            x = x.sin()
            seen.append(weakref.ref(x._read()))
        self.most = max(self.most, alive([r for run in self.runs for r in run]))
        return x * 1


@pytest.mark.eager("lifetimes")
def test_what_is_computed_dies_at_once_and_again_in_backward(no_collector):
    block = Watched()
    x = leaf(xgrad, 3)
    y = checkpoint(block, x, use_reentrant=False, early_stop=False)
    assert alive(block.runs[0]) == 0
    s = y.sum()
    s.backward(retain_graph=True)
    assert [alive(run) for run in block.runs] == [0, 0]  # with the graph kept, too
    node = weakref.ref(y.grad_fn)
    del y, s
    assert node() is None


@pytest.mark.eager("lifetimes")
def test_recomputed_values_go_one_by_one(no_collector):
    block, left = Watched(), []
    y = checkpoint(block, leaf(xgrad, 3), use_reentrant=False)
    node = y.grad_fn.next_functions[0][0]
    while not node.is_accumulator:
        node.register_hook(lambda *_: left.append(alive(block.runs[1])))
        node = node.next_functions[0][0]
    y.sum().backward()
    assert left == [2, 1, 0, 0]  # the last of the four is not needed; each goes once its node has run


@pytest.mark.eager("lifetimes")
def test_recomputed_values_that_backward_does_not_need_go_with_it(no_collector):
    """A backward to one of the inputs recomputes the whole block, and keeps nothing of the rest."""
    block = Watched()
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    y = checkpoint(lambda x, w: (w * 2).exp() * block(x), x, w, use_reentrant=False, early_stop=False)
    xgrad.autograd.grad(y.sum(), w, retain_graph=True)
    assert [alive(run) for run in block.runs] == [0, 0]


@pytest.mark.eager("lifetimes")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("reentrant", VARIANTS)
@pytest.mark.parametrize("when", [0, 1])
def test_an_error_keeps_nothing_alive(no_collector, reentrant, when):
    block = Watched()
    runs = iter(range(9))

    def function(x):
        y = block(x)
        if next(runs) == when:
            raise ZeroDivisionError
        return y.exp()

    def go():
        x = leaf(xgrad, 3)
        y = checkpoint(function, x, use_reentrant=reentrant, early_stop=False)
        y.sum().backward()

    with pytest.raises(ZeroDivisionError):
        go()
    gc.collect()  # pytest's own traceback
    assert sum(map(alive, block.runs)) == 0


@pytest.mark.eager("lifetimes")
def test_nested_blocks_keep_their_inputs_only(no_collector):
    outer, inner = Watched(), Watched()
    x = leaf(xgrad, 3)

    def function(x):
        return checkpoint(inner, outer(x), use_reentrant=False)

    y = checkpoint(function, x, use_reentrant=False)
    assert alive(outer.runs[0]) == alive(inner.runs[0]) == 0
    y.sum().backward()
    assert [alive(run) for run in (*outer.runs, *inner.runs)] == [0] * (len(outer.runs) + len(inner.runs))


@pytest.mark.eager("lifetimes")
def test_kept_results_go_when_they_are_used(no_collector):
    block = Watched()
    x = leaf(xgrad, 3)
    y = checkpoint(
        block,
        x,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts([xgrad.sin]),
    )
    assert alive(block.runs[0]) == 4
    y.sum().backward()
    assert [alive(run) for run in block.runs] == [0, 0]


# -- in one program ----------------------------------------------------------------------------------------------------

DEPTH, WIDTH, BATCH, SEGMENT = 8, 32, 256, 4


def weights():
    r = np.random.RandomState(0)
    w = [jnp.asarray(r.standard_normal((WIDTH, WIDTH)).astype("float32") / WIDTH**0.5) for _ in range(DEPTH)]
    return w, jnp.asarray(r.standard_normal((BATCH, WIDTH)).astype("float32"))


def segment(h, *w):
    for x in w:
        h = xgrad.tanh(h @ x)
    return h


def program(wrap, by_backward=False):
    def step(arrays, h):
        ws = [xgrad.as_tensor(a).requires_grad_() for a in arrays]
        h = xgrad.as_tensor(h)
        for i in range(0, DEPTH, SEGMENT):
            h = wrap(segment, h, *ws[i : i + SEGMENT])
        loss = (h * h).sum()
        if by_backward:
            loss.backward()
            return [w.grad._read() for w in ws]
        return [g._read() for g in xgrad.autograd.grad(loss, ws)]

    return jax.jit(step).lower(*weights()).compile()


@functools.cache
def plain_program(by_backward):
    return program(lambda f, *a: f(*a), by_backward)


def temporaries(compiled):
    return compiled.memory_analysis().temp_size_in_bytes


WRAPS = {
    "not reentrant": lambda f, *a: checkpoint(f, *a, use_reentrant=False),
    "in containers": lambda f, h, *w: checkpoint(
        lambda state, ws: f(state["h"], *ws), {"h": h}, list(w), use_reentrant=False
    ),
    "by keyword": lambda f, h, *w: checkpoint(lambda *, h: f(h, *w), h=h, use_reentrant=False),
    "nested": lambda f, *a: checkpoint(lambda *a: checkpoint(f, *a, use_reentrant=False), *a, use_reentrant=False),
    "reentrant": lambda f, *a: checkpoint(f, *a, use_reentrant=True),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", WRAPS)
def test_memory_is_saved_in_one_program(name):
    """XLA would merge the recomputation with the original, were there no dependence on the incoming gradient."""
    plain = plain_program(name == "reentrant")
    less = program(WRAPS[name], name == "reentrant")
    for ours, theirs in zip(less(*weights()), plain(*weights())):
        same(np.asarray(ours), np.asarray(theirs), rtol=1e-4, atol=1e-4)
    assert temporaries(less) <= 0.75 * temporaries(plain)
    assert less.as_text().count(" dot(") > plain.as_text().count(" dot(")


@pytest.mark.exhaustive
def test_the_dependence_changes_no_value():
    """Whatever the gradient is: the number that decides has as many bits as it may have."""
    from xgrad.utils.recompute import after

    x = leaf(xgrad, 3) * 1
    for dtype in ("float64", "float32", "bfloat16", "float16", "complex64", "complex128", "float8_e5m2"):
        for value in (np.nan, np.inf, -0.0, 0.0, -1.0, 3e38):
            with np.errstate(over="ignore"):
                gradient = jnp.asarray(np.full((2, 2), value), dtype)
            (tied,) = after((x,), gradient)
            assert tied is not x
            same(tied, x)
            assert tied.grad_fn is x.grad_fn


@pytest.mark.exhaustive
def test_gradients_through_the_program_of_a_checkpoint():
    """JAX may differentiate the program, in reverse and forward mode."""

    def gradient(wrap):
        def f(x):
            t = xgrad.as_tensor(x).requires_grad_()
            return xgrad.autograd.grad(wrap(lambda t: t.sin().exp() * t, t).sum(), t)[0]._read().sum()

        x = jnp.arange(3.0)
        return np.asarray(jax.grad(f)(x)), np.asarray(jax.jit(jax.grad(f))(x)), np.asarray(jax.jvp(f, [x], [x])[1])

    plain = gradient(lambda f, t: f(t))
    assert np.abs(plain[0]).sum() > 0
    for ours, theirs in zip(gradient(lambda f, t: checkpoint(f, t, use_reentrant=False)), plain):
        same(ours, theirs)
