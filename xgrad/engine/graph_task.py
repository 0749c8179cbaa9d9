"""GraphTask: records for one call of backward or grad which nodes run, what each waits for, and what is returned.

If `exec_info` is empty all nodes run.  Otherwise the *needed* nodes run, and the requested gradients are captured:
`backward(inputs=)` marks nodes as needed, `grad(...)` captures (PyTorch: torch/csrc/autograd/graph_task.h).
"""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

from ..config import INFERENCE_LEVEL, state
from .arithmetic import ARRAYS, TENSORS, Arithmetic
from .node import Node

_ids = itertools.count()
_order = itertools.count()  # among equal sequence numbers the first queued runs first


class ExecInfo:
    """The part of a node in a run: whether it is needed, and its captured inputs, as {input number: places in the
    results}."""

    __slots__ = ("captures", "needed")

    def __init__(self) -> None:
        self.needed: bool = False
        self.captures: dict[int, list[int]] | None = None

    @property
    def should_execute(self) -> bool:
        return self.needed or self.captures is not None


class GraphTask:
    """One run of the engine."""

    __slots__ = (
        "__weakref__",  # recompute.py finds the tensors that it recomputed during a run by the run's task
        "arithmetic",
        "callbacks",
        "captured",
        "compiled",
        "create_graph",
        "dependencies",
        "depth",
        "exec_info",
        "heap",
        "id",
        "keep_graph",
        "line",
        "modes",
        "next",
        "not_ready",
        "recording",
        "root",
        "schedule",
        "users_code",
    )

    def __init__(self, keep_graph: bool, create_graph: bool, depth: int) -> None:
        self.id: int = next(_ids)
        self.keep_graph: bool = keep_graph
        self.create_graph: bool = create_graph
        more_than_values = create_graph or 0 <= state.forward_level < INFERENCE_LEVEL or state.vmap_levels
        self.arithmetic: Arithmetic = TENSORS if more_than_values else ARRAYS
        self.users_code = False  # users' code has run in the present node, and may have left modes switched
        self.line: Any = None  # of the user's program that called backward, once a lazy queue has looked for it
        self.modes: dict[str, Any] = {}  # the thread's `state` when the run began
        self.depth: int = depth
        self.dependencies: dict[Node, int] = {}
        self.exec_info: dict[Node, ExecInfo] = {}
        self.captured: list[Any] = []
        self.callbacks: list[Callable[[], Any]] = []
        self.not_ready: dict[Node, list[Any]] = {}
        self.root: Any = None  # the virtual node whose results are the root gradients
        self.compiled: Any = None  # the options of a compiled run
        self.schedule: Any = None  # a Schedule that a compiled backward makes for the next one
        self.recording: Any = None  # the Recording of a backward in a lazy block
        self.next: Node | None = None  # the node to run next; the others are in a heap
        self.heap: list[Any] = []

    def put_modes_back(self) -> None:
        """Restore this run's modes after a node in which users' code may have switched them."""
        self.users_code: bool = False
        state.put_back(self.modes)
        state.grad_enabled = self.create_graph and not state.inference

    def push(self, node: Node) -> None:
        """Queue a node whose gradients are complete: larger sequence numbers run first."""
        first = self.next
        if first is None:
            self.next = node
        elif node.sequence_nr > first.sequence_nr:
            self.next = node
            heapq.heappush(self.heap, (-first.sequence_nr, next(_order), first))
        else:
            heapq.heappush(self.heap, (-node.sequence_nr, next(_order), node))

    def pop(self) -> Node | None:
        """The node to run next, None when all have run."""
        node = self.next
        if node is not None:
            self.next = heapq.heappop(self.heap)[2] if self.heap else None
        return node

    def compute_dependencies(self, root: Node) -> None:
        """Count, for each node below `root`, the edges on which gradients will arrive."""
        counts = self.dependencies
        stack = [root]
        while stack:
            for child, _ in stack.pop().next_edges:
                if child is not None:
                    if child in counts:
                        counts[child] += 1
                    else:
                        counts[child] = 1
                        stack.append(child)

    def init_to_execute(self, root: Node, outputs: list[tuple[Any, ...]], accumulate: bool) -> None:
        """Fill exec_info: capture `outputs` (with `accumulate`: execute them), and mark all nodes above them as needed.

        A node is needed if one of its children is to be executed, so children are examined first.
        """
        info = self.exec_info
        self.captured = [None] * len(outputs)
        for place, (node, number) in enumerate(outputs):
            entry = info.setdefault(node, ExecInfo())
            if accumulate:
                entry.needed = True
            else:
                entry.captures = entry.captures or {}
                entry.captures.setdefault(number, []).append(place)
        left, order = dict(self.dependencies), [root]
        for node in order:  # `order` grows while it is read: parents come before children
            for child, _ in node.next_edges:
                if child is not None:
                    count = left[child] = left[child] - 1
                    if not count:
                        order.append(child)
        needed = ExecInfo()
        needed.needed = True
        for node in reversed(order):
            for child, _ in node.next_edges:
                if child in info:
                    info.setdefault(node, needed).needed = True
                    break

    def will_execute(self, node: Node) -> bool:
        """Return whether this run evaluates `node`, or captures a gradient there."""
        if not self.exec_info:
            return node in self.dependencies
        entry = self.exec_info.get(node)
        return node in self.dependencies and entry is not None and entry.should_execute

    def execution_order(self) -> list[Node]:
        """List all nodes that this run evaluates, in order, including those that have run already."""
        twin = GraphTask(self.keep_graph, self.create_graph, self.depth)
        twin.compute_dependencies(self.root)
        counts, order = twin.dependencies, []
        node = self.root
        while node is not None:
            for child, _ in node.next_edges:
                if child is None or (self.exec_info and not self.will_execute(child)):
                    continue
                counts[child] -= 1
                if not counts[child]:
                    twin.push(child)
            node = twin.pop()
            if node is not None:
                order.append(node)
        return order

    def needs(self, node: Node) -> int:
        """A mask: bit i is set if the gradient for edge i of `node` is wanted."""
        mask = 0
        info = self.exec_info
        for i, (child, _) in enumerate(node.next_edges):
            if child is not None:
                entry = info.get(child)
                if entry is not None and entry.should_execute:
                    mask |= 1 << i
        return mask
