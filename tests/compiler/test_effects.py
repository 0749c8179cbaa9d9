"""What a compiled function does to tensors from outside is what it does eagerly: values, versions, grads, identity."""

import numpy as np
import pytest

import xgrad

from ..oracle import leaf
from .agreement import agree


def given(function, *shapes, grad=True):
    """A program that calls a function with tensors of these shapes."""
    shapes = shapes or ((3,), (3,))

    def program():
        args = [leaf(xgrad, *shape, seed=i).requires_grad_(grad) for i, shape in enumerate(shapes)]
        return function, args, None

    return program


def on_copies(function, *shapes):
    """As `given`, with tensors that require no grad and are no user's arrays."""

    def program():
        shapes_ = shapes or ((3,), (3,))
        return function, [leaf(xgrad, *shape, seed=i).detach() * 1 for i, shape in enumerate(shapes_)], None

    return program


def backward_inside(x, w):
    loss = (x * w).tanh().sum()
    loss.backward()
    return loss.detach()


def backward_through_views(x, w):
    y = x * 1
    y[0].mul_(w[1])
    y[1:].add_(w[:2])
    (y * y).sum().backward()
    return y.detach()


def grads_set_to_none(x, w):
    x.grad = None
    (x * w).sum().backward()
    return x.grad


def grad_assigned(x, w):
    x.grad = (w * 2).detach()
    (x * w).sum().backward()


def grad_changed_in_place(x, w):
    (x * w).sum().backward()
    x.grad.mul_(2)
    w.grad.zero_()
    return w.grad


def grad_of_returned(x, w):
    y = (x * 2).detach().requires_grad_()
    (y * w).sum().backward()
    return y, y.grad


def several_backwards(x, w):
    y = x * w
    y.sum().backward(retain_graph=True)
    (y * y).sum().backward()
    return xgrad.autograd.grad((x * x).sum(), x)


def create_graph(x, w):
    (g,) = xgrad.autograd.grad((x**3 * w).sum(), x, create_graph=True)
    (g * g).sum().backward()
    return g.detach()


def retained(x, w):
    y = x * w
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad


def backward_with_inputs(x, w):
    (x * w).sum().backward(inputs=[w])
    return w.grad


def compiled_backward_inside(x, w):
    with xgrad.autograd.compiled_backward():
        (x * w).tanh().sum().backward()


BACKWARD = [
    backward_inside, backward_through_views, grads_set_to_none, grad_assigned, grad_changed_in_place, grad_of_returned,
    several_backwards, create_graph, retained, backward_with_inputs, compiled_backward_inside,
]  # fmt: skip


@pytest.mark.one_in(12)
@pytest.mark.parametrize("function", BACKWARD, ids=lambda f: f.__name__)
def test_gradients_arrive_as_in_eager(function, path):
    """The second call finds a `.grad` where the first found none, and is traced anew."""
    agree(given(function), traces=2)


def test_a_grad_that_is_there_is_accumulated_into_in_place():
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    step = xgrad.compile(backward_inside)
    step(x, w)
    grad, version = x.grad, x.grad._version
    once = grad.numpy().copy()
    step(x, w)
    step(x, w)
    assert x.grad is grad
    assert grad._version == version + 2
    np.testing.assert_allclose(grad.numpy(), 3 * once)


# -- in place ----------------------------------------------------------------------------------------------------------


def on_arguments(x, w):
    x.add_(w).mul_(2)
    return x.sum()


def through_views(x, w):
    x[0] = 1
    x[1:].mul_(w[1:])
    x.view(3, 1).t()[0, 2:].sub_(3)
    return x


def the_base_then_the_view(x, w):
    v = x[1:]
    x.mul_(2)
    v.add_(1)
    return v, x


def under_no_grad(x, w):
    with xgrad.no_grad():
        x.add_(w)
    return x


def by_data(x, w):
    x.data.add_(w)
    x.data[1:].mul_(3)
    return x.data


def data_assigned(x, w):
    x.data = w * 2
    return x


def data_assigned_a_view(x, w):
    x.data = w[:]
    x.data.add_(1)


def data_of_each_other(x, w):
    x.data, w.data = w.data, x.data


def copied_over(x, w):
    x.copy_(w + 1)
    w.fill_(2)
    return w


def swapped(x, w):
    old = x.clone()
    x.copy_(w)
    w.copy_(old)


def the_same_twice(x, w):
    return x, x, [x], {"x": x}, w


def views_of_arguments(x, w):
    v = x[1:]
    return v, v[0], x.view(3, 1), x.detach(), x.data, w.t()


def views_of_what_is_made(x, w):
    y = x + w
    v = y[1:]
    v.add_(1)
    return v, y.detach()


def a_view_whose_base_stays(x, w):
    return (x + w)[1:]


def written_and_returned_as_it_was(x, w):
    old = x.clone()
    x.zero_()
    return old


def detached_and_changed(x, w):
    d = x.detach()
    d.add_(w)
    return d


def with_out(x, w):
    xgrad.add(x, w, out=w)
    return w


def expanded(x, w):
    return x.expand(2, 3), w.unsqueeze(0).expand(2, 3).sum()


INPLACE = [
    on_arguments, through_views, the_base_then_the_view, under_no_grad, by_data, data_assigned, data_assigned_a_view,
    copied_over, swapped, the_same_twice, views_of_arguments, views_of_what_is_made,
    a_view_whose_base_stays, written_and_returned_as_it_was, detached_and_changed, with_out, expanded,
]  # fmt: skip


@pytest.mark.one_in(4)
@pytest.mark.parametrize("donate", [True, False])
@pytest.mark.parametrize("function", INPLACE, ids=lambda f: f.__name__)
def test_what_is_written_without_grad_is_as_in_eager(function, donate, path):
    traces = 2 if function is data_assigned_a_view else 1  # x and w share a storage from then on
    agree(on_copies(function), traces=traces, donate=donate)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("function", [under_no_grad, by_data, views_of_arguments, views_of_what_is_made, expanded])
def test_what_is_written_of_leaves_is_as_in_eager(function, path):
    agree(given(function))


def test_data_of_two_tensors_is_exchanged():
    agree(on_copies(data_of_each_other))


def recorded(x, w):
    y = x * 1
    y.mul_(w)
    y[1:].tanh_()
    return y


@pytest.mark.parametrize("donate", [True, False])
def test_an_argument_that_is_written_gets_its_history(donate):
    def program():
        w, y = leaf(xgrad, 3), xgrad.zeros(3, dtype=xgrad.float64)

        def function():
            y.copy_(w)
            y[1:].mul_(w[1:])

        return function, [], {"w": w, "y": y}

    eager, _, watched = program()
    eager()
    watched["y"].sum().backward()
    function, _, mine = program()
    xgrad.compile(function, donate=donate)()
    assert mine["y"].requires_grad
    assert not mine["y"].is_leaf
    mine["y"].sum().backward()
    np.testing.assert_allclose(mine["w"].grad.numpy(), watched["w"].grad.numpy())


def test_views_from_outside_are_written_and_see_what_is_written():
    def program():
        base = leaf(xgrad, 3, 3).detach() * 1
        row, column, alias = base[0], base.t()[1], base.detach()

        def function(w):
            row.mul_(w)
            base.add_(1)
            column.sub_(w)
            return alias.sum(), column

        return function, [leaf(xgrad, 3).detach()], {"base": base, "row": row, "column": column, "alias": alias}

    agree(program)


def test_only_a_view_is_known_to_the_function_and_its_base_sees_it():
    def program():
        base = leaf(xgrad, 3, 3).detach() * 1
        return (lambda v: v.mul_(2)), [base[1]], {"base": base, "other": base[1, 2]}

    agree(program)


def test_flags_change():
    def program():
        x, w = leaf(xgrad, 3).detach() * 1, leaf(xgrad, 3, seed=1)

        def function():
            x.requires_grad_()
            w.requires_grad_(False)
            (x * w).sum().backward()
            x.requires_grad_(False)

        return function, [], {"x": x, "w": w}

    agree(program, traces=2)  # before the first w requires grad, and x has no grad


def test_detach_in_place_of_an_argument():
    def program():
        x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
        y = x * w

        def function():
            y.detach_()
            y.add_(1)
            return y

        return function, [], {"y": y, "x": x}

    agree(program, traces=2)  # y is a leaf from then on


def test_a_grad_that_two_leaves_share_is_one_tensor():
    def program():
        x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
        x.grad = w.grad = xgrad.zeros(3, dtype=xgrad.float64)
        return backward_inside, [x, w], None

    agree(program)


def test_grads_that_are_views_of_one_buffer():
    def program():
        x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
        flat = xgrad.zeros(6, dtype=xgrad.float64)
        x.grad, w.grad = flat[:3], flat[3:]
        return backward_inside, [x, w], {"flat": flat}

    agree(program)


def test_a_grad_that_is_read_and_put_elsewhere():
    def program():
        x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
        x.grad = xgrad.ones(3, dtype=xgrad.float64)

        def function():
            w.grad = x.grad
            x.grad = None

        return function, [], {"x": x, "w": w}

    agree(program, calls=1)


def test_a_parameter_is_updated_where_it_is():
    def program():
        w = xgrad.nn.Parameter(leaf(xgrad, 3).detach() * 1)

        def function(x):
            w.grad = None
            loss = ((w * x) ** 2).sum()
            loss.backward()
            with xgrad.no_grad():
                w.sub_(w.grad, alpha=0.1)
            return loss.detach(), w

        return function, [leaf(xgrad, 3, seed=1).detach()], {"w": w}

    agree(program)


def test_an_empty_tensor_and_numbers_of_all_dtypes():
    def program():
        args = [
            xgrad.zeros(0),
            xgrad.tensor(True),
            xgrad.tensor(3),
            xgrad.tensor(1j),
            xgrad.tensor(1, dtype=xgrad.bfloat16),
        ]

        def function(a, b, c, d, e):
            c.add_(1)
            d.mul_(2)
            e.add_(1)
            b.logical_not_()
            return a.sum(), b, c + d, e.float(), a

        return function, args, None

    agree(program)
