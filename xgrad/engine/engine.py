"""The autograd engine: runs backward from roots to leaves, in PyTorch's order (torch/csrc/autograd/engine.cpp).

Among ready nodes the one with the larger sequence number runs first, so later forward operations come first; leaves
come at once.  One host thread drives a task: JAX's dispatch is asynchronous already.  A backward inside a hook or a
custom Function runs to its end first, on the same thread, or on a new one every `HOP` levels, so that no depth exceeds
Python's recursion limit.

Gradients travel between nodes as bare arrays; hooks and custom Functions see Tensors.  Where a gradient is more than
its value (it is recorded, or has tangents or batches) it travels as a Tensor (`GraphTask.arithmetic`).  Arrays that
users hold (a root gradient, a hook's result) are copied when they enter.  So an array in an input buffer may be donated
if the buffer has the only reference to it.
"""

import threading
from typing import Any

from ..config import state
from ..execution.runner import runner, suspended, together
from ..tensor import Tensor
from . import anomaly
from .arithmetic import Arithmetic
from .evaluate import capture, evaluate_watched, evaluate_with_hooks, right_count
from .graph_task import ExecInfo, GraphTask
from .node import MAX_SEQUENCE_NR, InternalNode, Node
from .programs.ahead import prepare
from .programs.run import run as run_as_programs
from .programs.schedule import follow
from .transcript import begin
from .validate import validate_output

HOP = 24  # reentrant levels on one thread


class GraphRoot(InternalNode):
    """The virtual node whose results are the root gradients."""

    sequence_nr = MAX_SEQUENCE_NR

    def __init__(self, edges: tuple[Any, ...]) -> None:
        self.next_edges = edges

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        return grads


def execute(
    edges: tuple[Any, ...],
    grads: list[Tensor | None],
    *,
    keep_graph: bool,
    create_graph: bool,
    outputs: list[tuple[Any, ...]],
    accumulate_grad: bool,
) -> list[Any]:
    """Run backward from `edges` with the root gradients `grads`.

    `outputs` are edges to be captured, or with `accumulate_grad` to be executed; empty means everything.
    Returns the captured gradients as Tensors, None where none arrived.
    """
    outer = state.graph_task
    depth = 0 if outer is None else outer.depth + 1
    task = GraphTask(keep_graph, create_graph, depth)
    root = GraphRoot(edges)
    task.root = root
    arithmetic = task.arithmetic
    values = []
    for grad in grads:
        values.append(arithmetic.from_tensor(grad))

    def again(block: Any) -> list[Any]:
        values.clear()
        with block:
            return execute(
                edges, grads, keep_graph=keep_graph, create_graph=create_graph, outputs=outputs,
                accumulate_grad=accumulate_grad,
            )  # fmt: skip

    # A declared backend asks of each node's program what it lacks.
    declared = runner.on_backend(values)
    if declared and state.compiled is not None and not state.together and not arithmetic.tensors:
        return again(together("the end of a compiled backward"))
    if state.compiled is not None and not declared and not arithmetic.tensors and not anomaly.watched():
        task.compiled = state.compiled
        if follow(task, edges, values, outputs, accumulate_grad):
            return _gradients(task, arithmetic)
    queue = None if declared or depth or task.compiled is not None else runner.queue()
    if queue is not None and not queue.fuse:
        return again(suspended("a backward"))
    if queue is not None and not arithmetic.tensors and not anomaly.watched():
        found = begin(queue, task, edges, values, outputs, accumulate_grad)
        if found is True:
            values.clear()
            return _gradients(task, arithmetic)
        task.recording = found or None
    task.compute_dependencies(root)
    if outputs:
        task.init_to_execute(root, outputs, accumulate_grad)
        if not task.exec_info.get(root, ExecInfo()).should_execute:
            task.exec_info.setdefault(root, ExecInfo()).needed = True
    if task.compiled is None and not arithmetic.tensors:
        prepare(task, values)
    if depth and depth % HOP == 0:
        _on_fresh_thread(task, root, values)
    else:
        _drive(task, root, values)
    return _gradients(task, arithmetic)


def _gradients(task: GraphTask, arithmetic: Arithmetic) -> list[Tensor | None]:
    """Return the captured gradients as Tensors, None where none arrived."""
    captured = task.captured
    return [arithmetic.into_tensor(captured, i) for i in range(len(captured))]


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
    """Run a task in its own modes, and restore the caller's, also where hooks and Functions left modes switched."""
    previous = state.graph_task, state.grad_enabled, state.current_node
    task.modes = state.__dict__.copy()
    state.graph_task, state.grad_enabled = task, task.create_graph and not state.inference
    try:
        _distribute(task, root, values)
        values.clear()  # the caller's frame has the list, too
        try:
            if task.compiled is not None:
                run_as_programs(task)
            elif task.recording is None:
                _loop(task, evaluate_with_hooks)
            else:
                _record(task)
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
        if task.users_code or task.arithmetic.tensors:
            try:
                state.put_back(task.modes)
            except BaseException:
                state.put_back(task.modes)
                raise


def _record(task: GraphTask) -> None:
    """Run the nodes, and store what they note in a lazy queue for the next backward."""
    recording, failed = task.recording, True
    try:
        _loop(task, recording.defer)
        failed = False
    finally:
        recording.finish(task, failed)


def _loop(task: GraphTask, evaluate: Any) -> None:
    """Run ready nodes until there are none; `evaluate` those with hooks, and leaves that wait until the end."""
    not_ready, exec_info = task.not_ready, task.exec_info
    keep_graph, arithmetic = task.keep_graph, task.arithmetic
    tensors = arithmetic.tensors
    watched = anomaly.watched()  # asked once for each run
    recording = task.recording is not None
    if watched:
        evaluate = evaluate_watched
    while True:
        node = task.next
        if node is None:
            return
        # `pop` and, in `_distribute`, `push` are called only where the heap is: 1000 tiny nodes take 6 % less.
        if task.heap:
            task.pop()
        else:
            task.next = None
        inputs = not_ready.pop(node)
        needs = -1
        state.current_node = node
        if exec_info:
            info = exec_info.get(node)
            if info is None or not info.should_execute:
                continue
            if info.captures is not None:
                capture(task, node, info, inputs)
                if task.users_code:
                    task.put_modes_back()
                if not info.needed:
                    continue
            needs = task.needs(node)
        if watched or node._hooks is not None or (node.is_accumulator and (recording or node.variable._hooks)):
            results = evaluate(task, node, inputs, needs)
        else:
            results = node.apply(inputs, needs, arithmetic)
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
    arithmetic = task.arithmetic
    edges = node.next_edges
    if len(results) != len(edges):
        results = right_count(node, results)
    # Each reference is dropped once its gradient is in a buffer: an array with one reference may be donated.
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
                grad = validate_output(grad, meta, node, i, arithmetic)
            if buffer[number] is None:
                buffer[number] = grad
            else:
                box = [grad]
                del grad
                arithmetic.add(buffer, number, box)
                del box
            grad = None
        left = dependencies[child] - 1
        if left:
            dependencies[child] = left
        elif task.next is None:
            task.next = child
        else:
            task.push(child)


def queue_callback(callback: Any) -> None:
    """Call `callback()` when the running backward ends.  Raises `RuntimeError` outside of backward."""
    task = state.graph_task
    if task is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    task.callbacks.append(callback)


def current_graph_task_id() -> int:
    """The id of the running backward, -1 outside."""
    return -1 if state.graph_task is None else state.graph_task.id
