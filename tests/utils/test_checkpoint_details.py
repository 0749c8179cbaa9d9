"""Checkpoints at their edges, as in PyTorch: outputs that are views or written, hooks, modules, both variants."""

import pytest

import xgrad
from xgrad.config import state

from ..oracle import as_torch, leaf


def non(T, f, *args, **options):
    return T.utils.checkpoint.checkpoint(f, *args, use_reentrant=False, **options)


def re(T, f, *args):
    return T.utils.checkpoint.checkpoint(f, *args, use_reentrant=True)


def gradient(y, *leaves):
    y.sum().backward()
    return y, [x.grad for x in leaves]


def output_is_the_input(T):
    x = leaf(T, 3)
    return non(T, lambda x: x, x) is x


def output_is_a_view(T):
    x = leaf(T, 3)
    base = x * 1
    view = non(T, lambda b: b[1:], base)
    view.mul_(3)
    return view._is_view(), gradient(base, x)


def output_is_written(T):
    results = []
    for checkpoint in (non, re):
        x = leaf(T, 3)
        y = checkpoint(T, lambda x: x.exp() * 2, x)
        y.mul_(2)
        results.append(gradient(y, x))
    return results


def output_that_requires_no_grad(T):
    x = leaf(T, 3)
    y, z = non(T, lambda x: (x.detach() * 2, x.exp()), x)
    return y.requires_grad, gradient(z, x)


def integers_and_unused_outputs_when_reentrant(T):
    x = leaf(T, 3)
    a, b, _ = re(T, lambda x: (x * 2, x > 0, x * x), x)
    return b.requires_grad, gradient(a, x)


def lists_are_passed_on_when_reentrant(T):
    return [y.requires_grad for y in re(T, lambda x: [x * 2], leaf(T, 3))]


def containers_get_no_gradient_when_reentrant(T):
    x, w = leaf(T, 3), leaf(T, 3, seed=1)
    return gradient(re(T, lambda d, w: d["x"] * w, {"x": x}, w), x, w)


def weights_of_closures(T):
    results = []
    for checkpoint in (non, re):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        results.append(gradient(checkpoint(T, lambda x, w=w: x * w.exp(), x), x, w))
    w = leaf(T, 3)
    return results, gradient(non(T, lambda: w.exp()), w)


def graph_kept_when_reentrant(T):
    x = leaf(T, 3)
    y = re(T, lambda x: x.exp(), x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


def only_what_is_asked_for(T):
    counts = [0, 0]

    def block(i):
        def function(x):
            counts[i] += 1
            return x.sin().exp()

        return function

    x = leaf(T, 3)
    h = x * 2
    y = non(T, block(0), h)
    z = non(T, block(1), y)
    return T.autograd.grad(z.sum(), y, retain_graph=True), counts[:], T.autograd.grad(z.sum(), h), counts


def retained_gradients(T):
    kept = []

    def function(x):
        kept.append(x.sin())
        kept[-1].retain_grad()
        return kept[-1].exp()

    x = leaf(T, 3)
    return gradient(non(T, function, x), x), kept[0].grad, len(kept)


def hooks_of_leaves(T):
    x, log = leaf(T, 3), []
    x.register_hook(lambda g: log.append("hook"))
    x.register_post_accumulate_grad_hook(lambda p: log.append("post"))
    return gradient(non(T, lambda x: x.sin().exp(), x), x), log


def other_hooks_inside(T):
    log, x = [], leaf(T, 3)

    def noted(word):
        return lambda t: log.append(word) or t

    def function(x):
        with T.autograd.graph.saved_tensors_hooks(noted("pack"), noted("unpack")):
            h = x.sin()
        return h.exp().exp()

    return gradient(non(T, function, x, early_stop=False), x), log


def grad_mode_in_backward_and_in_the_function(T):
    def function(x):
        with T.no_grad():
            s = x.sin()
        return s * x.exp() * x.detach()

    x = leaf(T, 3)
    y = non(T, function, x).sum()
    with T.no_grad():
        y.backward()
    return x.grad


def state_that_changes(T):
    power, x = {"of": 2.0}, leaf(T, 3)
    y = non(T, lambda x, power: (x**2) ** power["of"], x, power)
    power["of"] = 3.0
    return gradient(y, x)[1]


def checkpoint_in_a_custom_backward(T):
    class Odd(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            with T.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                (found,) = T.autograd.grad(non(T, lambda x: x.sin().exp(), x).sum(), x)
            return grad * found

    x = leaf(T, 3)
    return gradient(non(T, lambda x: Odd.apply(x.cos()), x), x)


def modules(T):
    results = []
    for checkpoint in (non, re):
        model = T.nn.Sequential(*(T.nn.Linear(3, 3, dtype=T.float64) for _ in range(3)))
        with T.no_grad():
            for i, p in enumerate(model.parameters()):
                p.fill_(0.1 * (i + 1))
        x = leaf(T, 2, 3)
        results.append(gradient(checkpoint(T, model, x).exp(), x, *model.parameters()))
    x = leaf(T, 2, 3)
    results.append(gradient(T.utils.checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=False), x))
    return results


def parts_of_a_sequence(T):
    calls, x = [], leaf(T, 3)
    functions = [lambda x, i=i: calls.append(i) or x.sin() for i in range(7)]
    return gradient(T.utils.checkpoint.checkpoint_sequential(functions, 3, x, use_reentrant=False), x), calls


def group_that_has_ended(T):
    x = leaf(T, 3)
    y = non(T, lambda x: x.sin().exp(), x).sum()
    with T.utils.checkpoint.GraphExecGroup():
        y.backward(retain_graph=True)
    y.backward()
    return x.grad


DETAILS = [
    output_is_the_input, output_is_a_view, output_is_written, output_that_requires_no_grad,
    integers_and_unused_outputs_when_reentrant, lists_are_passed_on_when_reentrant,
    containers_get_no_gradient_when_reentrant, weights_of_closures, graph_kept_when_reentrant, only_what_is_asked_for,
    retained_gradients, hooks_of_leaves, other_hooks_inside, grad_mode_in_backward_and_in_the_function,
    state_that_changes, checkpoint_in_a_custom_backward, modules, parts_of_a_sequence, group_that_has_ended,
]  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("program", DETAILS)
def test_as_in_torch(program):
    as_torch(program)


def test_recomputation_tracks_views_as_the_first_run_did():
    seen = []

    def block(x):
        seen.append(state.tracking)
        y = x.clone()
        y[0].mul_(x[1])
        return y.sin()

    x = leaf(xgrad, 2, 3)
    with xgrad.views.tracking("geometry"):
        y = non(xgrad, block, x).sum()
    with xgrad.views.tracking("replay"):
        y.backward()
    assert seen == ["geometry", "geometry"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_backward_gets_the_very_tensor_that_the_recomputation_saved_where_it_needs_no_grad(reentrant):
    def program(T):
        seen = []

        class Mul(T.autograd.Function):
            @staticmethod
            def forward(ctx, x, given, made):
                ctx.save_for_backward(x, given, made)
                seen.append((given, made))
                return x * given * made

            @staticmethod
            def backward(ctx, grad):
                x, given, made = ctx.saved_tensors
                seen.append((given is seen[-1][0], made is seen[-1][1], given is data, x.requires_grad))
                return grad * given * made, None, None

        x, data = T.ones(3, requires_grad=True), T.arange(3.0)
        y = T.utils.checkpoint.checkpoint(lambda x: Mul.apply(x, data, data * 2), x, use_reentrant=reentrant)
        y.sum().backward()
        return seen[-1], x.grad

    as_torch(program)


def test_a_write_after_the_recomputation_saved_does_not_reach_backward():
    def f(x):
        data = xgrad.arange(3.0)
        y = x * data
        data.add_(1)
        return y * 2

    x = xgrad.ones(3, requires_grad=True)
    xgrad.utils.checkpoint.checkpoint(f, x, use_reentrant=False, early_stop=False).sum().backward()
    assert x.grad.tolist() == [0, 2, 4]
