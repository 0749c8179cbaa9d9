"""Which hooks run, how often, in which order and with what: as PyTorch's."""

import gc
import pickle
import weakref
from collections import OrderedDict

import pytest
import torch

import xgrad

from ..oracle import array, as_torch, data, leaf, same, same_error


class Log(list):
    """Notes what happens, as text and rounded sums."""

    def hook(self, name, result=lambda grad: None):
        def hook(grad):
            self.append((name, float(array(grad).sum())))
            return result(grad)

        return hook

    def node_hook(self, name):
        def hook(*grads):
            self.append((name, [tuple(g is None for g in side) for side in grads]))

        return hook


# -- order -------------------------------------------------------------------------------------------------------------


def test_order_on_a_non_leaf():
    """Tensor hooks → retain-grad → node pre-hooks → apply → node post-hooks, whatever the order of registration."""

    def program(T):
        log, x = Log(), leaf(T, 3)
        y = x * 2
        y.grad_fn.register_hook(log.node_hook("post"))
        y.grad_fn.register_prehook(log.node_hook("pre"))
        y.retain_grad()
        y.register_hook(log.hook("first", lambda grad: grad * 2))
        y.register_hook(lambda grad: log.append(("retained yet", y.grad is not None)))
        y.register_hook(log.hook("second", lambda grad: grad * 3))
        (y * y).sum().backward()
        return log, y.grad, x.grad

    as_torch(program)


def test_order_on_a_leaf():
    """Tensor hooks → accumulator pre-hooks → accumulate → post-accumulate hooks → accumulator post-hooks."""

    def program(T):
        log, x = Log(), leaf(T, 3)
        y = (x * 2).sum()
        accumulator = y.grad_fn.next_functions[0][0].next_functions[0][0]
        accumulator.register_hook(log.node_hook("post"))
        accumulator.register_prehook(log.node_hook("pre"))
        x.register_post_accumulate_grad_hook(lambda x: log.append(("accumulated", float(array(x.grad).sum()))))
        x.register_hook(log.hook("first", lambda grad: grad * 2))
        x.register_hook(lambda grad: log.append(("has grad", x.grad is not None)))
        y.backward()
        return log, x.grad

    as_torch(program)


def test_tensor_hooks_see_the_complete_gradient_once():
    def program(T):
        log, x = Log(), leaf(T, 3)
        y = x.tanh()
        y.register_hook(log.hook("y"))
        x.register_hook(log.hook("x"))
        (y * y + y * 2 + x).sum().backward()
        return log, x.grad

    as_torch(program)


def test_hooks_of_several_outputs_run_with_none_for_undefined_gradients():
    def program(T):
        log, x = [], leaf(T, 3, 2)
        a, b, c = x.unbind(0)
        for name, part in (("c", c), ("a", a), ("b", b)):  # they run in the order of registration
            part.register_hook(lambda grad, name=name: log.append((name, grad)))
        b.retain_grad()
        (a + c).sum().backward()
        return log, x.grad, b.grad

    as_torch(program)


def test_an_undefined_gradient_runs_all_hooks_on_its_way():
    def program(T):
        log, x = [], leaf(T, 3)
        y = x.sin()
        z = y * y
        z.grad_fn.register_prehook(lambda grads: (None,))
        y.register_hook(lambda grad: log.append(("y", grad)))
        y.grad_fn.register_hook(lambda *grads: log.append(("post", *grads)))
        x.register_hook(lambda grad: log.append(("x", grad)))
        x.register_post_accumulate_grad_hook(lambda x: log.append(("accumulated", x.grad)))
        z.sum().backward()
        return log, x.grad

    as_torch(program)


def test_an_undefined_gradient_cannot_be_replaced():
    def program(T):
        a, b = leaf(T, 2, 2).unbind(0)
        b.register_hook(lambda grad: a.detach())
        a.sum().backward()

    same_error(program, "can't replace a None gradient with a non-None value")


def test_later_operations_run_first():
    def program(T):
        log, x = Log(), leaf(T, 3)
        branches = [x * i for i in range(4)]
        for i, branch in enumerate(branches):
            branch.register_hook(log.hook(i))
        (branches[2] + branches[0] + branches[3] + branches[1]).sum().backward()
        return log

    as_torch(program)


def test_sequence_number_can_be_moved_ahead():
    order = []
    x = xgrad.ones(3, requires_grad=True)
    a, b = x * 2, x * 3
    a.register_hook(lambda grad: order.append("a"))
    b.register_hook(lambda grad: order.append("b"))
    a.grad_fn._set_sequence_nr(b.grad_fn._sequence_nr() + 1)
    (a * b).sum().backward()
    assert order == ["a", "b"]


# -- replacing, removing ----------------------------------------------------------------------------------------------


def test_each_kind_of_hook_replaces_the_gradient():
    def program(T):
        x, found = leaf(T, 3), []
        for kind in range(3):
            y = x * 2
            if kind == 0:
                y.register_hook(lambda grad: grad * 5)
            elif kind == 1:
                y.grad_fn.register_prehook(lambda grads: (grads[0] * 7,))
            else:
                y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * outputs[0], None))
            found.append(T.autograd.grad((y * y).sum(), x)[0])
        return found

    as_torch(program)


@pytest.mark.parametrize("kind", ["tensor", "post"])
def test_a_replacement_of_another_shape_is_refused(kind):
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        if kind == "tensor":
            y.register_hook(lambda grad: data(T, (4,)))
        else:
            y.grad_fn.register_hook(lambda inputs, outputs: (data(T, (4,)), None))
        y.sum().backward()

    error = same_error(program, "changed the size")
    assert "[4]" in str(error)
    assert "[3]" in str(error)


def test_a_replacement_that_is_no_tensor_is_refused():
    def program(T):
        x = leaf(T, 3)
        x.register_hook(lambda grad: "gradient")
        x.sum().backward()

    same_error(program, "str")


def test_wrong_number_of_replacements_is_refused():
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        y.grad_fn.register_hook(lambda inputs, outputs: (outputs[0],) * 5)
        y.sum().backward()

    same_error(program, "incorrect number of values")


def test_removed_hook_runs_no_more():
    def program(T):
        log, x = Log(), leaf(T, 3)
        keep, drop = x.register_hook(log.hook("keep")), x.register_hook(log.hook("drop"))
        x.sum().backward()
        drop.remove()
        drop.remove()
        x.sum().backward()
        with keep:
            x.sum().backward()
        x.sum().backward()
        return log

    as_torch(program)


def test_a_hook_that_removes_itself_runs_once_and_the_others_still_run():
    def program(T):
        log, x = Log(), leaf(T, 3)
        handles = []

        def once(grad):
            log.append("once")
            handles[0].remove()

        handles.append(x.register_hook(once))
        x.register_hook(log.hook("other"))
        x.sum().backward()
        x.sum().backward()
        return log

    as_torch(program)


def test_a_hook_that_raises_leaves_the_graph_usable():
    class StopError(Exception):
        pass

    def program(T):
        x = leaf(T, 3)
        y = x.tanh()

        def stop(grad):
            raise StopError

        handle = y.register_hook(stop)
        z = y.sum()
        with pytest.raises(StopError):
            z.backward(retain_graph=True)
        none = x.grad
        handle.remove()
        z.backward()
        return none, x.grad

    as_torch(program)


def test_register_hook_refuses_what_has_no_gradient_and_what_is_no_function():
    same_error(lambda T: data(T, (3,)).register_hook(print), "doesn't require gradient")
    with pytest.raises(TypeError, match="callable"):
        xgrad.ones(3, requires_grad=True).register_hook(3)


# -- in-place operations -----------------------------------------------------------------------------------------------


def test_tensor_hook_stays_with_the_value_before_an_inplace_operation():
    def program(T):
        log, x = Log(), leaf(T, 3)
        y = x * 2
        y.register_hook(log.hook("before"))
        y.mul_(3)
        y.register_hook(log.hook("after"))
        y.sum().backward()
        return log, x.grad

    as_torch(program)


@pytest.mark.parametrize("writes", [1, 3])
def test_retained_gradient_moves_with_an_inplace_operation(writes):
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        y.retain_grad()
        for _ in range(writes):
            y.mul_(3)
        y.sum().backward()
        return y.grad, x.grad, y.retains_grad

    as_torch(program)


def test_retained_gradient_of_base_and_view_move_with_a_write_through_the_view(path):
    def program(T):
        log, x = Log(), leaf(T, 2, 3)
        base = x * 1
        view = base[0]
        base.register_hook(log.hook("base before"))
        view.register_hook(log.hook("view before"))
        base.retain_grad()
        view.retain_grad()
        view.mul_(data(T, (3,)))
        base.register_hook(log.hook("base after"))
        (base * base).sum().backward()
        return log, base.grad, view.grad, x.grad

    as_torch(program)


def test_retained_gradient_of_a_view_that_is_used_after_the_write(path):
    def program(T):
        x = leaf(T, 2, 3)
        base = x * 1
        view = base[0]
        view.retain_grad()
        view.mul_(data(T, (3,)))
        (view * view).sum().backward()
        return view.grad, x.grad

    as_torch(program)


def test_retained_gradient_of_a_sibling_is_that_of_the_value_it_shows(path):
    def program(T):
        x = leaf(T, 2, 3)
        base = x * 1
        sibling = base[:, 1]
        sibling.retain_grad()
        base[0].mul_(data(T, (3,)))
        (sibling * 2).sum().backward()
        return sibling.grad, x.grad

    as_torch(program)


def test_retained_gradient_moves_with_an_inplace_view_operation(path):
    """PyTorch leaves it behind: `y.grad` then has another shape than `y`."""

    def program(T):
        x = leaf(T, 2, 3)
        y = x * 1
        y.retain_grad()
        y.t_()
        (y * data(T, (3, 2))).sum().backward()
        return y.grad if T is xgrad else y.grad.t(), x.grad

    as_torch(program)


def test_hook_registered_on_a_stale_view_belongs_to_its_new_history(path):
    def program(T):
        log, x = Log(), leaf(T, 2, 3)
        base = x * 1
        view = base[0]
        base.mul_(2)
        view.grad_fn  # torch 2.13 crashes in register_hook on a view that is stale still
        view.register_hook(log.hook("view"))
        (view * data(T, (3,))).sum().backward()
        return log, x.grad

    as_torch(program)


def test_retain_grad_twice_and_on_a_leaf_change_nothing():
    def program(T):
        x = leaf(T, 3)
        x.retain_grad()
        y = x * 2
        y.retain_grad()
        y.retain_grad()
        y.sum().backward()
        return x.grad, y.grad, x.retains_grad, y.retains_grad

    as_torch(program)


def test_retained_gradient_accumulates_and_may_be_reset():
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        y.retain_grad()
        z = (y * y).sum()
        z.backward(retain_graph=True)
        first = y.grad.clone()
        z.backward(retain_graph=True)
        second = y.grad.clone()
        y.grad = None
        z.backward()
        return first, second, y.grad

    as_torch(program)


def test_tensor_that_died_retains_nothing():
    def program(T):
        x = leaf(T, 3)
        y = x * 2
        y.retain_grad()
        z = (y * y).sum()
        del y
        gc.collect()
        z.backward()
        return x.grad

    as_torch(program)


# -- captures and inputs= ----------------------------------------------------------------------------------------------


def test_captured_tensor_runs_its_tensor_hooks_but_no_node_prehooks():
    def program(T):
        log, x = Log(), leaf(T, 3)
        y = x * 2
        y.register_hook(log.hook("y", lambda grad: grad * 10))
        y.grad_fn.register_prehook(log.node_hook("pre"))
        y.grad_fn.register_hook(log.node_hook("post"))
        y.retain_grad()
        return T.autograd.grad((y * y).sum(), y), log, y.grad

    as_torch(program)


def test_captured_leaf_runs_its_tensor_hooks_and_accumulates_nothing():
    def program(T):
        log, x = Log(), leaf(T, 3)
        x.register_hook(log.hook("x", lambda grad: grad * 10))
        x.register_post_accumulate_grad_hook(lambda x: log.append("accumulated"))
        return T.autograd.grad((x * x).sum(), x), log, x.grad

    as_torch(program)


def test_captured_tensor_on_the_way_to_another_gets_the_gradient_before_its_own_hooks():
    """As in PyTorch: the gradient of `y` is noted when `y` arrives, and its hook changes what flows on."""

    def program(T):
        log, x = Log(), leaf(T, 3)
        y = x * 2
        y.register_hook(log.hook("y", lambda grad: grad * 10))
        y.retain_grad()
        return T.autograd.grad((y * y).sum(), (y, x)), log, y.grad

    as_torch(program)


def test_nodes_that_lead_to_no_input_run_no_hooks():
    def program(T):
        log, x, w = Log(), leaf(T, 3), leaf(T, 3, seed=1)
        a, b = x * 2, w * 3
        a.register_hook(log.hook("a"))
        b.register_hook(log.hook("b"))
        w.register_hook(log.hook("w"))
        (a * b).sum().backward(inputs=[x])
        return log, x.grad, w.grad

    as_torch(program)


def test_inputs_that_are_no_leaves_retain_their_gradient():
    def program(T):
        log, x = Log(), leaf(T, 3)
        y = x * 2
        y.register_hook(log.hook("y", lambda grad: grad * 10))
        y.grad_fn.register_prehook(log.node_hook("pre"))
        (y * y).sum().backward(inputs=[y])
        return log, y.grad, x.grad

    as_torch(program)


def test_post_accumulate_hooks():
    def program(T):
        log, x = Log(), leaf(T, 3)

        def step(x):
            log.append(float(array(x.grad).sum()))
            with T.no_grad():
                x.sub_(x.grad * 0.1)
            x.grad = None

        handle = x.register_post_accumulate_grad_hook(step)
        (x * x).sum().backward()
        (x * x).sum().backward()
        handle.remove()
        (x * x).sum().backward()
        return log, x, x.grad

    as_torch(program)


def test_post_accumulate_hooks_need_a_leaf():
    same_error(lambda T: (leaf(T, 3) * 2).register_post_accumulate_grad_hook(print), "non-leaf")
    same_error(lambda T: data(T, (3,)).register_post_accumulate_grad_hook(print), "doesn't require gradient")


@pytest.mark.parametrize(
    ("result", "match"),
    [
        (lambda x: x.grad * 2, "post accumulate grad hooks should return None"),
        (lambda x: 3, "expected Variable, but hook returned 'int'"),
    ],
)
def test_post_accumulate_hook_must_return_nothing(result, match):
    def program(T):
        x = leaf(T, 3)
        x.register_post_accumulate_grad_hook(result)
        x.sum().backward()

    same_error(program, match)


def test_post_accumulate_hook_may_return_its_tensor():
    def program(T):
        x = leaf(T, 3)
        x.register_post_accumulate_grad_hook(lambda x: x)
        (x * 2).sum().backward()
        return x.grad

    as_torch(program)


def double(grad):
    return grad * 2


def test_handles():
    def program(T):
        x = leaf(T, 2)
        y = x * 1
        first = y.register_hook(double)
        second = y.register_hook(double)
        assert first.id < second.id
        with x.register_hook(double):
            y.sum().backward(retain_graph=True)
        first.remove()
        first.remove()
        y.sum().backward()
        return x.grad, len(y._backward_hooks), len(x._backward_hooks), x._post_accumulate_grad_hooks

    as_torch(program)


def test_pickled_handle_removes_from_the_pickled_container():
    for T in (torch, xgrad):
        x = leaf(T, 2)
        handle = x.register_hook(double)
        hooks, twin = pickle.loads(pickle.dumps((x._backward_hooks, handle)))
        assert list(hooks) == [handle.id] == [twin.id]
        twin.remove()
        assert not hooks
        assert len(x._backward_hooks) == 1


def test_handle_keeps_nothing_alive():
    x = leaf(xgrad, 2)
    y = x * 2
    kept = type("Kept", (), {"__call__": lambda self, grad: None})()
    reference = weakref.ref(kept)
    handle = y.register_hook(kept)
    del y, kept
    gc.collect()
    assert reference() is None
    handle.remove()


def test_node_hooks_see_undefined_gradients():
    def program(T):
        log, x = Log(), leaf(T, 2, 3)
        w = data(T, (2, 3))
        y = x * w
        y.grad_fn.register_hook(log.node_hook("post"))
        y.grad_fn.register_prehook(log.node_hook("pre"))
        y.sum().backward()
        return log

    as_torch(program)


def test_hooks_run_with_grad_mode_of_create_graph():
    def program(T):
        log, x = [], leaf(T, 3)
        x.register_hook(lambda grad: log.append((T.is_grad_enabled(), grad.requires_grad)))
        (x * x).sum().backward()
        T.autograd.grad((x * x).sum(), x, create_graph=True)
        return log

    as_torch(program)


def test_hook_that_changes_a_gradient_is_differentiated_with_create_graph():
    def program(T):
        x = leaf(T, 3)
        y = x * x
        y.register_hook(lambda grad: grad * x)
        (g,) = T.autograd.grad((y * y).sum(), x, create_graph=True)
        return g, T.autograd.grad(g.sum(), x)

    as_torch(program)


# -- reentrant ---------------------------------------------------------------------------------------------------------


def test_backward_inside_a_hook_runs_to_its_end_first():
    def program(T):
        log, x, w = Log(), leaf(T, 3), leaf(T, 3, seed=1)
        y = x * 2
        x.register_hook(log.hook("x"))
        w.register_hook(log.hook("w"))

        def inner(grad):
            log.append("enter")
            with T.enable_grad():
                (w * w).sum().backward()
            log.append("leave")

        y.register_hook(inner)
        y.sum().backward()
        return log, x.grad, w.grad

    as_torch(program)


def test_grad_inside_a_hook():
    def program(T):
        x, w = leaf(T, 3), leaf(T, 3, seed=1)
        y = x * 2

        def inner(grad):
            with T.enable_grad():
                (g,) = T.autograd.grad((w * w * w).sum(), w)
            return grad * g

        y.register_hook(inner)
        y.sum().backward()
        return x.grad, w.grad

    as_torch(program)


def test_error_inside_a_reentrant_backward_keeps_its_type():
    class StopError(Exception):
        pass

    x = xgrad.ones(3, requires_grad=True)
    y = x * 2

    def stop(grad):
        raise StopError("inside")

    def inner(grad):
        with xgrad.enable_grad():
            z = x * 3
            z.register_hook(stop)
            z.sum().backward()

    handle = y.register_hook(inner)
    loss = y.sum()
    with pytest.raises(StopError, match="inside"):
        loss.backward(retain_graph=True)
    handle.remove()
    x.grad = None
    loss.backward()
    same(x.grad, torch.full((3,), 2.0))
    assert xgrad.is_grad_enabled()


def test_final_callbacks_run_when_the_task_ends_and_may_queue_more():
    from xgrad.engine.engine import queue_callback

    def program(T):
        queue = queue_callback if T is xgrad else torch.autograd.Variable._execution_engine.queue_callback
        log, x = [], leaf(T, 3)

        def last():
            log.append(("last", x.grad is not None))

        def first():
            log.append(("first", x.grad is not None))
            queue(last)

        y = x * 2
        y.register_hook(lambda grad: queue(first))
        y.sum().backward()
        return log

    as_torch(program)


def test_callbacks_need_a_running_backward():
    from xgrad.engine.engine import queue_callback

    with pytest.raises(RuntimeError, match="during backward"):
        queue_callback(lambda: None)


@pytest.mark.parametrize(
    ("kind", "hook", "match"),
    [
        ("register_prehook", lambda grads: list(grads), "expected tuple, but hook returned 'list'"),
        ("register_prehook", lambda grads: grads[0], "expected tuple, but hook returned"),
        ("register_prehook", lambda grads: grads * 2, "hook|values"),
        ("register_prehook", lambda grads: (grads[0].sum(),), "has changed the size of value"),
        ("register_hook", lambda ins, outs: list(ins), "expected tuple, but hook returned 'list'"),
        ("register_hook", lambda ins, outs: (outs[0], outs[0]), "can't replace a None gradient"),
        ("register_hook", lambda ins, outs: (ins[0].sum(), None), "has changed the size of value"),
    ],
)
def test_what_a_hook_on_a_node_returns_is_checked(kind, hook, match):
    def program(T):
        x = leaf(T, 3)
        y = x * T.ones(3, dtype=T.float64)
        getattr(y.grad_fn, kind)(hook)
        y.sum().backward()

    same_error(program, match)


# -- after an in-place view operation ----------------------------------------------------------------------------------

MOVES = {
    "t_": lambda y: y.t_(),
    "transpose_": lambda y: y.transpose_(0, 1),
    "swapaxes_": lambda y: y.swapaxes_(0, 1),
    "swapdims_": lambda y: y.swapdims_(0, 1),
    "unsqueeze_": lambda y: y.unsqueeze_(0),
    "squeeze_": lambda y: y.squeeze_(),
    "as_strided_": lambda y: y.as_strided_((3, 2), (1, 3)),
    "mul_": lambda y: y.mul_(2),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("start", ["first", "removed", "later", "on a view", "retained"])
@pytest.mark.parametrize("move", MOVES)
def test_hooks_before_and_after_an_inplace_operation_run_in_order(move, start):
    def program(T):
        def note(name):
            return lambda grad: log.append((name, tuple(grad.shape)))

        log, x = [], leaf(T, 2, 3)
        y = (x * 2).view(2, 3) if start == "on a view" else x * 2
        if start != "later":
            handle = y.register_hook(note("first"))
            if start == "removed":
                handle.remove()
        MOVES[move](y)
        y.register_hook(note("second"))
        log.append(len(y._backward_hooks))
        y.mul_(3)
        y.register_hook(note("third"))
        y.unsqueeze_(0)
        y.register_hook(note("fourth"))
        y.sum().backward()
        return log, x.grad

    as_torch(program)


def test_a_hook_after_an_inplace_view_operation_may_replace_the_gradient():
    def program(T):
        x = leaf(T, 2, 3)
        y = x * 2
        y.register_hook(lambda grad: grad + 1)
        y.t_()
        y.register_hook(lambda grad: grad * T.tensor([1.0, 2.0, 3.0]))
        (y * y).sum().backward()
        return x.grad

    as_torch(program)


def test_hooks_stay_with_a_tensor_that_detach_takes_out():
    def program(T):
        log, x = [], leaf(T, 2)
        y = x * 2
        y.register_hook(lambda grad: log.append("first"))
        z = y * 3
        y.detach_().requires_grad_()
        y.register_hook(lambda grad: log.append("second"))
        (y * 2).sum().backward()
        z.sum().backward()
        return log, x.grad, y.grad

    as_torch(program)


# -- post hooks of an accumulator --------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_post_hook_of_an_accumulator_sees_the_gradient_that_was_stored(compiled):
    """The first is the leaf's own, as post-accumulate hooks leave it; a later one is what arrived."""

    def program(T):
        options = {"compiled": compiled} if T is xgrad else {}
        seen, x = [], leaf(T, 3)
        y = x * 2
        y.grad_fn.next_functions[0][0].register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
        x.register_post_accumulate_grad_hook(lambda x: [x.grad.mul_(10), None][1])
        weights = data(T, (3,), 1)
        (y * weights).sum().backward(retain_graph=True, **options)
        found = [outputs[0].clone() for _, outputs in seen]
        x.grad.add_(1)
        found += [outputs[0].clone() for _, outputs in seen]
        (y * weights).sum().backward(**options)
        return found, seen, x.grad

    as_torch(program)


def test_post_hook_of_an_accumulator_whose_gradient_was_taken_away():
    def program(T):
        seen, x = [], leaf(T, 3)
        y = x * 2

        def take(x):
            x.grad = None

        y.grad_fn.next_functions[0][0].register_hook(lambda inputs, outputs: seen.append((inputs, outputs)))
        x.register_post_accumulate_grad_hook(take)
        (y * y).sum().backward()
        return seen, x.grad

    as_torch(program)


def test_post_hook_of_an_accumulator_cannot_give_gradients():
    x = leaf(xgrad, 3)
    y = x * 2
    y.grad_fn.next_functions[0][0].register_hook(lambda inputs, outputs: outputs)
    with pytest.raises(RuntimeError, match=r"incorrect number of values \(got 1, but expected 0\)"):
        y.sum().backward()


@pytest.mark.parametrize("leaf", [True, False])
def test_backward_hooks_can_be_set_to_a_dictionary_or_to_none(leaf):
    def gradient(hooks):
        x = xgrad.ones(2, requires_grad=True)
        y = x if leaf else x * 1
        y.register_hook(lambda grad: grad * 7)
        y._backward_hooks = hooks
        y.register_hook(lambda grad: grad * 5)
        (y * 1).sum().backward()
        return x.grad.tolist()

    assert gradient(OrderedDict({0: lambda grad: grad * 3})) == [15.0, 15.0]
    assert gradient(None) == [5.0, 5.0]
    with pytest.raises(TypeError, match=r"hooks come as None or as an OrderedDict, .* not int"):
        xgrad.ones(2)._backward_hooks = 3


@pytest.mark.parametrize("name", ["_backward_hooks", "_post_accumulate_grad_hooks"])
def test_deletion_of_the_hooks_is_refused(name):
    for T in (torch, xgrad):
        with pytest.raises(RuntimeError, match=r"Deletion of \w+_hooks not allowed"):
            delattr(T.ones(2, requires_grad=True), name)


def test_post_accumulate_hooks_can_be_replaced_and_taken_away():
    def program(T):
        x, seen = T.tensor([1.0, 2.0], requires_grad=True), []
        x.register_post_accumulate_grad_hook(lambda p: seen.append("registered"))
        (x * 2).sum().backward()
        x._post_accumulate_grad_hooks = {5: lambda p: seen.append("given")}
        (x * 2).sum().backward()
        return x, seen

    as_torch(lambda T: program(T)[1])
    x, seen = program(xgrad)
    x._post_accumulate_grad_hooks = None  # torch forgets the dictionary, but goes on calling its hooks
    (x * 2).sum().backward()
    assert seen == ["registered", "given"]
    with pytest.raises(TypeError, match="hooks come as None or as an OrderedDict"):
        xgrad.ones(2, requires_grad=True)._post_accumulate_grad_hooks = 5


class Hook:
    """A hook that is an object with `__call__`, without a name, and that tells when it goes."""

    __hash__ = None

    def __init__(self, told):
        self.told = told

    def __call__(self, *args, **kwargs):
        self.told.append(len(args))

    def __del__(self):
        self.told.append("gone")


def test_a_hook_is_any_object_with_a_call_and_goes_with_its_tensor_or_node():
    def program(T):
        told = []
        x = T.ones(2, requires_grad=True)
        y = x * 2
        z = y * 1
        x.register_hook(Hook(told))
        x.register_post_accumulate_grad_hook(Hook(told))
        handle = y.register_hook(Hook(told))
        z.grad_fn.register_hook(Hook(told))
        z.grad_fn.register_prehook(Hook(told))
        T.autograd.graph.register_multi_grad_hook((x, y), Hook(told))
        z.sum().backward()
        handle.remove()
        told.append("removed")
        del y, z
        told.append("nodes")
        del x
        return [*told]  # as it is now: a collection of garbage may come at any time

    as_torch(program)


def test_a_hook_that_is_an_object_is_named_in_its_error():
    class Wrong:
        def __call__(self, grad):
            return xgrad.ones(3)

    x = xgrad.ones(2, requires_grad=True)
    x.register_hook(Wrong())
    with pytest.raises(RuntimeError, match=r"hook '.*Wrong.*has changed the size of value"):
        x.sum().backward()


@pytest.mark.eager("lifetimes")
@pytest.mark.parametrize("kind", ["tensor", "pre", "post", "post-accumulate"])
def test_a_gradient_that_a_hook_saw_and_let_go_is_the_leafs_own(kind):
    """Later gradients are then added to it in place."""
    x = xgrad.ones(3, requires_grad=True)
    node = xgrad.autograd.graph.get_gradient_edge(x).node
    register = {
        "tensor": x.register_hook, "pre": node.register_prehook, "post": node.register_hook,
        "post-accumulate": x.register_post_accumulate_grad_hook,
    }[kind]  # fmt: skip
    register(lambda *grads: None)
    (x * 2).sum().backward()
    grad = x.grad
    assert (grad if grad._storage is None else grad._storage)._owned
