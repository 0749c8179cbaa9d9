"""Modes that hooks and Functions leave switched: each node has those of its backward, and the caller gets his back."""

import pytest
import torch

import xgrad
from xgrad.autograd.torch_c_names import _top_saved_tensors_default_hooks

from ..oracle import outcome, same

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def hooks_are_on(T):
    if T is torch:
        return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
    return _top_saved_tensors_default_hooks(False) is not None


def modes(T):
    """All that a block may switch, as the user sees it."""
    try:
        with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            allowed = "allowed"
    except RuntimeError as error:
        allowed = str(error)
    return {
        "hooks": hooks_are_on(T),
        "allowed": allowed,
        "grad": T.is_grad_enabled(),
        "inference": T.is_inference_mode_enabled(),
        "autocast": T.is_autocast_enabled("cpu"),
        "forward": T.autograd.forward_ad._is_fwd_grad_enabled(),
        "recorded": (T.ones(2, requires_grad=True) * 2).requires_grad,
    }


BLOCKS = {
    "hooks": lambda T: T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "disabled": lambda T: T.autograd.graph.disable_saved_tensors_hooks("no"),
    "no_grad": lambda T: T.no_grad(),
    "enable_grad": lambda T: T.enable_grad(),
    "inference": lambda T: T.inference_mode(),
    "autocast": lambda T: T.autocast("cpu", T.bfloat16),
    "forward": lambda T: T.autograd.forward_ad._set_fwd_grad_enabled(False),
}
kept = []  # blocks that are entered for good; PyTorch's inference mode ends with its block


def enter(T, name):
    kept.append(BLOCKS[name](T))
    kept[-1].__enter__()


def in_tensor_hook(T, switch, x, seen):
    y = x * 2
    z = y.sin()
    z.register_hook(lambda grad: switch())
    z.register_hook(lambda grad: seen(T))
    y.register_hook(lambda grad: seen(T))
    return z


def in_node_hooks(T, switch, x, seen):
    y = x * 2
    z = y.sin()
    z.grad_fn.register_prehook(lambda grads: switch())
    z.grad_fn.register_hook(lambda *grads: seen(T))
    y.grad_fn.register_prehook(lambda grads: seen(T))
    y.grad_fn.register_hook(lambda *grads: switch())
    x.register_hook(lambda grad: seen(T))
    x.register_post_accumulate_grad_hook(lambda x: switch())
    return z


def in_function(T, switch, x, seen):
    class Double(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            switch()
            return grad * 2

    y = x * 2
    y.register_hook(lambda grad: seen(T))
    return Double.apply(y)


def in_unpack_hook(T, switch, x, seen):
    def unpack(value):
        switch()
        return value

    y = x * 2
    y.register_hook(lambda grad: seen(T))
    with T.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        return y.sin()


def in_inner_backward(T, switch, x, seen):
    def inner(grad):
        with T.enable_grad():
            y = T.ones(2, requires_grad=True) * 2
        y.register_hook(lambda grad: switch())
        y.sum().backward()
        seen(T)

    y = x * 2
    y.register_hook(inner)
    return y.sin()


def in_callback(T, switch, x, seen):
    y = x * 2
    y.register_hook(lambda grad: T.autograd.Variable._execution_engine.queue_callback(switch))
    return y


def in_what_fails(T, switch, x, seen):
    def fail(grad):
        switch()
        raise ValueError("failed")

    y = x * 2
    y.register_hook(fail)
    return y


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "place",
    [in_tensor_hook, in_node_hooks, in_function, in_unpack_hook, in_inner_backward, in_callback, in_what_fails],
)
def test_a_mode_that_is_left_switched_ends_with_its_node(place, compiled, create_graph):
    def program(T, name):
        def switch(*_):
            enter(T, name)

        seen, x = [], T.ones(3, requires_grad=True)
        y = place(T, switch, x, lambda T: seen.append(modes(T)))
        options = {"compiled": compiled} if T is xgrad else {}
        error = outcome(lambda T: y.sum().backward(create_graph=create_graph, **options), T)
        return seen, str(error), modes(T)

    for name in BLOCKS:
        if name != "inference" or not create_graph:  # where PyTorch fails
            same(program(xgrad, name), program(torch, name), name)


@pytest.mark.parametrize("name", BLOCKS)
def test_forward_leaves_recording_and_tangents_as_they_were(name):
    def program(T):
        class Double(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                enter(T, name)
                return x * 2

        Double.apply(T.ones(2, requires_grad=True))
        seen = modes(T)
        kept.pop().__exit__(None, None, None)
        T.set_grad_enabled(True)
        T.autograd.forward_ad._set_fwd_grad_enabled(True)
        return seen["grad"], seen["inference"], seen["forward"] or name == "inference", seen["recorded"], modes(T)

    same(program(xgrad), program(torch))


def test_a_dual_level_that_a_hook_entered_stays_and_one_that_forward_entered_carries_tangents():
    def program(T):
        fw = T.autograd.forward_ad

        class Enter(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                fw.enter_dual_level()
                return x * 2

        def tangent():
            found = fw.unpack_dual(fw.make_dual(T.ones(2), T.ones(2)) * 3).tangent
            fw.exit_dual_level()
            return found

        y = T.ones(2, requires_grad=True) * 2
        y.register_hook(lambda grad: [fw.enter_dual_level(), None][1])
        y.sum().backward()
        first = tangent()
        Enter.apply(T.ones(2))
        return first, tangent()

    same(program(xgrad), program(torch))
