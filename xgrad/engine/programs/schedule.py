"""Schedule: caches the compiled programs of a backward over a retained graph, for the next one over the same graph.

It has the programs of the segments (runs of nodes), the nodes whose operands they take, and their gradients.  Finding
order, structure and programs again takes two thirds of the time of a compiled backward of small nodes.

Invariants: once it is complete (`keep`), it belongs to the root node, and refers to the nodes below but not to the root
itself, so no cycle arises, nor to arrays; and it is used only while hooks, packed tensors and the leaves' metadata are
the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..arithmetic import ARRAYS
from ..graph_task import GraphTask
from ..node import Node
from . import segment


class Part(NamedTuple):
    """One segment.  Gradients are numbered in the order in which they are computed; the root's is number 0."""

    function: Callable[..., Any]
    entries: list[tuple[Node | None, list[int]]]  # in order: a node (None: the root), the gradients that it takes
    leaving: list[int]  # earlier gradients that are added to the segment's results


class Schedule:
    """One backward from one root."""

    def __init__(self, root: Node, grad: Any, asked: tuple[Any, ...]) -> None:
        self.asked = asked
        self.parts: list[Part] = []
        # A leaf (places: None) or a captured node (None: the root), its metadata, places, number of its gradient.
        self.sinks: list[tuple[Any, Any, Any, int]] = []
        # Only while it is recorded:
        self.root: Node | None = root
        self.numbers: dict[int, int] = {}  # id of an array -> its number
        self.arrays: list[Any] = []
        self.number([grad])

    def number(self, arrays: list[Any]) -> None:
        """Number new gradients.  A list refers to them until the schedule is complete, so their ids stay theirs."""
        for array in arrays:
            self.numbers[id(array)] = len(self.arrays)
            self.arrays.append(array)

    def keep(self, root: Any) -> None:
        """Complete the schedule, and store it in the root."""
        self.root, self.numbers, self.arrays = None, {}, []
        root._schedule = self

    def evaluate(self, root: Node, grad: Any) -> list[Any] | None:
        """Compute all gradients; None if hooks, leaves or saved tensors have changed.  Changes no leaf and no node."""
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
        except Exception:  # the nodes run one by one then, and raise the right error
            return None
        metrics = segment.metrics
        metrics.backwards += 1
        metrics.segments += len(self.parts)
        metrics.hits += len(self.parts)
        metrics.nodes += sum(len(part.entries) for part in self.parts)
        return grads

    def serve(self, task: GraphTask, grads: list[Any]) -> None:
        """Deliver gradients to leaves and captures; each then has the only reference to its gradient."""
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


def follow(
    task: GraphTask, edges: tuple[Any, ...], values: list[Any], outputs: list[tuple[Any, ...]], accumulate: bool
) -> bool:
    """Run the schedule of the last backward over this graph.  If there is none, begin one and return False."""
    root, number = edges[0]
    if len(edges) > 1 or root.is_accumulator or getattr(values[0], "aval", None) is None:
        return False
    # A node below the root lives as long as the root does, so its id identifies it.
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
