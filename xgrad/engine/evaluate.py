"""Evaluate: one node with its hooks, and in which form gradients enter it and leave it.

    tensor hooks → retain-grad → captures → node pre-hooks → apply → node post-hooks

Hooks and custom Functions see Tensors, whatever travels between nodes: `enter` and `leave` change the form.
"""

from contextlib import nullcontext
from typing import Any

from ..compile_cache.programs import jit_checked
from ..config import state
from ..tensor import Tensor, from_array
from . import anomaly
from .graph_task import ExecInfo, GraphTask
from .hooks import note_users_code, run_post_hooks, run_pre_hooks, run_tensor_hooks
from .input_buffer import stolen
from .node import Node
from .sparse_gradient import SparseGradient, for_node
from .validate import validate_output

_copy = jit_checked(lambda a: a.copy())


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


def as_tensor(values: list, index: int) -> Any:
    """The gradient `values[index]` as a Tensor that outlives the run."""
    value = values[index]
    if value is None or isinstance(value, Tensor):
        # A sparse one may be on its way to others too: nobody sees what is written to this one.
        return value._shallow() if value is not None and value._sparse and not value.requires_grad else value
    del value
    return stolen(values, index)


def right_count(node: Node, results: Any) -> Any:
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
            grad = as_tensor(inputs, number)
            old = tensor._grad
            if old is None:
                tensor._grad = grad
            else:
                tensor._grad = tensor_add(old, grad)


def capture(task: GraphTask, node: Node, info: ExecInfo, inputs: list) -> None:
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


def evaluate_with_hooks(task: GraphTask, node: Node, inputs: list, needs: int) -> Any:
    tensors = task.tensors
    _run_tensor_hooks(task, node, inputs)
    _run_retain_hooks(task, node, inputs)
    hooks = node._hooks
    if hooks is None:
        return node.apply(inputs, needs) if node.raw or tensors else apply_on_tensors(node, inputs, needs)
    if hooks.pre:
        task.users_code = True
        given = run_pre_hooks(hooks.pre, tuple(leave(g) for g in inputs))
        inputs[:] = [None if g is None else _enter_node(node, g, tensors) for g in given]
    if not hooks.post:
        return node.apply(inputs, needs) if node.raw or tensors else apply_on_tensors(node, inputs, needs)
    if node.is_accumulator:
        task.users_code = True
        run_post_hooks(hooks.post, (), (node.apply_shown(inputs),))
        return ()
    grad_outputs = tuple(leave(g) for g in inputs)
    results = node.apply(inputs, needs) if node.raw or tensors else apply_on_tensors(node, inputs, needs)
    task.users_code = True
    wrapped = tuple(leave(validated(node, i, r)) for i, r in enumerate(results))
    changed = run_post_hooks(hooks.post, wrapped, grad_outputs)
    return [None if g is None else enter(g, tensors) for g in changed]


def evaluate_watched(task: GraphTask, node: Node, inputs: list, needs: int) -> Any:
    """Evaluate any node while the log, the profiler or anomaly mode wants to know of it."""
    anomaly.tell(node, inputs)
    with nullcontext() if state.recorder is None else state.recorder.node(node, inputs):
        results = evaluate_with_hooks(task, node, inputs, needs)
    if state.anomaly and state.anomaly_check_nan and node.next_edges:
        if not task.keep_graph:
            node.release()
        anomaly.look_for_nan(node, results)
    return results


def validated(node: Node, i: int, grad: Any) -> Any:
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


def apply_on_tensors(node: Node, inputs: list, needs: int) -> list:
    """A node that works on Tensors (a custom Function) while arrays travel."""
    note_users_code()
    results = node.apply([leave(g) for g in inputs], needs)
    return [None if r is None else enter(r, False) for r in results]


tensor_add: Any = None  # the recorded sum, set by xgrad/attach.py
