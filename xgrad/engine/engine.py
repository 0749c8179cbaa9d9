"""The engine: runs the graph from roots to leaves, in PyTorch's order (torch/csrc/autograd/engine.cpp).

Ready nodes: larger sequence number first, that is later forward operations first, leaves at once.  One host thread
drives a task: JAX's dispatch is asynchronous already.  A backward inside a hook or a custom Function runs to its end
first, on the same thread, or on a fresh one every `HOP` levels, so that no depth meets Python's recursion limit.

Gradients travel between nodes as bare arrays; hooks and custom Functions see Tensors.  Where more than the value counts
(a graph is created, a tangent or a batch is carried along) they travel as Tensors (`GraphTask.tensors`).
Arrays that are not ours (a user's root gradient, what a hook returns) are copied when they enter, so every array in
an input buffer that nobody else refers to may be donated.
"""

import threading
from contextlib import nullcontext
from typing import Any

from ..config import state
from ..programs import jit_named
from ..tensor import Tensor, from_array
from . import anomaly
from . import node as _node
from .graph_task import ExecInfo, GraphTask
from .hooks import note_users_code, run_post_hooks, run_pre_hooks, run_tensor_hooks
from .input_buffer import accumulate, stolen
from .node import MAX_SEQUENCE_NR, InternalNode, Node
from .sparse_gradient import SparseGradient, for_node
from .validate import validate_output

HOP = 24  # reentrant levels on one thread

_copy = jit_named(lambda a: a.copy(), "copy")


class GraphRoot(InternalNode):
    """The virtual node whose results are the root gradients."""

    sequence_nr = MAX_SEQUENCE_NR

    def __init__(self, edges: tuple) -> None:
        self.next_edges = edges

    def apply(self, grads: list, needs: int) -> Any:
        return grads


def enter(tensor: Any, tensors: bool) -> Any:
    """A tensor as the engine carries it: itself, or its array, copied unless one of our kernels made it."""
    if tensor.__class__ is SparseGradient or tensor._sparse:
        return tensor if tensor.__class__ is SparseGradient else SparseGradient(tensor)
    if tensors:
        return tensor
    array = tensor._read()
    owned = tensor._owned if tensor._storage is None else tensor._storage.owned
    return array if owned else _copy(array)


def leave(value: Any) -> Any:
    """A gradient as hooks and users see it."""
    if value is None or isinstance(value, Tensor):
        return value
    return value.tensor if value.__class__ is SparseGradient else from_array(value)


def _enter_node(node: Any, tensor: Tensor, tensors: bool) -> Any:
    """A gradient that a hook of `node` gave, as this node takes it."""
    if tensor._sparse:
        return for_node(node, tensor)
    return tensor if node.is_accumulator and node.variable._sparse else enter(tensor, tensors)


def _taken(values: list, index: int) -> Any:
    """The gradient `values[index]` as a Tensor that outlives the run."""
    value = values[index]
    if value is None or isinstance(value, Tensor):
        # A sparse one may be on its way to others too: nobody sees what is written to this one.
        return value._shallow() if value is not None and value._sparse and not value.requires_grad else value
    del value
    return stolen(values, index)


def execute(
    edges: tuple,
    grads: list[Tensor | None],
    *,
    keep_graph: bool,
    create_graph: bool,
    outputs: list[tuple],
    accumulate_grad: bool,
) -> list:
    """Run backward from `edges` with the root gradients `grads`.

    `outputs` are edges to be captured, or with `accumulate_grad` to be executed; empty means everything.
    Returns the captured gradients as Tensors, None where none arrived.
    """
    outer = state.graph_task
    depth = 0 if outer is None else outer.depth + 1
    task = GraphTask(keep_graph, create_graph, depth)
    root = GraphRoot(edges)
    task.root = root
    tensors = task.tensors
    values = [None if g is None else enter(g, tensors) for g in grads]
    if state.compiled is not None and not tensors and not anomaly.watched():
        from .schedule import follow

        task.compiled = state.compiled
        if follow(task, edges, values, outputs, accumulate_grad):
            captured = task.captured
            return [_taken(captured, i) for i in range(len(captured))]
    task.compute_dependencies(root)
    if outputs:
        task.init_to_execute(root, outputs, accumulate_grad)
        if not task.exec_info.get(root, ExecInfo()).should_execute:
            task.exec_info.setdefault(root, ExecInfo()).needed = True
    if depth and depth % HOP == 0:
        _on_fresh_thread(task, root, values)
    else:
        _drive(task, root, values)
    captured = task.captured
    del values
    return [_taken(captured, i) for i in range(len(captured))]


def _on_fresh_thread(task: GraphTask, root: GraphRoot, values: list) -> None:
    """Drive a deeply nested task on a thread whose stack is empty, with this thread's modes."""
    modes = state.snapshot()
    failure: list[BaseException] = []

    def body() -> None:
        state.restore(modes)
        try:
            _drive(task, root, values)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, name=f"xgrad backward, depth {task.depth}")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]


def _drive(task: GraphTask, root: GraphRoot, values: list) -> None:
    """Run a task in its own modes; the caller's are back after it, whatever hooks and Functions left switched."""
    previous = state.graph_task, state.grad_enabled, state.current_node
    task.modes = state.__dict__.copy()
    state.graph_task, state.grad_enabled = task, task.create_graph and not state.inference
    try:
        _distribute(task, root, values)
        del values
        try:
            if task.compiled is None:
                _loop(task)
            else:
                from .compiled import run

                run(task)
        except BaseException as error:
            anomaly.report(error)
            raise
        callbacks = task.callbacks
        position = 0
        while position < len(callbacks):  # a callback may queue more
            task.users_code = True
            state.current_node = previous[2]
            callbacks[position]()
            position += 1
    finally:
        state.graph_task, state.grad_enabled, state.current_node = previous  # before any call: it may be interrupted
        if task.users_code or task.tensors:
            try:
                state.put_back(task.modes)
            except BaseException:
                state.put_back(task.modes)
                raise


def _loop(task: GraphTask) -> None:
    """Run ready nodes until there are none."""
    not_ready, exec_info = task.not_ready, task.exec_info
    keep_graph, tensors = task.keep_graph, task.tensors
    watched = anomaly.watched()  # once for each run
    evaluate = _evaluate_watched if watched else _evaluate_with_hooks
    while True:
        node = task.pop()
        if node is None:
            return
        inputs = not_ready.pop(node)
        needs = -1
        state.current_node = node
        if exec_info:
            info = exec_info.get(node)
            if info is None or not info.should_execute:
                continue
            if info.captures is not None:
                _capture(task, node, info, inputs)
                if task.users_code:
                    task.put_modes_back()
                if not info.needed:
                    continue
            needs = task.needs(node)
        if node._hooks is not None or node.is_accumulator or watched:
            results = evaluate(task, node, inputs, needs)
        elif node.raw or tensors:
            results = node.apply(inputs, needs)
        else:
            results = _apply_on_tensors(node, inputs, needs)
        if tensors or task.users_code:
            task.put_modes_back()
        del inputs
        if not keep_graph:
            node.release()
        if node.next_edges:
            _distribute(task, node, results)
        del results


def _distribute(task: GraphTask, node: Node, results: Any) -> None:
    """Send a node's results along its edges; queue the nodes whose gradients are complete."""
    dependencies, not_ready, exec_info = task.dependencies, task.not_ready, task.exec_info
    tensors = task.tensors
    edges = node.next_edges
    if len(results) != len(edges):
        results = _right_count(node, results)
    # References are dropped as soon as they are moved on: what nobody else holds may be donated.
    results = list(results)
    for i, (child, number) in enumerate(edges):
        if child is None:
            continue
        if exec_info:
            info = exec_info.get(child)
            if info is None or not info.should_execute:
                continue
        avals = child.avals
        buffer = not_ready.get(child)
        if buffer is None:
            buffer = not_ready[child] = [None] * len(avals)
        grad = results[i]
        if grad is not None:
            results[i] = None
            meta = avals[number]
            if grad.shape != meta.shape or grad.dtype != meta.dtype:
                grad = validate_output(grad, meta, node, i)
            if buffer[number] is None:
                buffer[number] = grad
            elif tensors:
                buffer[number] = tensor_add(buffer[number], grad)
            else:
                box = [grad]
                del grad
                accumulate(buffer, number, box)
                del box
            grad = None
        left = dependencies[child] - 1
        if left:
            dependencies[child] = left
        else:
            task.push(child)


def _right_count(node: Node, results: Any) -> Any:
    edges = node.next_edges
    if len(results) > len(edges) and all(extra is None for extra in results[len(edges) :]):
        return results[: len(edges)]
    raise RuntimeError(
        f"Function {node.name()} returned an invalid number of gradients - expected {len(edges)}, "
        f"but got {len(results)}"
    )


def _run_tensor_hooks(task: GraphTask, node: Node, inputs: list) -> None:
    """Tensor hooks, in place on the list of gradients; a hook is called with None for one that is undefined."""
    if node.is_accumulator:
        hooks = node.tensor_hooks()
        chosen = {0: hooks} if hooks else {}
    elif node._hooks is not None:
        chosen = dict(node._hooks.tensor)  # in the order in which the outputs got their first hooks
    else:
        return
    for number, hooks in chosen.items():
        if hooks:
            task.users_code = True
            changed = run_tensor_hooks(hooks.values(), leave(inputs[number]))
            inputs[number] = None if changed is None else _enter_node(node, changed, task.tensors)


def _run_retain_hooks(task: GraphTask, node: Node, inputs: list) -> None:
    hooks = node._hooks
    if hooks is None or not hooks.retain:
        return
    for number, reference in list(hooks.retain.items()):
        tensor = reference()
        if tensor is not None and inputs[number] is not None:
            grad = _taken(inputs, number)
            old = tensor._grad
            if old is None:
                tensor._grad = grad
            else:
                tensor._grad = tensor_add(old, grad)


def _capture(task: GraphTask, node: Node, info: ExecInfo, inputs: list) -> None:
    """Note the gradients that were asked for.

    A node that is only captured runs its tensor pre-hooks and retain-grad hook first.  A tensor that is captured
    *and* whose node is needed is captured before its own hooks, as in PyTorch.
    """
    assert info.captures is not None
    if not info.needed:
        _run_tensor_hooks(task, node, inputs)
        _run_retain_hooks(task, node, inputs)
    for number, places in info.captures.items():
        for place in places:
            task.captured[place] = inputs[number]


def _evaluate_with_hooks(task: GraphTask, node: Node, inputs: list, needs: int) -> Any:
    tensors = task.tensors
    _run_tensor_hooks(task, node, inputs)
    _run_retain_hooks(task, node, inputs)
    hooks = node._hooks
    if hooks is None:
        return node.apply(inputs, needs) if node.raw or tensors else _apply_on_tensors(node, inputs, needs)
    if hooks.pre:
        task.users_code = True
        given = run_pre_hooks(hooks.pre, tuple(leave(g) for g in inputs))
        inputs[:] = [None if g is None else _enter_node(node, g, tensors) for g in given]
    if not hooks.post:
        return node.apply(inputs, needs) if node.raw or tensors else _apply_on_tensors(node, inputs, needs)
    if node.is_accumulator:
        task.users_code = True
        run_post_hooks(hooks.post, (), (node.apply_shown(inputs),))
        return ()
    grad_outputs = tuple(leave(g) for g in inputs)
    results = node.apply(inputs, needs) if node.raw or tensors else _apply_on_tensors(node, inputs, needs)
    task.users_code = True
    wrapped = tuple(leave(_validated(node, i, r)) for i, r in enumerate(results))
    changed = run_post_hooks(hooks.post, wrapped, grad_outputs)
    return [None if g is None else enter(g, tensors) for g in changed]


def _evaluate_watched(task: GraphTask, node: Node, inputs: list, needs: int) -> Any:
    """Evaluate any node while the log, the profiler or anomaly mode wants to know of it."""
    anomaly.tell(node, inputs)
    with nullcontext() if state.recorder is None else state.recorder.node(node, inputs):
        results = _evaluate_with_hooks(task, node, inputs, needs)
    if state.anomaly and state.anomaly_check_nan and node.next_edges:
        if not task.keep_graph:
            node.release()
        anomaly.look_for_nan(node, results)
    return results


def _validated(node: Node, i: int, grad: Any) -> Any:
    """A result in the form in which its edge takes it, before post-hooks see it."""
    if grad is None or i >= len(node.next_edges):
        return grad
    child, number = node.next_edges[i]
    if child is None:
        return grad
    meta = child.avals[number]
    if grad.shape != meta.shape or grad.dtype != meta.dtype:
        return validate_output(grad, meta, node, i)
    return grad


def _apply_on_tensors(node: Node, inputs: list, needs: int) -> list:
    """A node that works on Tensors (a custom Function) while arrays travel."""
    note_users_code()
    results = node.apply([leave(g) for g in inputs], needs)
    return [None if r is None else enter(r, False) for r in results]


def call_node(node: Node, grads: tuple) -> Any:
    """Run one node on Tensors, without hooks and checks; recorded where grad mode is on."""
    if len(grads) != len(node.avals):
        raise TypeError(f"expected {len(node.avals)} arguments, got {len(grads)} instead")
    for i, grad in enumerate(grads):
        if grad is not None and not isinstance(grad, Tensor):
            raise TypeError(f"argument {i} is not a Variable, but {type(grad).__name__}")
    record = state.grad_enabled
    inputs = [None if g is None else enter(g, record) for g in grads]
    results = node.apply(inputs, -1) if node.raw or record else _apply_on_tensors(node, inputs, -1)
    left = tuple(leave(r) for r in results)
    return left[0] if len(left) == 1 else left


_node.call_node = call_node


def queue_callback(callback: Any) -> None:
    """Call `callback()` when the running backward ends.  Raises `RuntimeError` outside of backward."""
    task = state.graph_task
    if task is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    task.callbacks.append(callback)


def current_graph_task_id() -> int:
    """The id of the running backward, -1 outside."""
    return -1 if state.graph_task is None else state.graph_task.id


tensor_add: Any = None  # the recorded sum, set by xgrad/attach.py
