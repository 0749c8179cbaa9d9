"""Small programs at the edges of hooks, saved tensors, views and tangents: all that they note is as PyTorch's."""

import pytest
import torch

import xgrad

from ..oracle import PATHS, leaf, outcome, same, tracking

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def hooks_through_views_and_writes(T, note):
    def shape(name):
        return lambda grad: note(name, tuple(grad.shape))

    x = leaf(T, 2, 3)
    y = x * 2
    y.register_hook(shape("before"))
    y.t_()
    v = y[0]
    v.register_hook(shape("view"))
    y.register_hook(shape("moved"))
    v.mul_(3)
    y.register_hook(shape("written"))
    y.sum().backward()
    note(x.grad)


def hooks_through_assignments(T, note):
    x = leaf(T, 3)
    y = x * 1
    y.register_hook(lambda grad: note(1, grad))
    y[0] = 5
    y.register_hook(lambda grad: note(2, grad))
    y.unsqueeze_(0)
    y.register_hook(lambda grad: note(3, grad))
    y[0, 1] = 7
    y.register_hook(lambda grad: note(4, grad))
    y.sum().backward()
    note(x.grad)


def a_function_that_writes_a_moved_tensor(T, note):
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = leaf(T, 2, 3)
    y = x * 1
    y.register_hook(lambda grad: note("first", tuple(grad.shape)))
    y.t_()
    Double.apply(y)
    y.register_hook(lambda grad: note("second", tuple(grad.shape)))
    y.sum().backward()
    note(x.grad)


def a_hook_that_removes_and_adds_others(T, note):
    x = leaf(T, 3)
    y, handles = x * 2, []

    def first(grad):
        note("first")
        handles[1].remove()

    def third(grad):
        note("third")
        y.register_hook(lambda grad: note("fourth"))

    handles += [y.register_hook(first), y.register_hook(lambda grad: note("second")), y.register_hook(third)]
    y.sum().backward(retain_graph=True)
    y.sum().backward()


def undefined_gradients(T, note):
    class Nothing(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return None

    x = leaf(T, 3)
    y = x * 2
    y.register_hook(lambda grad: note("tensor", grad))
    y.retain_grad()
    x.register_hook(lambda grad: note("leaf", grad))
    x.register_post_accumulate_grad_hook(lambda x: note("accumulated", x.grad))
    Nothing.apply(y).sum().backward()
    note(x.grad, y.grad)


def all_that_a_leaf_calls(T, note):
    x = leaf(T, 3)
    y = x * 2
    accumulator = y.grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda inputs, outputs: note("post", outputs[0].clone()))
    accumulator.register_prehook(lambda outputs: note("pre", outputs[0].clone()))
    x.register_hook(lambda grad: note("tensor", grad.clone()))
    x.register_post_accumulate_grad_hook(lambda x: note("accumulated", x.grad.clone()))
    y.sum().backward()
    (x * 3).sum().backward()


def a_step_as_soon_as_the_gradient_is_there(T, note):
    def step(x):
        with T.no_grad():
            x.sub_(x.grad * 0.5)
        x.grad = None

    x = leaf(T, 3)
    x.register_post_accumulate_grad_hook(step)
    (x * 2).sum().backward()
    note(x, x.grad, x._version)
    (x * x).sum().backward()
    note(x)


def hooks_where_a_gradient_is_captured(T, note):
    x = leaf(T, 3)
    y = x * 2
    y.register_hook(lambda grad: grad * 10)
    x.register_hook(lambda grad: grad + 1)
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 100,))
    z = (y * y).sum()
    note(T.autograd.grad(z, [x, y], retain_graph=True))
    note(T.autograd.grad(z, [y], retain_graph=True))
    z.backward(inputs=[y])
    note(y.grad, y.retains_grad, x.grad)


def what_is_unpacked_and_how_often(T, note):
    def unpack(value):
        note("unpacked")
        return value

    x = leaf(T, 3)
    with T.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        y, z = x * T.ones(3), x.exp()
    note(y.grad_fn._saved_other, z.grad_fn._saved_result)
    (y + z).sum().backward(retain_graph=True)
    note(T.autograd.grad(z.sum(), x))


def a_leaf_that_an_unpack_hook_gives(T, note):
    x, given = leaf(T, 3), leaf(T, 3, seed=1)
    with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: given):
        y, z = x * T.ones(3), x * x
    (grad,) = T.autograd.grad(y.sum(), x, create_graph=True)
    note(grad, grad.requires_grad)
    (grad,) = T.autograd.grad(z.sum(), x, create_graph=True)
    note(grad, T.autograd.grad(grad.sum(), [x, given], allow_unused=True))


def as_strided_in_place_and_then_a_write(T, note):
    x = leaf(T, 6)
    y = x * 1
    y.as_strided_((2, 2), (1, 2), 1)
    y.mul_(3)
    (y * y).sum().backward()
    note(y, x.grad)
    y = x * 1
    v = y[1:5]
    v.as_strided_((2,), (1,), 2)
    v.mul_(3)
    (y * y).sum().backward()
    note(y, v, x.grad)


def tangents_through_moves(T, note):
    fw = T.autograd.forward_ad
    with fw.dual_level():
        x = T.arange(6.0).reshape(2, 3)
        y = fw.make_dual(x, x * 2) * 1
        v = y[0]
        y.t_()
        note(fw.unpack_dual(y).tangent)
        v.mul_(2)
        note(fw.unpack_dual(y).tangent, fw.unpack_dual(v).tangent)
        z = fw.make_dual(x, x * 2) * 1
        z.as_strided_((3,), (1,), 2)
        note(fw.unpack_dual(z).tangent)


def a_tangent_that_was_copied_and_is_written(T, note):
    fw = T.autograd.forward_ad
    with fw.dual_level():
        p, t = T.arange(4.0).reshape(2, 2).t(), T.ones(2, 2)
        dual = fw.make_dual(p, t)
        dual.mul_(3)
        note(t, p, fw.unpack_dual(dual).tangent)
        row = dual[0]
        row.add_(dual[1])
        note(fw.unpack_dual(dual).tangent, fw.unpack_dual(row).tangent)
        note(fw.unpack_dual(dual.as_strided((2,), (3,), 0)).tangent)


def a_backward_within_a_hook_that_fails(T, note):
    def fail(grad):
        raise ValueError("inner")

    def hook(grad):
        with T.enable_grad():
            z = T.ones(2, requires_grad=True) * 2
        z.register_hook(fail)
        z.sum().backward()

    x = leaf(T, 3)
    y = x * 2
    y.register_hook(hook)
    note(str(outcome(lambda T: y.sum().backward(), T)), T.is_grad_enabled())
    (x * 3).sum().backward()
    note(x.grad)


def versions(T, note):
    x = leaf(T, 3)
    y = x * 1
    v = y[0]
    v.add_(1)
    y.unsqueeze_(0)
    y[0] = 1
    note(y._version, v._version)
    y.data.zero_()
    note(y._version)
    y.detach().zero_()
    T.autograd.graph.increment_version(y)
    note(y._version)
    z = T.zeros(3)
    z.squeeze_()
    z.copy_(x.detach())
    T.add(z, z, out=z)
    z.swapaxes_(0, 0)
    note(z._version)


def resized_in_inference_mode_and_used(T, note):
    x = leaf(T, 3)
    with T.inference_mode():
        x.resize_(2)
    y = x * 2
    y.sum().backward()
    note(x.grad, y)
    z = leaf(T, 3) * 1
    with T.inference_mode():
        z.resize_(2)
    note(type(outcome(lambda T: z.sum().backward(), T)).__name__)


PROGRAMS = [
    hooks_through_views_and_writes, hooks_through_assignments, a_function_that_writes_a_moved_tensor,
    a_hook_that_removes_and_adds_others, undefined_gradients, all_that_a_leaf_calls,
    a_step_as_soon_as_the_gradient_is_there, hooks_where_a_gradient_is_captured, what_is_unpacked_and_how_often,
    a_leaf_that_an_unpack_hook_gives, as_strided_in_place_and_then_a_write, tangents_through_moves,
    a_tangent_that_was_copied_and_is_written, a_backward_within_a_hook_that_fails, versions,
    resized_in_inference_mode_and_used,
]  # fmt: skip


def noted(program, T):
    log = []

    def note(*values):
        log.append(values)

    program(T, note)
    return log


@pytest.mark.one_in(6)
@pytest.mark.parametrize("way", [*PATHS, "compiled"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_at_the_edges(program, way):
    with xgrad.autograd.compiled_backward() if way == "compiled" else tracking(way):
        ours = noted(program, xgrad)
    same(ours, noted(program, torch))


@pytest.mark.parametrize("program", [lambda b: 2 * b, lambda b: 1 + b, lambda b: b * 2, lambda b: True * b])
def test_a_reflected_operator_has_pytorchs_edges(program):
    def edges(T):
        y = program(T.ones(3, requires_grad=True).sin())
        return [(type(node).__name__, number) for node, number in y.grad_fn.next_functions]

    assert edges(xgrad) == edges(torch) == [("SinBackward0", 0), ("NoneType", 0)]
