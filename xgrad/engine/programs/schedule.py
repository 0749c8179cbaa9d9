"""Schedule: what a compiled backward found out about a graph that was kept, for the next one over the same graph.

It has the segments' programs, and which nodes give them operands and which gradients they take and give.  To find
order, structure and programs anew takes two thirds of the time of a compiled backward of small nodes.

Invariants: it belongs to the root node, and refers to the nodes below but not to the root itself, so there is no cycle;
it holds no arrays; and it is followed only while all is as it was: hooks, what is packed, what leaves expect.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..arithmetic import ARRAYS
from ..graph_task import GraphTask
from ..node import Node
from . import segment


class Part(NamedTuple):
    """One segment.  Gradients are numbers in the order in which they come to be; the root's is number 0."""

    function: Callable
    entries: list[tuple[Node | None, list[int]]]  # in order: a node (None: the root), and the gradients that it takes
    leaving: list[int]  # gradients from outside that are added to what leaves


class Schedule:
    """One backward from one root."""

    def __init__(self, root: Node, grad: Any, asked: tuple) -> None:
        self.asked = asked
        self.parts: list[Part] = []
        # A leaf (no places), or a node that is captured (None: the root); its meta, the places, the gradient.
        self.sinks: list[tuple[Any, Any, Any, int]] = []
        # Only while it is made:
        self.root: Node | None = root
        self.numbers: dict[int, int] = {}  # id of an array -> its number
        self.arrays: list[Any] = []
        self.number([grad])

    def number(self, arrays: list) -> None:
        """Number new gradients.  They are held until all is made, so that no other gets their ids."""
        for array in arrays:
            self.numbers[id(array)] = len(self.arrays)
            self.arrays.append(array)

    def keep(self, root: Any) -> None:
        """It is complete: from now on it belongs to the root."""
        self.root, self.numbers, self.arrays = None, {}, []
        root._schedule = self

    def evaluate(self, root: Node, grad: Any) -> list[Any] | None:
        """All gradients; None if something is not as it was.  Nothing is done to leaves or graph."""
        for node, meta, _, _ in self.sinks:
            node = node or root
            if node.is_watched() or (node.is_accumulator and node.avals[0] is not meta):
                return None
        grads = [grad]
        del grad
        try:
            for function, entries, leaving in self.parts:
                args: list[Any] = []
                for node, taken in entries:
                    node = node or root
                    if node._hooks:
                        return None
                    for number in taken:
                        args.append(grads[number])
                    args += node.operands(_refuse)
                for number in leaving:
                    args.append(grads[number])
                grads += function(*args)
        except Exception:  # whoever runs the nodes says what is wrong
            return None
        metrics = segment.metrics
        metrics.backwards += 1
        metrics.segments += len(self.parts)
        metrics.hits += len(self.parts)
        metrics.nodes += sum(len(part.entries) for part in self.parts)
        return grads

    def serve(self, task: GraphTask, grads: list[Any]) -> None:
        """Give leaves and captures their gradients, each of them held by nobody else."""
        mine = [grads[number] for _, _, _, number in self.sinks]
        grads.clear()
        for i, (node, _, places, _) in enumerate(self.sinks):
            box, mine[i] = [mine[i]], None
            if places is None:
                node.apply(box, -1, ARRAYS)
            else:
                for place in places:
                    task.captured[place] = box[0]


def _refuse(_node: Node) -> None:
    raise RuntimeError("a saved tensor was packed since")


def follow(task: GraphTask, edges: tuple, values: list, outputs: list[tuple], accumulate: bool) -> bool:
    """Run the schedule of the last backward over this graph; if there is none, False: then one will be made."""
    root, number = edges[0]
    if len(edges) > 1 or root.is_accumulator or getattr(values[0], "aval", None) is None:
        return False
    # A node below the root lives as long as the root does, so its id stands for it.
    asked = number, values[0].dtype, tuple((id(node), nr) for node, nr in outputs), accumulate, task.compiled.least
    schedule = root.__dict__.pop("_schedule", None)
    if schedule is not None and schedule.asked == asked and task.keep_graph:
        grads = schedule.evaluate(root, values[0])
        if grads is not None:
            root._schedule = schedule
            task.captured = [None] * len(outputs)
            values.clear()
            schedule.serve(task, grads)
            return True
    if task.keep_graph:
        task.schedule = Schedule(root, values[0], asked)
    return False
