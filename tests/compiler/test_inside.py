"""What happens inside of a compiled function: hooks, packed tensors, Functions, checkpoints, higher derivatives."""

import numpy as np
import pytest

import xgrad
from xgrad.autograd.function import once_differentiable
from xgrad.utils.checkpoint import checkpoint, checkpoint_sequential

from ..oracle import leaf, same
from .agreement import agree


class Cube(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**3 * n

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x * ctx.n, None


class Once(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.mark_non_differentiable(z := (x > 0))
        return x * y, z

    @staticmethod
    @once_differentiable
    def backward(ctx, grad, _):
        x, y = ctx.saved_tensors
        return grad * y, grad * x if ctx.needs_input_grad[1] else None


class InPlace(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def hooks_on_a_leaf(x, w):
    handle = x.register_hook(lambda g: g * 2)
    (x * w).sum().backward()
    handle.remove()


def hooks_on_what_is_made(x, w):
    y, log = x * w, []
    y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: log.append(g))
    y.grad_fn.register_prehook(lambda gs: (gs[0] + 1,))
    y.grad_fn.register_hook(lambda out, given: (out[0] * 2, out[1]))
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad, log[0]


def hooks_on_leaves_that_are_made(x, w):
    z = (x * 2).detach().requires_grad_()
    z.register_post_accumulate_grad_hook(lambda t: setattr(t, "grad", t.grad * 5))
    (z * w).sum().backward()
    return z.grad


def a_hook_of_a_hook(x, w):
    y = (x * w).tanh()

    def hook(g):
        u = y.detach().requires_grad_()
        with xgrad.enable_grad():
            (u * u).sum().backward()
        return g + u.grad

    y.register_hook(hook)
    y.sum().backward()


def packed(x, w):
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        y = (x * w).exp()
    y.sum().backward()


def packed_as_something_else(x, w):
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: {"a": t.detach()}, lambda d: d["a"]):
        y = (x * w).exp() * w
    y.sum().backward()


def packed_on_the_cpu(x, w):
    with xgrad.autograd.graph.save_on_cpu():
        y = (x * w).exp()
    y.sum().backward()


def mutation_allowed(x, w):
    with xgrad.autograd.graph.allow_mutation_on_saved_tensors():
        y = x * 1
        z = y * y
        y.add_(1)
        (z * w).sum().backward()


def functions(x, w):
    (Cube.apply(x * w, 2) + Once.apply(x, w)[0]).sum().backward()
    return Once.apply(x, w)[1]


def a_function_in_place(x, w):
    y = x * w
    y = InPlace.apply(y)
    y.sum().backward()
    return y.detach()


def a_function_twice(x, w):
    (g,) = xgrad.autograd.grad(Cube.apply(x, 1).sum(), x, create_graph=True)
    (g * w).sum().backward()


def a_gradient_penalty(x, w):
    y = (x * w).tanh().sum()
    gx, gw = xgrad.autograd.grad(y, [x, w], create_graph=True)
    (gx.square().sum() + gw.square().sum()).backward()
    return gx.detach()


def third_derivative(x, w):
    y = (x**4 * w).sum()
    for _ in range(3):
        (g,) = xgrad.autograd.grad(y, x, create_graph=True)
        y = g.sum()
    return y.detach()


def checkpointed(x, w):
    def block(t):
        return (t * w).tanh() * w

    y = checkpoint(block, x, use_reentrant=False)
    checkpoint(block, y, use_reentrant=False).sum().backward()


def checkpointed_and_reentrant(x, w):
    checkpoint(lambda t: (t * w).tanh(), x * 1, use_reentrant=True).sum().backward()


def checkpointed_with_dropout(x, w):
    with xgrad.random.fork_rng():
        xgrad.manual_seed(3)
        checkpoint(lambda t: xgrad.nn.functional.dropout(t * w, 0.5), x, use_reentrant=False).sum().backward()


def checkpointed_in_sequence(x, w):
    checkpoint_sequential(
        [lambda t: t * w, lambda t: t.tanh(), lambda t: t * t], 2, x, use_reentrant=False
    ).sum().backward()


def functional_inside(x, w):
    g = xgrad.func.grad(lambda t: (t * w.detach()).square().sum())(x.detach())
    j = xgrad.func.jacrev(lambda t: t * t)(x.detach())
    h = xgrad.autograd.functional.hessian(lambda t: (t**3).sum(), x.detach())
    v = xgrad.func.vmap(lambda t: t * 2)(w)
    (v * x).sum().backward()
    return g, j, h


def forward_mode_inside(x, w):
    with xgrad.autograd.forward_ad.dual_level():
        dual = xgrad.autograd.forward_ad.make_dual(x.detach(), w.detach())
        return xgrad.autograd.forward_ad.unpack_dual(dual * dual).tangent


def anomaly_inside(x, w):
    with pytest.warns(UserWarning, match="Anomaly"), xgrad.autograd.detect_anomaly(check_nan=False):
        (x * w).sum().backward()


def an_embedding(x, w):
    e = xgrad.nn.functional.embedding(xgrad.tensor([0, 2, 1]), x.view(3, 1))
    (e[:, 0] * w).sum().backward()


def modules_made_inside(x, w):
    net = xgrad.nn.Module()
    net.w = xgrad.nn.Parameter(w.detach())
    (net.w * x).sum().backward()
    return net.w.grad


INSIDE = [
    hooks_on_a_leaf, hooks_on_what_is_made, hooks_on_leaves_that_are_made, a_hook_of_a_hook, packed,
    packed_as_something_else, mutation_allowed, functions, a_function_in_place, a_function_twice, a_gradient_penalty,
    third_derivative, checkpointed, checkpointed_and_reentrant, checkpointed_with_dropout, checkpointed_in_sequence,
    functional_inside, forward_mode_inside, an_embedding, modules_made_inside, packed_on_the_cpu, anomaly_inside,
]  # fmt: skip


@pytest.mark.one_in(12)
@pytest.mark.parametrize("function", INSIDE, ids=lambda f: f.__name__)
def test_inside_is_as_in_eager(function):
    """The grads are there from the start, so that all calls are alike."""

    def program():
        x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
        x.grad, w.grad = xgrad.zeros_like(x).detach(), xgrad.zeros_like(w).detach()
        return function, [x, w], None

    agree(program, calls=2)


@pytest.mark.unverified("counts the runs of a hook")
def test_hooks_of_leaves_outside_are_traced():
    """A hook's arithmetic is part of the program; what it does in Python is done in the trace alone."""
    seen = []

    def program():
        x = leaf(xgrad, 3)
        x.grad = xgrad.zeros_like(x).detach()
        x.register_hook(lambda g: (seen.append(1), g * 2)[1])
        x.register_post_accumulate_grad_hook(_add)
        return (lambda x: (x * x).sum().backward()), [x], None

    def _add(t):
        t.grad.add_(1)

    agree(program, calls=3)
    assert len(seen) == 3 + 1


def test_hooks_that_stay_on_tensors_outside_are_refused():
    x, y = leaf(xgrad, 3), leaf(xgrad, 3) * 2
    for function in (
        lambda: x.register_hook(lambda g: g),
        lambda: x.register_post_accumulate_grad_hook(lambda t: None),
        lambda: y.register_hook(lambda g: g),
        lambda: y.retain_grad(),
        lambda: y.grad_fn.register_hook(lambda *g: None),
        lambda: y.grad_fn.register_prehook(lambda g: None),
    ):
        with pytest.raises(NotImplementedError, match=r"changes (the hooks|retain_grad) of a tensor from outside"):
            xgrad.compile(lambda f=function: f() and None)()
    assert not x._backward_hooks
    assert not y._backward_hooks
    assert not y.retains_grad


def test_hooks_beside_those_that_are_there_are_refused():
    x = leaf(xgrad, 3)
    first = x.register_hook(lambda g: g * 2)

    def adds():
        x.register_hook(lambda g: g * 5)

    def removes():
        (x * 1).sum().backward()
        first.remove()

    for function in (adds, removes):
        with pytest.raises(NotImplementedError, match="changes the hooks of a tensor from outside"):
            xgrad.compile(function)()
        assert len(x._backward_hooks) == 1
    (x * 1).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(3, 2.0))


def test_hooks_beside_those_that_are_there_may_come_and_go():
    def program():
        x = leaf(xgrad, 3)
        x.grad = xgrad.zeros_like(x).detach()
        x.register_hook(lambda g: g * 2)
        return hooks_on_a_leaf, [x, leaf(xgrad, 3, seed=1).detach()], None

    agree(program)


@pytest.mark.exhaustive
def test_a_checkpoint_saves_memory():
    """A deep network: with checkpoints there are fewer temporaries in the one program."""
    width, depth = 32, 8
    weights = [leaf(xgrad, width, width, seed=i) for i in range(2)]

    def block(x):
        for w in weights:
            x = (x @ w).tanh()
        return x

    def step(x, saves):
        for _ in range(depth):
            x = checkpoint(block, x, use_reentrant=False) if saves else block(x)
        x.square().sum().backward()
        found = [w.grad for w in weights]
        for w in weights:
            w.grad = None
        return found

    x = leaf(xgrad, 1024, width, seed=7).detach()
    compiled = xgrad.compile(step)
    same(compiled(x, True), compiled(x, False), rtol=1e-9)
    with_, without = (compiled.memory_analysis(x, saves).temp_size_in_bytes for saves in (True, False))
    assert with_ < 0.75 * without
    assert compiled.metrics().traces == 2


def test_a_trace_leaves_leaves_as_they_were():
    """Nothing of the trace stays in a leaf's accumulator, hooks or grad."""
    x = leaf(xgrad, 3)
    step = xgrad.compile(lambda: (x * 2).sum())
    step()
    (x * 3).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full(3, 3.0))
