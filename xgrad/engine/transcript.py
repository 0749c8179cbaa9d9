"""Transcript: caches the operations that a backward queues in a lazy block; the next equal backward skips the engine.

A lazy block collects operations in a queue, and runs them later as one program.  A training loop queues the same
backward in each step.  To find its operations, the engine runs the nodes: order, plans, programs, shapes and sums, some
20 µs for a node.  A transcript has the queue's entries for one backward.  The next backward computes its outline, a key
of everything that they depend on; if it is known, the entries are appended in one piece.

    outline of the graph  ──►  known:    Transcript.replay: the same entries; the leaves' gradients are new
                               unknown:  the engine's loop; leaves wait until its end; then a new Transcript

Invariants: an outline has all that chooses the programs (plans, chains, shapes, edges, order), and where in the queue
each operand is, so the entries are the same to the last number; saved floats are operands, which may change.  If an
entry has an operand that the outline lacks, no transcript is stored.  A graph with hooks, custom Functions or packed
tensors has none.
"""

import sys
from typing import Any

from ..config import state
from ..execution.codes import flat
from ..execution.pending import Pending
from ..execution.queue import Queue
from ..execution.source import outside
from .arithmetic import ARRAYS
from .graph_task import GraphTask
from .node import Node

MOST, MOST_ENTRIES = 128, 20_000  # transcripts that are cached, and entries of them all
PATIENCE = 32  # new structures in a row, after which one in 8 backwards is looked for
_FLOATS = (float, complex)
_UNKNOWN: Any = object()  # in place of a number
_known: dict[tuple[Any, ...], "Transcript"] = {}
_misses = [0]  # in a row: a loop whose structures never repeat pays for few outlines


class Outline:
    """All that determines the operations of a backward: `key`."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.nodes: list[Node] = []
        self.leaves: list[Node] = []
        self.floats: list[Any] = []  # among the operands
        self.numbers: set[Any] = set()  # of the operands, in the queue; integers as (type, value)
        self.key: tuple[Any, ...] = ()
        self.known: Transcript | None = None  # of an earlier backward with this key

    def complete(
        self, edges: tuple[Any, ...], values: list[Any], outputs: list[tuple[Any, ...]], accumulate: bool
    ) -> bool:
        """Find the key, and look it up.  Return False if backward depends on more than a key can have."""
        facts: list[Any] = []
        nodes, leaves, queue, floats = self.nodes, self.leaves, self.queue, self.floats
        operands, places = values.copy(), {}
        add = facts.append
        first, waiting = None, iter(nodes)  # the list grows while it is read
        while True:
            for child, number in edges:
                if child is None:
                    add(None)
                    continue
                place = places.get(child)
                if place is None:
                    place = places[child] = len(nodes)
                    nodes.append(child)
                add(place)
                add(number)
            node = next(waiting, None)
            if node is None:
                break
            if node._hooks is not None or not node.outline(facts, operands):
                return False
            edges = node.next_edges
            if edges:
                if first is None:
                    first = node.sequence_nr
                add(node.sequence_nr - first)
            else:
                leaves.append(node)
        for node, number in outputs:
            facts += (places.get(node), number)
        line = outside(sys._getframe(2))  # of the user's program, which called backward
        facts += (accumulate, *((id(line[0]), line[1]) if line else (None, None)))
        seen: dict[int, int] = {}
        known = queue.known
        for x in operands:
            kind = x.__class__
            if kind is Pending and x.queue is queue:
                add(x.number)
                add(x.aval)
                if x.place:
                    add(x.place)
            elif kind in _FLOATS:
                facts += (kind, seen.setdefault(id(x), len(floats)))  # two of one object stay so
                floats.append(x)
            elif x is None or kind in (int, bool):
                facts += (kind, x)
            elif (named := known.get(id(x)) or queue.named(x)) is not None:
                facts += named
            else:
                return False
        self.key = (len(queue.entries), len(queue.inputs), queue.x64, *facts)
        self.known = _known.get(self.key)
        if self.known is None:
            self.numbers = {queue.code(x) for x in operands}
        return True


class Transcript:
    """The entries that one backward added to the queue, and where among them its gradients are."""

    def __init__(
        self, start: int, entries: list[Any], inputs: list[Any], sinks: list[Any], captured: list[Any], ran: list[int]
    ) -> None:
        self.entries = entries  # with results that nothing refers to
        self.inputs = inputs  # for each input that they added: its aval, and its place among the floats or its value
        self.sinks = sinks  # for each leaf: its place among the leaves, the number of its gradient
        self.captured = captured  # numbers
        self.ran = ran  # the places of the nodes that ran, among the outline's
        numbers = [*captured, *[number for _, number in sinks]]
        # The entries whose results are gradients.
        self.asked: Any = sorted({(n >> 8) - start for n in numbers if n is not None and n >> 8 >= start})

    def replay(self, task: GraphTask, outline: Outline) -> bool:
        """Note the entries, release the nodes and deliver the gradients.  Return False if the queue has changed."""
        queue = outline.queue
        entries = self.entries.copy()
        for i in self.asked:
            program, codes, place, out, line = entries[i]
            entries[i] = program, codes, place, _results(out, queue, place), line
        inputs = [value if place is None else outline.floats[place] for _, place, value in self.inputs]
        if not queue.extend(entries, inputs, [aval for aval, _, _ in self.inputs], *outline.key[:2]):
            return False
        if not task.keep_graph:
            for place in self.ran:
                outline.nodes[place].release()
        boxes = [[queue.result(number)] for _, number in self.sinks]
        task.captured = [queue.result(number) for number in self.captured]
        previous = state.graph_task, state.grad_enabled
        state.graph_task, state.grad_enabled = task, False
        try:
            for (leaf, _), box in zip(self.sinks, boxes):
                outline.leaves[leaf].apply(box, -1, ARRAYS)
        finally:
            state.graph_task, state.grad_enabled = previous
        return True


def _results(out: Any, queue: Queue | None, place: int) -> Any:
    """Return pending results like `out` that belong to `queue`."""
    if out.__class__ is tuple:
        return tuple([_results(part, queue, place) for part in out])
    p = Pending(queue, out.number, out.aval)
    p.place = place
    return p


class Recording:
    """A backward that the engine's loop runs.  Its leaves get their gradients at the end."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.entries: Any = outline.queue.entries
        self.inputs: Any = outline.queue.inputs
        self.late: list[tuple[Node, list[Any]]] = []

    def defer(self, task: GraphTask, node: Node, inputs: list[Any], needs: int) -> tuple[Any, ...]:
        """Put a leaf off, in place of `evaluate_with_hooks`: the other nodes have no hooks."""
        self.late.append((node, inputs))
        return ()

    def finish(self, task: GraphTask, failed: bool) -> None:
        """Store a transcript of what has been noted, and deliver the leaves' gradients."""
        late = self.late
        if not failed:
            self._store(task)
        late.reverse()
        while late:
            node, inputs = late.pop()
            node.apply(inputs, -1, ARRAYS)

    def _store(self, task: GraphTask) -> None:
        """Store a transcript, if the outline has all that the entries depend on."""
        outline, queue = self.outline, self.outline.queue
        if queue.entries is not self.entries or queue.inputs is not self.inputs:
            return  # it has been evaluated
        start, first = outline.key[:2]
        inputs = []
        for x, aval in zip(self.inputs[first:], queue.kinds[first:]):
            place = next((i for i, y in enumerate(outline.floats) if y is x), None)
            if place is None and (x.__class__ not in (int, bool) or (x.__class__, x) not in outline.numbers):
                return
            inputs.append((aval, place, x if place is None else None))
        entries = []
        for program, codes, place, out, line in self.entries[start:]:
            for code in flat(codes):
                if -first <= code < start << 8 and code not in outline.numbers:
                    return
            entries.append((program, codes, place, _results(out, None, place), line))
        places = {leaf: i for i, leaf in enumerate(outline.leaves)}
        sinks = [(places[node], self._number(box[0])) for node, box in self.late]
        captured = [self._number(value) for value in task.captured]
        if _UNKNOWN in captured or any(number is _UNKNOWN for _, number in sinks):
            return
        info = task.exec_info
        ran = [i for i, node in enumerate(outline.nodes) if not info or (node in info and info[node].needed)]
        _known[outline.key] = Transcript(start, entries, inputs, sinks, captured, ran)
        stored = sum(len(known.entries) for known in [*_known.values()])
        for oldest in [*_known][:-1]:
            if len(_known) <= MOST and stored <= MOST_ENTRIES:
                break
            gone = _known.pop(oldest, None)
            stored -= 0 if gone is None else len(gone.entries)

    def _number(self, grad: Any) -> Any:
        """Return the number of a gradient: None if it is undefined."""
        if grad is None:
            return None
        outline = self.outline
        if grad.__class__ is not Pending or grad.queue is not outline.queue:
            return _UNKNOWN
        return grad.number if grad.number >> 8 >= outline.key[0] or grad.number in outline.numbers else _UNKNOWN


def begin(
    queue: Queue, task: GraphTask, edges: tuple, values: list, outputs: list, accumulate: bool
) -> Recording | bool:
    """Run a known backward of a lazy queue, and return True.

    Return the Recording of one that is not known, False for one that cannot be.
    """
    if not queue.entries or state.trace is not None:
        return False
    misses = _misses[0]
    if misses > PATIENCE:
        _misses[0] = misses + 1
        if misses % 8:
            return False
    outline = Outline(queue)
    try:
        if not outline.complete(edges, values, outputs, accumulate):
            return False
    except (RuntimeError, TypeError):  # a node raises its own error when it runs; a fact has no hash
        return False
    if outline.known is None:
        _misses[0] = misses + 1
        return Recording(outline)
    _misses[0] = 0
    return outline.known.replay(task, outline)
