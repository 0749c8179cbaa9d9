"""A graph is freed when its last user lets go: no cycles, seen with weak references while the collector is off."""

import gc
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import xgrad

from ..oracle import leaf


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def x_of(*shape):
    return leaf(xgrad, *shape)


def dies(*objects):
    """Weak references to objects, to be asked when the last strong one is gone."""
    return [weakref.ref(o) for o in objects]


def gone(references):
    return [r() is None for r in references] == [True] * len(references)


def test_dropped_graph_is_freed_at_once():
    x = x_of(3)
    y = x * 2
    z = y.tanh().sum()
    watched = dies(y.grad_fn, z.grad_fn, z, y)
    del y, z
    assert gone(watched)


def test_graph_is_freed_after_backward():
    x = x_of(3)
    z = (x * x).sum()
    watched = dies(z.grad_fn, z)
    z.backward()
    del z
    assert gone(watched)


def test_intermediate_tensors_die_before_the_graph():
    x = x_of(3)
    y = x + 1
    watched = dies(y)
    z = y.sum()
    del y
    assert gone(watched)
    z.backward()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("function", ["tanh", "exp", "sigmoid"])
def test_saved_output_makes_no_cycle(function):
    y = getattr(x_of(3), function)()
    watched = dies(y, y.grad_fn)
    del y
    assert gone(watched)


def test_saved_output_that_was_read_makes_no_cycle():
    y = x_of(3).tanh()
    result = y.grad_fn._saved_result
    assert result.grad_fn is y.grad_fn
    watched = dies(y, y.grad_fn, result)
    del y, result
    assert gone(watched)


@pytest.mark.one_in(2)
def test_inplace_saved_output_makes_no_cycle(path):
    x = x_of(2, 3)
    y = x * 1
    y[0].tanh_()
    y.tanh_()
    watched = dies(y, y.grad_fn)
    del y
    assert gone(watched)


def test_accumulator_dies_with_its_graphs():
    x = x_of(3)
    y = x * 2
    watched = dies(y.grad_fn.next_functions[0][0])
    second = x * 3
    assert second.grad_fn.next_functions[0][0] is watched[0]()
    del y
    assert not gone(watched)
    del second
    assert gone(watched)


def test_leaf_dies_with_its_graph_and_not_before():
    x = x_of(3)
    watched = dies(x)
    y = (x * 2).sum()
    del x
    assert not gone(watched)
    del y
    assert gone(watched)


def test_unused_inplace_history_of_a_view_does_not_leak(path):
    x = x_of(2, 3)
    base = x * 1
    view = base[0]
    view.mul_(2)
    watched = dies(base, view, base.grad_fn)
    del base, view
    assert gone(watched)


def test_base_and_views_die_without_a_collector(path):
    x = x_of(2, 3)
    base = x * 1
    views = [base[0], base.t(), base.t()[0], base.detach(), base.data]
    views[0].mul_(2)
    assert views[2].grad_fn is not None
    watched = dies(base, base._storage, base.grad_fn, *views)
    del base, views
    assert gone(watched)


def test_base_lives_as_long_as_a_view():
    base = x_of(2, 3) * 1
    view = base[0]
    watched = dies(base)
    del base
    assert not gone(watched)
    del view
    assert gone(watched)


def test_regenerated_history_replaces_the_old_one(path):
    x = x_of(2, 3)
    base = x * 1
    view = base[0]
    watched = dies(view.grad_fn)
    base.mul_(2)
    view.grad_fn
    assert gone(watched)


def test_hooks_die_with_their_tensor():
    class Hook:
        def __call__(self, grad):
            pass

    hook = Hook()
    watched = dies(hook)
    x = x_of(3)
    y = x * 2
    x.register_hook(hook)
    y.register_hook(hook)
    y.grad_fn.register_hook(hook)
    x.register_post_accumulate_grad_hook(hook)
    del hook
    assert not gone(watched)
    del x, y
    assert gone(watched)


def test_retained_gradient_makes_no_cycle(path):
    x = x_of(2, 3)
    y = x * 1
    y.retain_grad()
    view = y[0]
    view.retain_grad()
    view.mul_(2)
    y.sum().backward()
    watched = dies(y, view, y.grad_fn, y.grad)
    del y, view
    assert gone(watched)


def test_released_saved_tensors_are_freed_though_the_graph_is_held():
    x = x_of(3)
    w = x * 2
    y = x * w
    watched = dies(w)
    z = y.sum()
    del w
    assert not gone(watched)
    z.backward()
    assert gone(watched)
    assert y.grad_fn is not None


def test_gradient_with_a_graph_is_freed():
    x = x_of(3)
    (g,) = xgrad.autograd.grad((x * x * x).sum(), x, create_graph=True)
    (h,) = xgrad.autograd.grad(g.sum(), x)
    watched = dies(g, g.grad_fn, h)
    del g, h
    assert gone(watched)


def test_captured_gradients_leave_nothing_behind():
    x = x_of(3)
    y = x * 2
    z = (y * y).sum()
    xgrad.autograd.grad(z, (y, x))
    watched = dies(y, z, y.grad_fn)
    del y, z
    assert gone(watched)


def test_error_in_backward_leaves_nothing_behind():
    x = x_of(3)
    y = x * 2
    z = (y * y).sum()
    z.backward()
    watched = dies(y, z, y.grad_fn)
    try:
        z.backward()
    except RuntimeError:
        pass
    del y, z
    assert gone(watched)


def test_custom_function_and_its_context_are_freed():
    class Double(xgrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    y = Double.apply(x_of(3))
    watched = dies(y, y.grad_fn)
    del y
    assert gone(watched)


def test_saved_tensors_hooks_keep_only_what_they_packed():
    x = x_of(3)
    with xgrad.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(), lambda a: xgrad.from_numpy(a)):
        w = x * 2
        y = (x * w).sum()
    watched = dies(w)
    del w
    assert gone(watched)
    y.backward()


def test_gradient_that_cannot_be_added_leaves_the_old_one():
    p = leaf(xgrad, 3)
    (p * p).sum().backward()
    before = p.grad.numpy()
    p.data = xgrad.ones(4, dtype=p.dtype)
    with pytest.raises(RuntimeError, match=r"\[4\].*\[3\]"):
        (p * p).sum().backward()
    np.testing.assert_array_equal(p.grad.numpy(), before)
    p.grad = None
    (p * p).sum().backward()
    np.testing.assert_array_equal(p.grad.numpy(), 2)


def test_gradient_that_two_leaves_share_is_not_overwritten():
    """The gradients of a sum are one array: what is done to one leaf's must not show in the other's."""
    a, b = leaf(xgrad, 200, 200), leaf(xgrad, 200, 200)
    (a + b).sum().backward()
    held = np.asarray(a.grad)
    shard = a.grad.__jax_array__().addressable_shards[0].data
    del a
    for _ in range(2):
        (b * 1).sum().backward()
        b.grad.mul_(2)
    np.testing.assert_array_equal(held, 1)
    np.testing.assert_array_equal(np.asarray(shard), 1)


@pytest.mark.eager("lifetimes")
def test_the_copy_of_a_root_gradient_lives_until_its_node_has_run():
    """A gradient that is an array of JAX's, which others may hold, enters as a copy."""
    seen = []
    x = x_of(3)
    middle = x * 2
    y = middle.tanh()
    y.grad_fn.register_prehook(lambda grads: seen.append(weakref.ref(grads[0]._read())))
    middle.grad_fn.register_prehook(lambda _: seen.append(seen[0]() is None))
    gradient = xgrad.asarray(jnp.ones(3))
    y.backward(gradient)
    assert seen[1:] == [True]
    assert gradient.tolist() == [1, 1, 1]


def test_backward_leaves_the_callers_list_of_gradients():
    x = x_of(3)
    gradients = [xgrad.ones(3), xgrad.ones(3)]
    xgrad.autograd.backward([x * 2, x * 3], gradients)
    assert [g.tolist() for g in gradients] == [[1, 1, 1]] * 2
    assert x.grad.tolist() == [5, 5, 5]
