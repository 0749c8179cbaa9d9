"""The graph as a user sees it: nodes, edges, hooks on several tensors, the running backward, versions."""

import copy
import gc
import pickle
import re
import threading

import pytest
import torch

import xgrad
import xgrad.autograd.torch_c_names as engine

from ..oracle import array, as_torch, leaf, same, same_error


def C(T):
    return torch._C if T is torch else engine


def A(T):
    return torch._C._autograd if T is torch else engine


def show(log):
    return lambda grads: log.append([None if g is None else array(g).tolist() for g in grads])


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_what_a_node_tells():
    def program(T):
        x = leaf(T, 2)
        y = x * 2
        node, accumulator = y.grad_fn, y.grad_fn.next_functions[0][0]
        base = x * 1
        base[0].mul_(2)
        copied = T.zeros(2, dtype=T.float64).copy_(x)
        nodes = (node, accumulator, base.grad_fn, copied.grad_fn)
        node.metadata["note"] = 1
        node.metadata["more"] = 2
        return (
            [n.name() for n in nodes],
            [type(n).__name__ for n in nodes],
            [re.sub("0x.*>", "", repr(n)) for n in nodes],
            [isinstance(n, T.autograd.graph.Node) for n in (*nodes, 3)],
            issubclass(type(node), T.autograd.graph.Node),
            node.next_functions[1],
            accumulator.next_functions,
            accumulator.variable is x,
            accumulator._sequence_nr(),
            (y * 3).grad_fn._sequence_nr() > node._sequence_nr(),
            node.metadata,
            accumulator.metadata,
            node.requires_grad,
            [tuple(m.shape) for n in nodes for m in n._input_metadata],
            [m.is_nested_tensor for m in node._input_metadata],
        )

    as_torch(program)


def test_a_node_is_one_object():
    def program(T):
        x = leaf(T, 2)
        y = x * 2
        z = y * 3
        node = y.grad_fn
        return (
            y.grad_fn is node,
            z.grad_fn.next_functions[0][0] is node,
            {node: 1}[y.grad_fn],
            (x * 5).grad_fn.next_functions[0][0] is node.next_functions[0][0],
        )

    as_torch(program)


def test_nodes_are_not_made_and_not_copied_by_hand():
    same_error(lambda T: T.autograd.graph.Node(), "abstract")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        same_error(lambda T, copied=copied: copied((leaf(T, 2) * 2).grad_fn), "cannot pickle 'MulBackward0' object")
        same_error(lambda T, copied=copied: copied(leaf(T, 2).exp().grad_fn._raw_saved_result), "cannot pickle")


def test_sequence_numbers_have_64_bits():
    node = (leaf(xgrad, 2) * 2).grad_fn
    node._set_sequence_nr(2**64 - 1)
    assert node._sequence_nr() == 2**64 - 1
    for number, error in ((-1, OverflowError), (2**64, OverflowError), ("1", TypeError)):
        with pytest.raises(error):
            (leaf(torch, 2) * 2).grad_fn._set_sequence_nr(number)
        with pytest.raises(error):
            node._set_sequence_nr(number)
    assert node._sequence_nr() == 2**64 - 1


def test_a_node_can_be_called():
    def program(T):
        x, one = leaf(T, 2), T.tensor(1.0, dtype=T.float64)
        y, parts = x * x, x.unbind(0)
        log = []
        y.grad_fn.register_hook(lambda *grads: log.append("hook"))
        with T.no_grad():
            plain = y.grad_fn(y.detach())
        recorded = y.grad_fn(y)
        return plain, [g.requires_grad for g in recorded], parts[0].grad_fn(one, None), y.grad_fn(None), log

    as_torch(program)
    same_error(lambda T: (leaf(T, 2) * 2).grad_fn(), "expected 1 arguments, got 0")
    same_error(lambda T: (leaf(T, 2) * 2).grad_fn(3), "argument 0 is not a Variable")


def test_an_accumulator_can_be_called():
    def program(T):
        x = leaf(T, 2)
        accumulator = T.autograd.graph.get_gradient_edge(x).node
        with T.no_grad():
            return accumulator(x.detach()), x.grad

    as_torch(program)


# -- edges -------------------------------------------------------------------------------------------------------------


def test_gradient_edges():
    def program(T):
        get = T.autograd.graph.get_gradient_edge
        x = leaf(T, 3)
        y = x * 2
        parts = (y * 3).unbind(0)
        edge, third = get(y), get(parts[2])
        return (
            edge._fields,
            edge.node is y.grad_fn,
            edge == get(y),
            third.output_nr,
            T.autograd.grad(parts[0] + parts[2], (third, edge, get(x))),
        )

    as_torch(program)
    same_error(lambda T: T.autograd.graph.get_gradient_edge(leaf(T, 2).detach()), "does not require gradients")


def test_an_edge_keeps_the_graph_alive():
    def program(T):
        x = leaf(T, 2)
        edge = T.autograd.graph.get_gradient_edge(x * x)
        gc.collect()
        T.autograd.backward(edge, x.detach())
        return x.grad

    as_torch(program)


def test_a_view_that_no_gradient_reaches_has_no_edge():
    def program(T):
        x = leaf(T, 2)
        with T.no_grad():
            view = x[0]
        T.autograd.graph.get_gradient_edge(view)

    for T in (torch, xgrad):
        with pytest.raises(AssertionError, match="Expected gradient function to be set"):
            program(T)


# -- register_multi_grad_hook ------------------------------------------------------------------------------------------


def test_multi_grad_hook_waits_for_all_that_are_reached():
    def program(T):
        log = []
        a, b = leaf(T, 2), leaf(T, 2, seed=1)
        c, d = a * b, a * b
        T.autograd.graph.register_multi_grad_hook((a, b, c, d), show(log))
        a.register_hook(lambda grad: log.append("a"))
        c.sum().backward(retain_graph=True)
        c.sum().backward(inputs=(a,), retain_graph=True)
        (c * d).sum().backward(retain_graph=True)
        (c * d).sum().backward()
        return log

    as_torch(program)


def test_multi_grad_hook_in_mode_any_runs_with_the_first():
    def program(T):
        log = []
        a, b = leaf(T, 2), leaf(T, 2).detach()
        c = a * b
        T.autograd.graph.register_multi_grad_hook((a, b, c), lambda grad: log.append(grad), mode="any")
        for _ in range(2):
            c.sum().backward(retain_graph=True)
        return log

    as_torch(program)


def test_multi_grad_hook_passes_none_for_undefined_gradients():
    def program(T):
        log = []
        x = leaf(T, 3)
        a, b, _ = (x * 2).unbind(0)
        T.autograd.graph.register_multi_grad_hook((a, b, x), show(log))
        (a * 1).backward()
        return log

    as_torch(program)


def test_multi_grad_hook_counts_each_run_for_itself():
    """A run that failed, and several threads."""

    def program(T):
        log, x, w = [], leaf(T, 2), leaf(T, 2, seed=1)
        T.autograd.graph.register_multi_grad_hook((x, w), show(log))
        y = x * 1

        def fails(grad):
            raise ValueError("in the middle")

        handle = y.register_hook(fails)
        with pytest.raises(ValueError, match="in the middle"):
            (y + w).sum().backward(retain_graph=True)
        handle.remove()
        threads = [threading.Thread(target=(x * w).sum().backward) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return log

    as_torch(program)


def test_multi_grad_hook_inside_of_another_run():
    """In PyTorch the inner run overwrites how many gradients the outer one waits for, and the hook misses one."""
    log, x, w = [], leaf(xgrad, 2), leaf(xgrad, 2, seed=1)
    xgrad.autograd.graph.register_multi_grad_hook((x, w), show(log))
    y = x * 1

    def inner(grad):
        with xgrad.enable_grad():
            (x * 3).sum().backward()

    y.register_hook(inner)
    (y * w).sum().backward()
    assert log == [[[3.0, 3.0], None], [array(w).tolist(), array(x).tolist()]]


def test_multi_grad_hook_is_called_once_with_the_root_among_its_tensors():
    """PyTorch leaves a single root out of its count, and calls the hook twice."""
    log, x = [], leaf(xgrad, 2)
    y = x * 2
    z = y.sum()
    xgrad.autograd.graph.register_multi_grad_hook((z, y, x), show(log))
    z.backward()
    assert log == [[1.0, [1.0, 1.0], [2.0, 2.0]]]


def test_multi_grad_hook_is_removed_by_its_handle():
    def program(T):
        log, x = [], leaf(T, 2)
        hook = T.autograd.graph.register_multi_grad_hook
        handle = hook((x,), show(log))
        handle.remove()
        handle.remove()
        (x * 2).sum().backward()
        with hook((x,), show(log)):
            (x * 3).sum().backward()
        (x * 4).sum().backward()
        pickle.loads(pickle.dumps(handle)).remove()
        return log

    as_torch(program)


def test_multi_grad_hook_refuses():
    same_error(lambda T: T.autograd.graph.register_multi_grad_hook((leaf(T, 2),), print, mode="some"), "Expects mode")
    for T in (torch, xgrad):
        with pytest.raises(AssertionError, match="Expected gradient function to be set"):
            T.autograd.graph.register_multi_grad_hook((leaf(T, 2).detach(),), print)

    def captures_a_leaf(T):
        x = leaf(T, 2)
        y = x * 2
        T.autograd.graph.register_multi_grad_hook((x, y), print)
        T.autograd.grad((y * 2).sum(), x)

    same_error(captures_a_leaf, "A leaf node was passed to _will_engine_execute_node")


# -- the running backward ----------------------------------------------------------------------------------------------


def test_which_nodes_a_run_will_execute():
    def program(T):
        log, x, w = [], leaf(T, 2), leaf(T, 2, seed=1)
        y = x * w
        u = y.sin()
        z = u.sum()
        outside = (x * 5).grad_fn
        edge = T.autograd.graph.get_gradient_edge
        nodes = (y.grad_fn, u.grad_fn, edge(x).node, edge(w).node, outside)
        u.register_hook(lambda grad: log.append([C(T)._will_engine_execute_node(n) for n in nodes]))
        z.backward(retain_graph=True)
        z.backward(inputs=[x], retain_graph=True)
        T.autograd.grad(z, y, retain_graph=True)
        z.backward(inputs=[y])
        return log

    as_torch(program)
    same_error(lambda T: C(T)._will_engine_execute_node((leaf(T, 2) * 2).grad_fn), "during the backward pass")
    same_error(lambda T: C(T)._will_engine_execute_node(None), "expects an grad_fn, but got NoneType")


def test_execution_order_is_that_in_which_nodes_run():
    def program(T):
        log, x, w = [], leaf(T, 2), leaf(T, 2, seed=1)
        y = x * 2
        u = y * w
        z = (u * y).sum()

        def hook(grad):
            log.append([n.name() for n in C(T)._current_graph_task_execution_order()])

        z.register_hook(hook)
        for run in (
            lambda: z.backward(retain_graph=True),
            lambda: T.autograd.grad(z, y, retain_graph=True),
            lambda: T.autograd.grad(z, x, retain_graph=True),
            lambda: z.backward(inputs=[w]),
        ):
            run()
        return log

    with torch.autograd.set_multithreading_enabled(False):
        as_torch(program)
    same_error(lambda T: C(T)._current_graph_task_execution_order(), "during the backward pass")


def test_the_running_backward_is_known():
    def program(T):
        log, x = [], leaf(T, 2)

        def state():
            return C(T)._current_graph_task_id() >= 0, A(T)._get_current_graph_task_keep_graph()

        for options in ({"retain_graph": True}, {}):
            y = (x * x).sum()
            y.register_hook(lambda grad: log.append(state()))
            y.backward(**options)
        return log, state()

    as_torch(program)


def test_run_backward_of_the_engine():
    def program(T):
        x = leaf(T, 2)
        y = (x * x).sum()
        one, run = T.tensor(1.0, dtype=T.float64), T.autograd.graph._engine_run_backward
        got = run((y,), (one,), True, False, (x,), allow_unreachable=True, accumulate_grad=False)
        return got, x.grad, run((y,), (one,), True, False, (), True, accumulate_grad=True), x.grad

    as_torch(program)


def test_how_a_view_was_made():
    def program(T):
        x = leaf(T, 2)
        base = x * 1
        view = base[0:1]
        with T.no_grad():
            unrecorded = base.view(2)
        views = (view, unrecorded, base.unbind(0)[0], unrecorded.view(2), view.view(1))
        metas = [A(T)._get_creation_meta(v).name for v in views]
        A(T)._set_creation_meta(unrecorded, A(T).CreationMeta.MULTI_OUTPUT_NODE)
        return metas, A(T)._get_creation_meta(unrecorded).name, [v._is_view() for v in (x, base, *views)]

    as_torch(program)
    same_error(lambda T: A(T)._get_creation_meta(leaf(T, 2)), "Expected meta")


def test_the_next_sequence_number():
    before = engine._get_sequence_nr()
    y = leaf(xgrad, 2) * 2
    assert y.grad_fn._sequence_nr() == before
    assert engine._get_sequence_nr() == engine._get_sequence_nr() == before + 1
    with xgrad.autograd.set_detect_anomaly(True):  # numbers with an origin
        assert engine._get_sequence_nr() == before + 1
        assert (y * 2).grad_fn._sequence_nr() == before + 1
    assert (y * 2).grad_fn._sequence_nr() == engine._get_sequence_nr() - 1 == before + 2


def test_knobs_of_devices_that_xla_has_not():
    def program(T):
        graph = T.autograd.graph
        return graph.set_warn_on_accumulate_grad_stream_mismatch(True), graph.set_override_stale_capture_stream(False)

    as_torch(program)
    for budget in ("a", True, 2.0, 0.5):
        same_error(lambda T, b=budget: T.autograd.graph.region_activation_memory_budget(b), "activation_memory_budget")


def test_everything_public_is_there():
    assert set(torch.autograd.graph.__all__) <= set(xgrad.autograd.graph.__all__)


# -- versions ----------------------------------------------------------------------------------------------------------


def test_increment_version():
    def program(T):
        x = leaf(T, 2)
        y = x * 1
        z = (y * y).sum()
        increment = T.autograd.graph.increment_version
        increment(y)
        increment([y, x])
        increment(t for t in (y,))
        return y._version, x._version, y.detach()._version, z

    as_torch(program)
    same_error(lambda T: T.autograd.graph.increment_version(3), r"expect a Iterable\[Tensor\]")
    same_error(lambda T: T.autograd.graph.increment_version([3]), "each element of the iterable to be a tensor")


def test_an_incremented_version_is_noticed_by_backward():
    def program(T):
        y = leaf(T, 2) * 1
        z = (y * y).sum()
        T.autograd.graph.increment_version(y)
        z.backward()

    same_error(program, "modified by an inplace operation")


def test_preserved_versions():
    def program(T):
        x = leaf(T, 2)
        y = x * 1
        z = y.sum() + (y * y).sum()
        with T.autograd._unsafe_preserve_version_counter(y):
            y.detach().mul_(2)
            within = y._version
        with T.autograd._unsafe_preserve_version_counter((y, x)):
            y.detach().div_(2)
        z.backward()
        A(T)._unsafe_set_version_counter((y,), (7,))
        return within, y._version, y.detach()._version, x.grad

    as_torch(program)
    for wrong in ([], 3):
        for T in (torch, xgrad):
            with pytest.raises(AssertionError, match="to be a tuple"):
                T.autograd._unsafe_preserve_version_counter(wrong)
    same_error(lambda T: A(T)._unsafe_set_version_counter((leaf(T, 2),), (-1,)), "below 0: -1")
    same_error(lambda T: A(T)._unsafe_set_version_counter((leaf(T, 2),), (1, 2)), "tensors_len=1, versions_len=2")


def test_preserved_versions_as_a_decorator():
    y = leaf(xgrad, 2) * 1

    @xgrad.autograd._unsafe_preserve_version_counter(y)
    def write():
        y.detach().zero_()

    write()
    assert y._version == 0
    same(y, torch.zeros(2, dtype=torch.float64))
