"""Evaluates one autograd node with its hooks, in PyTorch's order, for the engine's loop.

    tensor hooks → retain-grad → captures → node pre-hooks → apply → node post-hooks

Hooks see Tensors, also while the engine itself computes with bare arrays.
"""

from contextlib import nullcontext
from typing import Any

from ..config import state
from ..tensor import Tensor
from . import anomaly
from .arithmetic import Arithmetic
from .graph_task import ExecInfo, GraphTask
from .hooks import run_post_hooks, run_pre_hooks, run_tensor_hooks
from .node import Node
from .validate import for_node, validate_output


def _from_hook(node: Node, tensor: Tensor, arithmetic: Arithmetic) -> Any:
    """Convert a Tensor that a hook of `node` returned to a gradient that the node accepts."""
    return for_node(node, tensor, arithmetic) if tensor._sparse else arithmetic.from_tensor(tensor)


def right_count(node: Node, results: Any) -> Any:
    edges = node.next_edges
    if len(results) > len(edges) and all(extra is None for extra in results[len(edges) :]):
        return results[: len(edges)]
    raise RuntimeError(
        f"Function {node.name()} returned an invalid number of gradients - expected {len(edges)}, "
        f"but got {len(results)}"
    )


def _run_tensor_hooks(task: GraphTask, node: Node, inputs: list) -> None:
    """Run tensor hooks, which may replace gradients in the list; an undefined gradient is None for a hook."""
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
            changed = run_tensor_hooks(hooks.values(), task.arithmetic.to_tensor(inputs[number]))
            inputs[number] = None if changed is None else _from_hook(node, changed, task.arithmetic)


def _run_retain_hooks(task: GraphTask, node: Node, inputs: list) -> None:
    hooks = node._hooks
    if hooks is None or not hooks.retain:
        return
    for number, reference in list(hooks.retain.items()):
        tensor = reference()
        if tensor is not None and inputs[number] is not None:
            grad = task.arithmetic.into_tensor(inputs, number)
            old = tensor._grad
            if old is None:
                tensor._grad = grad
            else:
                tensor._grad = Tensor.add(old, grad)


def capture(task: GraphTask, node: Node, info: ExecInfo, inputs: list[Any]) -> None:
    """Store the captured gradients in the task's results.

    A node that is captured but not needed runs its tensor pre-hooks and retain-grad hook first.  If it is needed too,
    its gradient is captured before its own hooks run, as in PyTorch.
    """
    assert info.captures is not None
    if not info.needed:
        _run_tensor_hooks(task, node, inputs)
        _run_retain_hooks(task, node, inputs)
    for number, places in info.captures.items():
        for place in places:
            task.captured[place] = inputs[number]


def evaluate_with_hooks(task: GraphTask, node: Node, inputs: list[Any], needs: int) -> Any:
    arithmetic = task.arithmetic
    _run_tensor_hooks(task, node, inputs)
    _run_retain_hooks(task, node, inputs)
    hooks = node._hooks
    if hooks is None:
        return node.apply(inputs, needs, arithmetic)
    if hooks.pre:
        task.users_code = True
        given = run_pre_hooks(hooks.pre, tuple(arithmetic.to_tensor(g) for g in inputs))
        inputs[:] = [None if g is None else _from_hook(node, g, arithmetic) for g in given]
        del given  # a leaf steals a gradient that nobody else has
    if not hooks.post:
        return node.apply(inputs, needs, arithmetic)
    if node.is_accumulator:
        task.users_code = True
        run_post_hooks(hooks.post, (), (node.apply_shown(inputs, arithmetic),))
        return ()
    grad_outputs = tuple(arithmetic.to_tensor(g) for g in inputs)
    results = node.apply(inputs, needs, arithmetic)
    task.users_code = True
    wrapped = tuple(arithmetic.to_tensor(validated(node, i, r, arithmetic)) for i, r in enumerate(results))
    changed = run_post_hooks(hooks.post, wrapped, grad_outputs)
    return [arithmetic.from_tensor(g) for g in changed]


def evaluate_watched(task: GraphTask, node: Node, inputs: list[Any], needs: int) -> Any:
    """Evaluate a node while the log, the profiler or anomaly mode observes the run."""
    anomaly.tell(node, inputs)
    with nullcontext() if state.recorder is None else state.recorder.node(node, inputs, needs):
        results = evaluate_with_hooks(task, node, inputs, needs)
    if state.anomaly and state.anomaly_check_nan and node.next_edges:
        if not task.keep_graph:
            node.release()
        anomaly.look_for_nan(node, results, task.arithmetic)
    return results


def validated(node: Node, i: int, grad: Any, arithmetic: Arithmetic) -> Any:
    """Fit a result to its edge's shape and dtype, before post-hooks see it."""
    if grad is None or i >= len(node.next_edges):
        return grad
    child, number = node.next_edges[i]
    if child is None:
        return grad
    meta = child.avals[number]
    if grad.shape != meta.shape or grad.dtype != meta.dtype:
        return validate_output(grad, meta, node, i, arithmetic)
    return grad
