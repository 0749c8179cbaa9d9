"""run: the engine's loop for `compiled_backward`, which collects nodes and runs many of them as one XLA program.

The order is the eager engine's, node for node.  A node with a formula is collected; its gradients are numbers that
stand for values of the future program.  A *border* needs arrays, so the collected nodes are evaluated first, as one
program: borders are hooks, packed saved tensors, custom Functions, other nodes without a formula, and the end of a
segment.  Leaves and captured gradients are not borders: they are delivered when the program has run.

    collected:   Tanh ─ Mul ─ Add ─┐ border: a hook ┌─ Tanh ─ Mul ─ ...
                 └─ one program ───┘                └─ the next one

A segment ends, hooks or not, at the first node, at least `least` nodes after the last end, whose predecessors have the
same classes as the predecessors of the last end.  So a stack of equal layers is one program, and a new hook changes the
segments around it and no others.
"""

from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ...config import state
from ...views.storage import Tracer, may_donate
from ..arithmetic import ARRAYS
from ..evaluate import capture, evaluate_with_hooks, right_count, validated
from ..graph_task import GraphTask
from ..input_buffer import DONATE_FROM, accumulate
from ..node import Node
from ..sparse_gradient import SparseGradient
from . import segment
from .schedule import Part, Schedule

CONTEXT = 4  # nodes that are compared where a segment may end


class Options(NamedTuple):
    """The settings of a compiled backward."""

    least: int  # nodes of a segment, which may have twice as many
    dump: Path | None  # a folder for the compiled programs, as text


class _Run:
    """One compiled backward.

    A pending gradient is a number (a value of the future program), an array, or a list of both, to be added in order.
    """

    def __init__(self, task: GraphTask) -> None:
        self.task = task
        self.least, self.dump = task.compiled
        self.schedule: Schedule | None = task.schedule  # being recorded, until the first border
        self.entries: list[tuple[Any, ...]] = []  # of its next part
        self.collected: list[tuple[Node, int]] = []  # with the places of their operands among `args`
        self.structure: list[tuple[Any, ...]] = []
        self.metas: list[Any] = []
        self.args: list[Any] = []
        self.count = 0  # of values
        self.sinks: list[tuple[Any, ...]] = []  # (leaf or captured node, places of a capture, [gradient], meta)
        self.unpacked: list[Node] = []  # nodes of the segment whose operands an unpack hook returned
        self.since = 0
        self.recent: deque[Any] = deque(maxlen=CONTEXT)
        self.mark: list[Any] | None = None
        # True after a sparse gradient, which no program takes.
        self.sparse = any(grad.__class__ is SparseGradient for inputs in task.not_ready.values() for grad in inputs)

    # ------------------------------------------------------------ the loop

    def loop(self) -> None:
        task = self.task
        not_ready, exec_info = task.not_ready, task.exec_info
        while True:
            if task.users_code:
                task.put_modes_back()
            node = task.pop()
            if node is None:
                self.flush()
                return
            needs = -1
            info = None
            if exec_info:
                info = exec_info.get(node)
                if info is None or not info.should_execute:
                    del not_ready[node]
                    continue
                needs = task.needs(node) if info.needed else 0
            if node.is_watched():
                self._run(node, info, needs)
                continue
            if info is not None and info.captures is not None:
                inputs = not_ready[node]
                for number, places in info.captures.items():
                    self.sinks.append((node, places, [inputs[number]], node.avals[number]))
                if not info.needed:
                    del not_ready[node]
                    continue
            if node.is_accumulator:
                if self.sparse and self._is_sparse(not_ready[node]):
                    self._run(node, None, needs)
                else:
                    inputs = not_ready.pop(node)
                    if inputs[0] is not None:
                        self.sinks.append((node, None, inputs, node.avals[0]))
                continue
            self._collect(node, needs)

    def _collect(self, node: Node, needs: int) -> None:
        """Collect a node, or run it if it has no formula."""
        not_ready = self.task.not_ready
        inputs = not_ready[node]
        given, bit = 0, 1
        for grad in inputs:
            if grad is not None:
                given |= bit
            bit += bit
        if not given:
            del not_ready[node]
            self._distribute(node, [None] * len(node.next_edges))
            return
        formula = node.formula(given, needs)
        if formula is None or (self.sparse and self._is_sparse(inputs)):
            self._run(node, None, needs)
            return
        try:
            operands = node.operands(self._unpacking)
        except BaseException:
            self.flush()  # the nodes before the failure have been evaluated
            raise
        args, before = self.args, len(self.args)
        self.structure.append((formula, tuple([self._part(grad) for grad in not_ready.pop(node)]), len(operands)))
        if self.schedule is not None:
            self.entries.append((None if node is self.schedule.root else node, self._numbers(args[before:])))
        self.collected.append((node, len(args)))
        args += operands
        self.metas += (node.avals, node.static)
        first, self.count = self.count, self.count + len(node.next_edges)
        self._distribute(node, [i if formula.defined >> i - first & 1 else None for i in range(first, self.count)])
        del inputs, operands  # the program may use up arrays without another reference
        self._step(node)

    def _step(self, node: Node) -> None:
        """Count a node, and end the segment if it is long enough and the last one ended so."""
        self.recent.append(node.__class__)
        self.since += 1
        if self.since >= self.least:
            here = list(self.recent)
            if self.mark is None or here == self.mark or self.since >= 2 * self.least:
                self.mark, self.since = here, 0
                self.flush()

    @staticmethod
    def _is_sparse(inputs: list) -> bool:
        for grad in inputs:
            if grad.__class__ is SparseGradient:
                return True
            if grad.__class__ is list and any(part.__class__ is SparseGradient for part in grad):
                return True
        return False

    def _part(self, grad: Any) -> Any:
        """Encode a gradient for the structure; arrays become arguments."""
        if grad.__class__ is int:
            return self.count - grad
        if grad is None:
            return None
        if grad.__class__ is list:
            return tuple([self._part(part) for part in grad])
        self.args.append(grad)
        return 0

    def _distribute(self, node: Node, results: list) -> None:
        """Send a node's results along its edges: numbers if it was collected, arrays if it was run."""
        task = self.task
        dependencies, not_ready, exec_info = task.dependencies, task.not_ready, task.exec_info
        for i, (child, number) in enumerate(node.next_edges):
            if child is None:
                continue
            if exec_info:
                info = exec_info.get(child)
                if info is None or not info.should_execute:
                    continue
            buffer = not_ready.get(child)
            if buffer is None:
                buffer = not_ready[child] = [None] * len(child.avals)
            grad, results[i] = results[i], None  # an array with no other reference may be used up
            if grad is not None:
                if grad.__class__ is not int:
                    self.sparse = self.sparse or grad.__class__ is SparseGradient
                    grad = validated(node, i, grad, ARRAYS)
                there = buffer[number]
                if there is None:
                    buffer[number] = grad
                elif there.__class__ is list:
                    there.append(grad)
                else:
                    buffer[number] = [there, grad]
                grad = there = None
            left = dependencies[child] - 1
            if left:
                dependencies[child] = left
            else:
                task.push(child)

    # ------------------------------------------------------------ borders

    def _unpacking(self, node: Node) -> None:
        segment.metrics.borders["packed saved tensor"] += 1
        self.schedule = None
        self.flush()
        self.unpacked.append(node)

    def _run(self, node: Node, info: Any, needs: int) -> None:
        """Evaluate all collected nodes, then run this node as the eager engine does."""
        task = self.task
        segment.metrics.borders["hook" if node.is_watched() else node.name()] += 1
        self.schedule = None
        self.flush()
        inputs = task.not_ready.pop(node)
        for number, grad in enumerate(inputs):
            if grad.__class__ is list:
                inputs[number] = _total(inputs, number)
        state.current_node = node
        if info is not None and info.captures is not None:
            capture(task, node, info, inputs)
            if not info.needed:
                return
        results = evaluate_with_hooks(task, node, inputs, needs)
        if not task.keep_graph:
            node.release()
        if len(results) != len(node.next_edges):
            results = right_count(node, results)
        self._distribute(node, list(results))
        if not node.is_accumulator:
            self._step(node)

    # ------------------------------------------------------------ evaluation

    def flush(self) -> None:
        """Evaluate the collected nodes in one program, and deliver gradients to leaves and captures."""
        collected, sinks = self.collected, self.sinks
        if not collected:
            self.sinks = []
            self._serve(sinks)
            return
        leaving, places, before = [], [], len(self.args)
        for node, buffer in self.task.not_ready.items():
            for number, grad in enumerate(buffer):
                if grad.__class__ is int or grad.__class__ is list:
                    self._leave(buffer, number, node.avals[number], leaving, places)
        for _, _, box, meta in sinks:
            self._leave(box, 0, meta, leaving, places)
        structure, metas, args = (tuple(self.structure), tuple(leaving)), tuple(self.metas), self.args
        self.structure, self.metas, self.args, self.collected, self.sinks, self.count = [], [], [], [], [], 0
        segment.metrics.nodes += len(collected)
        names, added, donated = [node.__class__ for node, _ in collected], [], ()
        misfits = [words for node in self.unpacked if (words := node.unpack_misfit())]
        self.unpacked = []
        grad = buffer = None  # drop references, as in `_collect`
        if self.schedule is not None:
            added = args[before:]
        elif not self.task.keep_graph:
            ours = _disposable(collected, args)
            for node, _ in collected:
                node.release()
            collected.clear()
            donated = _donated(args, ours, metas[len(metas) - len(leaving) :])
        try:
            function, results = segment.evaluate(structure, metas, donated, args, names, self.dump)
        except (TypeError, ValueError):
            if misfits:
                raise RuntimeError(misfits[0]) from None
            raise
        del args
        results = list(results)
        if self.schedule is not None:
            self._schedule(function, added, results)
        del added
        for i, (holder, index) in enumerate(places):
            holder[index], results[i] = results[i], None
        self._serve(sinks)

    def _schedule(self, function: Callable, added: list, results: list) -> None:
        """Add a segment to the schedule for the next backward over this graph."""
        entries, self.entries = self.entries, []
        numbers = self._numbers(added)
        if self.schedule is not None:
            self.schedule.parts.append(Part(function, entries, numbers))
            self.schedule.number(results)

    def _numbers(self, arrays: list) -> list[int]:
        """The schedule's numbers of gradients.  An array that no program computed ends the schedule."""
        assert self.schedule is not None
        numbers = [self.schedule.numbers.get(id(array)) for array in arrays]
        if None in numbers:
            self.schedule = None
        return numbers  # pyright: ignore[reportReturnType] - without None, if it counts

    def _leave(self, holder: list, index: int, meta: Any, leaving: list, places: list) -> None:
        """Make the gradient in `holder[index]` a result of the segment, unless it is an array already."""
        grad = holder[index]
        if grad.__class__ is list:
            if not any(part.__class__ is int for part in grad):
                return  # arrays only: they are added when the sum is needed
            if any(part.__class__ is SparseGradient for part in grad):
                for i in range(len(grad)):
                    self._leave(grad, i, meta, leaving, places)
                return
        elif grad.__class__ is not int:
            return
        leaving.append(self._part(grad))
        self.metas.append(meta)
        places.append((holder, index))

    def _serve(self, sinks: list) -> None:
        """Deliver gradients, which are arrays now, to leaves and captures."""
        for node, places, box, meta in sinks:
            if box[0].__class__ is list:
                box[0] = list(box[0])  # a node's input may be the same list
                box[0] = _total(box, 0)
            if self.schedule is not None:
                self._schedule_sink(node, meta, places, box[0])
            if places is None:
                node.apply(box, -1, ARRAYS)
            else:
                for place in places:
                    self.task.captured[place] = box[0]

    def _schedule_sink(self, node: Node, meta: Any, places: Any, grad: Any) -> None:
        numbers = self._numbers([grad])
        if self.schedule is not None:
            self.schedule.sinks.append((None if node is self.schedule.root else node, meta, places, numbers[0]))


def _disposable(collected: list, args: list) -> list[int]:
    """The places in `args` of large arrays that the graph or the engine made and no user has a reference to."""
    if any(isinstance(a, Tracer) for a in args):
        return []  # JAX may keep references to arrays that it meets together with a tracer
    large = [i for i, a in enumerate(args) if isinstance(a, jax.Array) and a.size >= DONATE_FROM]
    if large:
        others: set[int] = set()
        for node, start in collected:
            others.update(start + i for i, ours in enumerate(node.disposable()) if not ours)
        large = [i for i in large if i not in others]
    return large


def _donated(args: list, ours: list[int], leaving: tuple) -> tuple[int, ...]:
    """Choose arrays with no other reference whose memory a result of the segment can use."""
    wanted = Counter((tuple(meta.shape), meta.dtype) for meta in leaving) if ours else Counter()
    chosen = []
    for i in ours:
        kind = args[i].shape, args[i].dtype
        if wanted[kind] and may_donate(args, i):
            wanted[kind] -= 1
            chosen.append(i)
    return tuple(chosen)


def _total(inputs: list, number: int) -> Any:
    """Add the arrays of the list `inputs[number]`, in order, into memory with no other reference."""
    parts = inputs[number]
    inputs[number] = None
    parts.reverse()
    total = [parts.pop()]
    while parts:
        accumulate(total, 0, [parts.pop()])
    return total.pop()


def run(task: GraphTask) -> None:
    """Run all ready nodes and those that become ready, as `engine._loop` does."""
    segment.metrics.backwards += 1
    running = _Run(task)
    running.loop()
    if running.schedule is not None:
        running.schedule.keep(task.root.next_edges[0][0])
