"""Checkpoints inside of func's transforms and forward mode, and these inside of checkpoints."""

import functools

import pytest

import xgrad
from xgrad import func
from xgrad.autograd import forward_ad
from xgrad.autograd.graph import allow_mutation_on_saved_tensors, save_on_cpu
from xgrad.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ..oracle import leaf, same


def once(f, *args):
    return checkpoint(f, *args, use_reentrant=False)


def twice(f, *args):
    return once(lambda *inner: once(f, *inner), *args)


def selective(f, *args):
    context_fn = functools.partial(create_selective_checkpoint_contexts, [xgrad.sin, xgrad.mul])
    return checkpoint(f, *args, use_reentrant=False, context_fn=context_fn)


def offloaded(f, *args):
    with save_on_cpu():
        return f(*args)


def writable(f, *args):
    return f(*args)


WRAPS = [once, twice, selective, offloaded]


def block(x):
    return (x.sin().exp() * x).tanh()


def noisy(x):
    return xgrad.nn.functional.dropout(x.sin()).exp() * x


PROGRAMS = {
    "grad": lambda w, x: func.grad(lambda x: w(block, x).sum())(x),
    "vmap of grad": lambda w, x: func.vmap(func.grad(lambda r: w(block, r).sum()))(x),
    "grad of vmap": lambda w, x: func.grad(lambda x: func.vmap(lambda r: w(block, r))(x).sum())(x),
    "backward after vmap": lambda w, x: xgrad.autograd.grad(func.vmap(lambda r: w(block, r))(x).sum(), x),
    "second derivative after vmap": lambda w, x: xgrad.autograd.grad(
        xgrad.autograd.grad(func.vmap(lambda r: w(block, r))(x).sum(), x, create_graph=True)[0].sin().sum(), x
    ),
    "jvp": lambda w, x: func.jvp(lambda x: w(block, x), (x,), (x * 2,)),
    "hessian": lambda w, x: func.hessian(lambda r: w(block, r).sum())(x[0]),
    "forward over reverse": lambda w, x: func.jacfwd(func.jacrev(lambda r: w(block, r)))(x[0]),
    "reverse over reverse": lambda w, x: func.jacrev(func.jacrev(lambda r: w(block, r)))(x[0]),
    "batched gradients": lambda w, x: xgrad.autograd.grad(
        w(block, x), x, leaf(xgrad, 4, 2, 3).detach(), is_grads_batched=True
    ),
    "random, the same": lambda w, x: func.grad(lambda x: func.vmap(lambda r: w(noisy, r), randomness="same")(x).sum())(
        x
    ),
    "random, different": lambda w, x: xgrad.autograd.grad(
        func.vmap(lambda r: w(noisy, r), randomness="different")(x).sum(), x
    ),
    "random in a Jacobian": lambda w, x: func.jacrev(lambda r: w(noisy, r))(x[0]),
}


# Two backward calls through one block are what keeping results does not allow.
CASES = [(name, wrap) for name in PROGRAMS for wrap in WRAPS if (name, wrap) != ("reverse over reverse", selective)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("name", "wrap"), CASES)
def test_transforms(name, wrap):
    def run(wrap):
        xgrad.manual_seed(3)
        return PROGRAMS[name](wrap, leaf(xgrad, 2, 3))

    same(run(wrap), run(lambda f, *args: f(*args)))


@pytest.mark.parametrize("name", ["hessian", "grad of vmap", "reverse over reverse"])
def test_transforms_where_mutation_is_allowed(name):
    plain = PROGRAMS[name](writable, leaf(xgrad, 2, 3))
    with allow_mutation_on_saved_tensors():
        same(PROGRAMS[name](writable, leaf(xgrad, 2, 3)), plain)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("wrap", WRAPS)
def test_tangents_of_gradients(wrap):
    """A dual number's gradient has a tangent, though what backward needs was packed away."""

    def run(wrap):
        x = leaf(xgrad, 3)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, leaf(xgrad, 3, seed=1).detach())
            (g,) = xgrad.autograd.grad(wrap(block, dual).sum(), x)
            return tuple(forward_ad.unpack_dual(g))

    same(run(wrap), run(lambda f, x: f(x)))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("wrap", [once, twice, offloaded])
def test_transforms_inside_of_a_checkpoint(wrap):
    """Packing must not cut the graph below a vmap: gradients of the result, and their gradients, are as without."""

    def run(wrap):
        x = leaf(xgrad, 2, 3)
        y = wrap(lambda x: func.vmap(func.grad(lambda r: block(r).sum()))(x).exp(), x)
        (g,) = xgrad.autograd.grad(y.sum(), x, create_graph=True)
        return y, g, xgrad.autograd.grad(g.sin().sum(), x)[0]

    same(run(wrap), run(lambda f, x: f(x)))
