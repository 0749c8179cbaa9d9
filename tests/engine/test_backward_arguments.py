"""The arguments of `backward` and `grad`: what they accept, refuse and do, as in PyTorch."""

import warnings
from collections import OrderedDict
from types import MappingProxyType

import pytest
import torch

import xgrad
import xgrad.autograd.backward

from ..oracle import array, as_torch, data, leaf, same, same_error


def tanh_product(T, n=2):
    """A small graph with a leaf in two places and one that is not differentiated."""
    x, w = leaf(T, 3), leaf(T, 3, seed=1)
    y = x * w
    return x, w, y, (y.tanh() * x).sum()


def edge(T, tensor):
    return T.autograd.graph.get_gradient_edge(tensor)


# -- backward ----------------------------------------------------------------------------------------------------------


def test_gradient_accumulates_in_leaves():
    def program(T):
        x, w, y, z = tanh_product(T)
        z.backward(retain_graph=True)
        z.backward()
        return x.grad, w.grad, y.requires_grad, y.is_leaf

    as_torch(program)


def test_accumulation_keeps_the_gradient_object_and_raises_its_version():
    def program(T):
        x = leaf(T, 3)
        (x * 3).sum().backward()
        first, alias = x.grad, x.grad.detach()
        found = [first._version]
        (x * 2).sum().backward()
        return x.grad is first, alias, found, first._version, x.grad

    as_torch(program)


def test_accumulation_into_a_gradient_that_has_views_shows_in_them():
    def program(T):
        x = leaf(T, 2, 3)
        (x * x).sum().backward()
        row = x.grad[0]
        (x * 2).sum().backward()
        return row, x.grad

    as_torch(program)


def test_accumulation_with_create_graph_makes_a_new_gradient():
    def program(T):
        x = leaf(T, 3)
        (x * x).sum().backward()
        first = x.grad
        (x * x * x).sum().backward(create_graph=True)
        return x.grad is first, first, x.grad, x.grad.requires_grad, T.autograd.grad(x.grad.sum(), x)

    as_torch(program)


def test_gradient_given_by_the_user_is_accumulated_into():
    def program(T):
        x = leaf(T, 3)
        x.grad = mine = data(T, (3,), 5)
        (x * 2).sum().backward()
        return mine, x.grad is mine, mine._version

    as_torch(program)


def test_several_roots_with_gradients():
    def program(T):
        x, w, y, z = tanh_product(T)
        T.autograd.backward([y, z], [data(T, (3,), 2), None])
        return x.grad, w.grad

    as_torch(program)


def test_a_root_may_be_given_twice_and_may_be_a_leaf():
    def program(T):
        x = leaf(T, 3)
        g = data(T, (3,), 2)
        T.autograd.backward([x, x, x * 2], [g, g, g])
        return x.grad

    as_torch(program)


def test_broadcast_root_gradient_is_refused():
    def program(T):
        x = leaf(T, 3)
        (x * 2).backward(data(T, (2,)))

    same_error(program, r"\[2\]")


def test_root_gradient_is_not_changed():
    def program(T):
        x, g = leaf(T, 3), data(T, (3,), 2)
        y = x * 1
        y.backward(g)
        x.grad.mul_(100)
        return g, g._version

    as_torch(program)


def test_root_gradient_that_becomes_the_leafs_is_copied():
    def program(T):
        x, g = leaf(T, 3), data(T, (3,), 2)
        x.backward(g)
        x.backward(g)
        return g, x.grad

    as_torch(program)


def test_one_gradient_that_reaches_two_leaves_is_not_shared():
    def program(T):
        a, b = leaf(T, 3), leaf(T, 3, seed=1)
        (a + b).sum().backward()
        a.grad.mul_(7)
        return a.grad, b.grad

    as_torch(program)


def test_inputs_are_the_only_ones_that_accumulate():
    def program(T):
        x, w, y, z = tanh_product(T)
        z.backward(inputs=[w], retain_graph=True)
        first = x.grad, w.grad.clone()
        z.backward(inputs=y)
        return first, x.grad, w.grad, y.grad

    as_torch(program)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda T, x, z: z.backward(inputs=[]), r"`inputs` argument to `backward\(\)` cannot be empty"),
        (lambda T, x, z: T.autograd.grad(z, []), r"`inputs` argument to `grad\(\)` cannot be empty"),
        (lambda T, x, z: T.autograd.grad(z, None), "not iterable"),
        (lambda T, x, z: T.autograd.grad(z, [3]), "all inputs have to be Tensors or GradientEdges, but got int"),
        (lambda T, x, z: z.backward(inputs=[None]), "all inputs have to be Tensors or GradientEdges, but got NoneType"),
        (lambda T, x, z: z.backward(inputs=[data(T, (3,))]), "requires_grad=False"),
        (lambda T, x, z: z.backward(inputs=MappingProxyType({"x": x})), "must be a dict, not mappingproxy"),
        (lambda T, x, z: T.autograd.grad(z, OrderedDict(x=x)), "must be a dict, not OrderedDict"),
        (lambda T, x, z: (x * x).backward(), "only for scalar outputs"),
        (lambda T, x, z: T.autograd.backward(edge(T, x * x)), "only for scalar outputs"),
        (lambda T, x, z: T.autograd.backward(edge(T, x * x), data(T, (2,))), "Mismatch in shape"),
        (lambda T, x, z: (x * (1 + 2j)).sum().backward(), "only for real scalar outputs"),
        (lambda T, x, z: (x * x).backward(T.ones(3, dtype=T.complex128)), "required to have the same dtype"),
        (lambda T, x, z: data(T, ()).backward(), "element 0 of tensors does not require grad"),
        (lambda T, x, z: T.autograd.backward([z, data(T, ())]), "element 1 of tensors does not require grad"),
        (lambda T, x, z: x.argmax().backward(), "does not require grad"),
        (lambda T, x, z: T.autograd.grad(z, data(T, (3,)), allow_unused=True), "does not require grad"),
        (lambda T, x, z: T.autograd.grad(z, leaf(T, 3)), "not have been used"),
        (lambda T, x, z: T.autograd.backward([z, z], [None]), "got 2 tensors and 1 gradients"),
        (lambda T, x, z: T.autograd.grad([z, z], x, data(T, ())), "got 2 tensors and 1 gradients"),
        (lambda T, x, z: T.autograd.grad(z, x, materialize_grads=True, allow_unused=False), "materialize_grads"),
        (
            lambda T, x, z: T.autograd.grad(z, edge(T, leaf(T, 3) * 1), materialize_grads=True),
            "materialize_grads cannot be used when the given input is a GradientEdge",
        ),
        (lambda T, x, z: z.backward([1.0]), "gradients can be either Tensors or None, but got float"),
        (lambda T, x, z: (x * x).backward([1.0, 2.0, 3.0]), "gradients can be either Tensors or None, but got float"),
        (lambda T, x, z: z.backward(3.0), "float"),
        (lambda T, x, z: T.autograd.backward(3), "int"),
        (lambda T, x, z: z.backward(other=1), "unexpected keyword argument"),
    ],
)
def test_refused(call, match):
    def program(T):
        x = leaf(T, 3)
        call(T, x, (x * x).sum())

    same_error(program, match)


# -- retain_graph ------------------------------------------------------------------------------------------------------


def test_second_backward_needs_retain_graph():
    def program(T):
        _, _, _, z = tanh_product(T)
        z.backward()
        z.backward()

    assert isinstance(same_error(program, "backward through the graph a second time"), xgrad.errors.FreedGraphError)


def test_graph_without_saved_tensors_runs_again():
    def program(T):
        x = leaf(T, 3)
        y = (x + 1).sum()
        y.backward()
        y.backward()
        return x.grad

    as_torch(program)


def test_create_graph_retains_and_retain_graph_can_say_otherwise():
    def program(T):
        x = leaf(T, 3)
        z = (x * x * x).sum()
        (g,) = T.autograd.grad(z, x, create_graph=True)
        first = T.autograd.grad(z, x)
        return g, first, T.autograd.grad((x * x).sum(), x, create_graph=True, retain_graph=False)

    as_torch(program)


def test_half_of_a_graph_can_be_released_while_the_other_runs():
    def program(T):
        x = leaf(T, 3)
        y = x.tanh()
        a, b = (y * y).sum(), (y + 1).sum()
        a.backward(retain_graph=True)
        b.backward()
        return x.grad

    as_torch(program)


# -- grad --------------------------------------------------------------------------------------------------------------


def test_grad_touches_no_leaf():
    def program(T):
        x, w, y, z = tanh_product(T)
        return T.autograd.grad(z, (w, y, x)), x.grad, w.grad

    as_torch(program)


def test_grad_of_an_output_itself_and_of_one_given_twice():
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        z = (y * y).sum()
        return T.autograd.grad(z, (z, y, y, x))

    as_torch(program)


def test_unused_inputs():
    def program(T):
        x, other = leaf(T, 3), leaf(T, 2, seed=1)
        z = (x * x).sum()
        grad = T.autograd.grad
        return (
            grad(z, (x, other), allow_unused=True, retain_graph=True),
            grad(z, (x, other), materialize_grads=True),
        )

    as_torch(program)


def test_grad_outputs_weigh_several_outputs():
    def program(T):
        x = leaf(T, 3)
        y, z = x * 2, x.tanh()
        return T.autograd.grad((y, z), x, (data(T, (3,), 1), data(T, (3,), 2)))

    as_torch(program)


def test_higher_orders():
    def program(T):
        x = leaf(T, 3)
        found, y = [], (x * x * x * x * x).sum()
        for _ in range(4):
            (g,) = T.autograd.grad(y, x, create_graph=True)
            found.append(g)
            y = (g * g).sum() * 0.01
        return found

    as_torch(program)


def test_create_graph_skips_what_is_not_asked_for():
    """The gradient of a weight that nobody asked for is not computed: its node sees no request."""
    x, w = leaf(xgrad, 3), leaf(xgrad, 3, seed=1)
    y = x * w
    asked = []
    node = type(y.grad_fn)
    apply = node.apply

    def spy(self, grads, needs, arithmetic):
        asked.append(needs)
        return apply(self, grads, needs, arithmetic)

    node.apply = spy
    try:
        xgrad.autograd.grad(y.sum(), x, create_graph=True)
    finally:
        del node.apply
    assert asked == [0b01]


def test_gradient_edges_as_inputs_and_outputs():
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        z = (y * y).sum()
        edge = T.autograd.graph.get_gradient_edge
        into, out = edge(y), edge(z)
        return (
            T.autograd.grad(z, (into, edge(x)), retain_graph=True),
            T.autograd.grad(out, x, data(T, (), 3), retain_graph=True),
            into.node is y.grad_fn,
            into.output_nr,
            edge(x).node.name().rsplit("::")[-1],
        )

    as_torch(program)


def test_gradient_edge_needs_a_gradient():
    same_error(lambda T: T.autograd.graph.get_gradient_edge(data(T, (3,))), "gradient")


@pytest.mark.parametrize("create_graph", [False, True])
def test_batched_gradients(create_graph):
    def program(T):
        x = leaf(T, 3)
        y = x.tanh() * x
        eye = T.eye(3, dtype=T.float64)
        (jacobian,) = T.autograd.grad(y, x, eye, is_grads_batched=True, create_graph=create_graph)
        again = T.autograd.grad((jacobian * jacobian).sum(), x) if create_graph else ()
        return jacobian, again, x.grad

    as_torch(program)


def test_batched_gradients_through_writes_into_views(path):
    def program(T):
        x = leaf(T, 2, 3)
        base = x * 1
        base[0].mul_(data(T, (3,)))
        base.t()[1].tanh_()
        (jacobian,) = T.autograd.grad(base, x, data(T, (4, 2, 3), 2), is_grads_batched=True)
        return jacobian

    as_torch(program)


def test_gradient_does_not_alias_a_saved_value():
    """Steal or copy: what ends in `.grad` may be changed without harm to a retained graph."""

    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        z = (x * w).sum()
        z.backward(retain_graph=True)
        x.grad.zero_()
        z.backward()
        return x.grad, w.grad

    as_torch(program)


def test_zero_dimensional_and_empty_tensors():
    def program(T):
        x, e = leaf(T), leaf(T, 0, 3)
        (x * x + e.sum()).backward()
        return x.grad, e.grad

    as_torch(program)


def test_gradient_of_another_dtype_is_cast_to_the_leafs():
    def program(T):
        x = T.tensor([1.0, 2.0, 3.0], dtype=T.float32, requires_grad=True)
        w = data(T, (3,))
        (x * w).sum().backward()
        return x.grad, (x * w).dtype == T.float64

    as_torch(program, rtol=1e-6)


def test_integer_results_have_no_gradient():
    def program(T):
        x = leaf(T, 3)
        return x.argmax().requires_grad, (x > 0).requires_grad, x.sort()[1].requires_grad, x.sort()[0].requires_grad

    as_torch(program)


def test_modes():
    def program(T):
        x, found = leaf(T, 3), []
        with T.no_grad():
            found.append((x * 2).requires_grad)
            with T.enable_grad():
                found.append((x * 2).requires_grad)
        with T.set_grad_enabled(False):
            found.append(T.is_grad_enabled())
        found.append(T.is_grad_enabled())

        @T.no_grad()
        def function():
            return (x * 2).requires_grad

        def steps():
            yield T.is_grad_enabled()
            yield T.is_grad_enabled()

        found.append(function())
        walk = T.no_grad()(steps)()
        found += [next(walk), T.is_grad_enabled(), next(walk)]
        return found

    as_torch(program)


def test_modes_are_restored_after_an_error():
    def program(T):
        try:
            with T.no_grad():
                raise KeyError
        except KeyError:
            pass
        return T.is_grad_enabled()

    as_torch(program)


def test_backward_keeps_the_callers_mode():
    def program(T):
        x = leaf(T, 3)
        y = (x * x).sum()
        with T.no_grad():
            y.backward()
            inside = T.is_grad_enabled()
        return inside, x.grad.requires_grad, x.grad

    as_torch(program)


def test_leaf_gradient_assignment_is_checked():
    def program(T):
        x = leaf(T, 3)
        x.grad = data(T, (2,))

    assert "[2]" in str(same_error(program, "size"))

    def program(T):
        x = leaf(T, 3)
        x.grad = 3

    same_error(program, "Tensor")
    x = leaf(xgrad, 3)
    x.grad = xgrad.ones(3, dtype=xgrad.float64)
    del x.grad
    assert x.grad is None
    same(array(data(xgrad, (3,))), data(torch, (3,)))


@pytest.mark.parametrize("shapes", [((3,), (1, 3)), ((), (1,)), ((3,), (2, 3)), ((1,), ())])
def test_root_gradient_of_another_shape_is_refused(shapes):
    def program(T):
        x = leaf(T, *shapes[0])
        (x * 2).backward(T.ones(shapes[1], dtype=T.float64))

    same_error(program, "Mismatch in shape")


def test_inputs_may_be_any_iterable_or_a_dict():
    def program(T):
        named = {"a": leaf(T, 3), "b": leaf(T, 3, seed=1)}
        loss = (named["a"] * named["b"]).sum()
        by_name = T.autograd.grad(loss, named, retain_graph=True)
        T.autograd.backward(loss, inputs=named.values(), retain_graph=True)
        return [
            T.autograd.grad(loss, (x for x in named.values()), retain_graph=True),
            T.autograd.grad(loss, named.values(), retain_graph=True),
            by_name,
            [x.grad for x in named.values()],
        ]

    as_torch(program)


def test_only_inputs_is_accepted_with_a_warning():
    def program(T):
        x = leaf(T, 3)
        with pytest.warns(FutureWarning, match="only_inputs argument is deprecated"):
            return T.autograd.grad((x * x).sum(), x, None, None, False, False)

    as_torch(program)


def test_what_is_no_tensor_is_no_root():
    for roots in (3, [None], "ab"):
        with pytest.raises(TypeError, match=r"Expected output to be a xgrad\.Tensor"):
            xgrad.autograd.backward(roots)
    with pytest.raises(RuntimeError, match="got 1 tensors and 2 gradients"):  # torch leaves the second unread
        xgrad.autograd.backward([leaf(xgrad)], [data(xgrad, ()), data(xgrad, ())])


def test_old_names_and_places_of_arguments():
    def program(T):
        x = leaf(T, 3)
        with pytest.warns(FutureWarning, match="`grad_variables` is deprecated"):
            T.autograd.backward(x * x, grad_variables=data(T, (3,)))
        T.autograd.backward(x * x, data(T, (3,), 2), True, False, None, [x])
        (x * x).backward(data(T, (3,), 3), True, False, [x])
        return x.grad, T.autograd.grad(x * x, x, data(T, (3,)), True, False, True, False, False, False)

    as_torch(program)

    def both(T):
        with pytest.warns(FutureWarning, match="`grad_variables` is deprecated"):
            T.autograd.backward(leaf(T), data(T, ()), grad_variables=data(T, ()))

    same_error(both, "`grad_tensors` and `grad_variables` .* both passed")


def test_edges_as_roots_and_inputs_of_both():
    def program(T):
        x, one = leaf(T, 3), leaf(T, 1, 1)
        y = x * x
        T.autograd.backward([edge(T, y), (x * 3).sum(), edge(T, one * one)], [data(T, (3,)), None, None], True)
        z = y.sum()
        z.backward(inputs=[edge(T, x)], retain_graph=True)
        unused = T.autograd.grad(z, [edge(T, leaf(T, 3) * 1)], allow_unused=True, retain_graph=True)
        both = T.autograd.grad(edge(T, y), [edge(T, y), edge(T, x), y, x], data(T, (3,), 2))
        return x.grad, one.grad, unused, both

    as_torch(program)


def test_inputs_given_twice_as_a_dict_or_as_views():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 2, 3, seed=1)
        y, view = x * 2, w[0]
        z = (y * y).sum() + (view * view).sum()
        z.backward(inputs={"y": y, "x": x, "view": view}, retain_graph=True)
        found = [y.grad, x.grad, view.grad, w.grad, y.retains_grad]
        z.backward(inputs=[y, y, x], retain_graph=True)
        return found, y.grad, x.grad, T.autograd.grad(z, (view, w, view, x))

    as_torch(program)


def test_create_graph_in_backward_warns_once_of_a_cycle(monkeypatch):
    monkeypatch.setattr(xgrad.autograd.backward.__globals__["_cycle"], "warned", False)
    with pytest.warns(UserWarning, match="will create a reference cycle between the parameter and its gradient"):
        leaf(xgrad).backward(create_graph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leaf(xgrad).backward(create_graph=True)
        xgrad.autograd.grad(leaf(xgrad) * 1, leaf(xgrad), create_graph=True, allow_unused=True)


def test_leaf_that_requires_grad_no_more_gets_none():
    def program(T):
        seen, x = [], leaf(T, 3)
        y = (x * 2).sum()
        x.register_hook(lambda g: seen.append(g))
        x.requires_grad_(False)
        x.mul_(2)
        y.backward()
        return x.grad, seen

    as_torch(program)


def test_second_derivative_through_a_saved_tensor_that_was_detached_in_place_is_refused():
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        z = (y * y).sum()
        y.detach_()
        T.autograd.grad(z, x, create_graph=True)

    same_error(program, "a saved tensor that has been detached in-place")


def test_gradient_through_a_saved_tensor_that_was_detached_in_place():
    """torch refuses this as well; the value is the right one."""
    x = leaf(xgrad, 3)
    y = x * 2
    z = (y * y).sum()
    y.detach_()
    same(xgrad.autograd.grad(z, x)[0], 8 * torch.tensor(array(x)))


def test_errors_in_hooks_leave_the_modes_and_the_graph_as_they_were():
    def program(T):
        def stop(grad):
            raise KeyError

        seen, x = [], leaf(T, 3)
        y = x * x
        handle = y.register_hook(stop)
        with T.no_grad():
            try:
                y.sum().backward(T.ones((), dtype=T.float64))
            except (KeyError, RuntimeError):
                seen.append(T.is_grad_enabled())
        z = y.exp().sum()
        try:
            z.backward(create_graph=True)
        except KeyError:
            seen.append((T.is_grad_enabled(), x.grad))
        handle.remove()
        (x * x).sum().backward()
        return seen, x.grad

    as_torch(program)


def test_part_of_a_graph_is_released():
    def program(T):
        x = leaf(T, 3)
        h = x.exp()
        z = (h * h).sum()
        first = T.autograd.grad(z, h)
        found = [first, T.autograd.grad(h.sum(), x, retain_graph=True)]
        try:
            T.autograd.grad(z, x)
        except RuntimeError as error:
            found.append("a second time" in str(error))
        return found, T.autograd.grad(h.sum(), x)

    as_torch(program)


def test_zeros_for_an_input_that_is_not_reached_require_grad_where_a_graph_is_created():
    def program(T):
        found = []
        for create_graph in (False, True):
            x, unused = leaf(T, 3), leaf(T, 2)
            for wanted in (unused, unused * 2):
                zeros = T.autograd.grad((x * x).sum(), [x, wanted], create_graph=create_graph, materialize_grads=True)[
                    1
                ]
                found += [zeros, zeros.requires_grad, zeros.is_leaf]
            if create_graph:
                found += T.autograd.grad(zeros.sum(), unused, allow_unused=True)
                batch = {"grad_outputs": T.ones(4, 3, dtype=T.float64), "is_grads_batched": True}
                grads = T.autograd.grad(x * x, [x, unused], create_graph=True, materialize_grads=True, **batch)
                found += [grads[0], grads[1], grads[1].requires_grad]
        return found

    as_torch(program)
