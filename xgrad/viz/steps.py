"""Lists the steps of a backward for `viz.backward`, without values: which node runs, what arrives, what is released.

The order is the engine's own: a GraphTask counts the dependencies and has the queue of nodes that are ready, as in
engine/engine.py.  Gradients have no values here, so each is taken to be defined.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..base.table import size
from ..engine.edges import gradient_edge
from ..engine.graph_task import GraphTask
from ..engine.node import Node
from ..tensor import Tensor
from .graph import hooks_of, task_of, title_of
from .names import Names
from .saved import saved_of, shape_of


class Step(NamedTuple):
    """One node's turn: its number (-1: the start), what happens, and the nodes that are ready (65 at most) or wait."""

    node: int
    title: str
    events: list[str]
    ready: list[int]
    waiting: list[tuple[int, int, int]]  # (node, gradients that have arrived, gradients that will)
    released: int  # bytes so far


_BEFORE = ("tensor hook", "retains", "pre-hook")


def steps_of_backward(
    outputs: Sequence[Tensor], names: Names, nodes: list[Node], inputs: Sequence[Tensor] | None, keep_graph: bool
) -> list[Step]:
    """Return the steps; a node's number is its place in `nodes`."""
    task = task_of(outputs, keep_graph)
    if inputs:
        task.init_to_execute(task.root, [gradient_edge(tensor) for tensor in inputs], True)
    return _Simulation(task, nodes, names, keep_graph).run()


class _Simulation:
    def __init__(self, task: GraphTask, nodes: list[Node], names: Names, keep_graph: bool) -> None:
        self.task, self.names, self.keep_graph = task, names, keep_graph
        self.number: dict[Node, int] = {node: i for i, node in enumerate(nodes)}
        self.total: dict[Node, int] = dict(task.dependencies)
        self.buffers: dict[Node, set[int]] = {}
        self.released: dict = {}

    def run(self) -> list[Step]:
        task = self.task
        steps = [self._step(-1, "start", self._send(task.root))]
        while (node := task.pop()) is not None:
            self.buffers.pop(node, None)
            if task.exec_info and not task.will_execute(node):
                continue
            steps.append(self._step(self.number[node], self.title(node), self._events(node)))
        return steps

    def title(self, node: Node) -> str:
        name = self.names.of(node.variable) if node.is_accumulator else ""
        return f"{title_of(node)} of {name}" if name else title_of(node)

    def _step(self, number: int, title: str, events: list[str]) -> Step:
        task = self.task
        ready = [] if task.next is None else [task.next, *(entry[2] for entry in sorted(task.heap)[:64])]
        waiting = [
            (self.number[node], self.total[node] - task.dependencies[node], self.total[node])
            for node in self.buffers
            if task.dependencies[node]
        ]
        return Step(number, title, events, [self.number[node] for node in ready], waiting, sum(self.released.values()))

    def _events(self, node: Node) -> list[str]:
        hooks = [text for text, _ in hooks_of(node)]
        events = [self._hook(text) for text in hooks if text.startswith(_BEFORE)]
        if node.is_accumulator:
            variable = node.variable
            name = self.names.of(variable) or "the leaf"
            events.append(f"adds to {name}.grad" if variable._grad is not None else f"{name}.grad is the gradient")
        else:
            count = sum(self._receives(child) for child, _ in node.next_edges)
            events.append(f"computes {count} gradient{'s' * (count != 1)}")
        events += [self._hook(text) for text in hooks if not text.startswith(_BEFORE)]
        if not self.keep_graph:
            saved = [entry for entry in saved_of(node) if entry.identity is not None]
            if saved:
                for entry in saved:
                    self.released[entry.identity] = max(entry.nbytes, self.released.get(entry.identity, 0))
                events.append("releases " + ", ".join(f"{entry.name} {size(entry.nbytes)}" for entry in saved))
        return events + self._send(node)

    def _hook(self, text: str) -> str:
        return "keeps the gradient in .grad" if text == "retains grad" else f"calls {text}"

    def _receives(self, child: Node | None) -> bool:
        return child is not None and (not self.task.exec_info or self.task.will_execute(child))

    def _send(self, node: Node) -> list[str]:
        """Put a node's gradients into the buffers of the next ones, as the engine's `_distribute` does."""
        task, events = self.task, []
        for child, number in node.next_edges:
            if not self._receives(child):
                continue
            buffer = self.buffers.setdefault(child, set())
            aval = child.avals[number]
            what = f"{shape_of(aval.shape, aval.dtype)} → {self.title(child)}"
            events.append(f"{what}, added to the buffer" if number in buffer else what)
            buffer.add(number)
            task.dependencies[child] -= 1
            if not task.dependencies[child]:
                task.push(child)
        return events
