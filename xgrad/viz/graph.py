"""viz.graph: draws the autograd graph of tensors, with the values that its nodes saved, their hooks and the views."""

from collections.abc import Sequence
from typing import Any

from ..base.table import size
from ..engine.copy_slices import CopySlices
from ..engine.edges import gradient_edge
from ..engine.engine import GraphRoot
from ..engine.graph_task import GraphTask
from ..engine.node import Node
from ..engine.python_function import BackwardCFunction
from ..engine.view_nodes import ChainBackward, ChainsBackward, RestridedBackward
from ..tensor import Tensor
from .chains import steps_of
from .drawing import Drawing
from .fold import folded
from .names import Names, names_for
from .saved import nbytes_of, of_tensor, saved_of, shape_of
from .scene import Box, Edge, Scene
from .text_width import shortened


def graph(
    y: Tensor | Sequence[Tensor], *, params: Any = None, fold: bool | None = None, direction: str = "down"
) -> Drawing:
    """Draw the graph behind a tensor, or behind several: what backward goes through, from results to leaves.

    A box is a node, an edge the way of a gradient with its shape (and dtype, where it is not float32).  A box says what
    its node saved for backward, with bytes, and which hooks it has.  Leaves have their names from `params`, a
    dictionary or a Module, else from the caller's variables.  Dashed edges lead from views to their bases; a CopySlices
    shows the chain of the view that was written, and the node of the write.  Nothing runs and nothing changes.

    Equal blocks of a large graph are folded: one is drawn, in a frame "× 12".  `fold=False` draws all of them,
    `fold=True` folds small graphs too.  `direction` is "down" or "right".

    Raises `RuntimeError` for a tensor that has no graph, `ValueError` for another direction.

    >>> import xgrad
    >>> w = xgrad.ones(3, 2, requires_grad=True)
    >>> drawing = xgrad.viz.graph((xgrad.ones(4, 3) @ w).tanh())
    >>> len(drawing.scene.boxes)
    4
    """
    outputs = outputs_of(y)
    names = names_for(params, 1)
    scene = folded(scene_of(outputs, names)[0], fold)
    scene.turn(direction)
    return Drawing(scene)


def outputs_of(y: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of an argument.  Raises `TypeError` for other objects."""
    found = [y] if isinstance(y, Tensor) else list(y) if isinstance(y, (list, tuple)) else []
    if not found or not all(isinstance(tensor, Tensor) for tensor in found):
        raise TypeError(f"expected a tensor, or a list of tensors, but got {type(y).__name__}")
    return found


def task_of(outputs: Sequence[Tensor], keep_graph: bool = True) -> GraphTask:
    """Return the task of a backward from these tensors, which has not run.  Raises `RuntimeError` without a graph."""
    edges = tuple(gradient_edge(tensor) for tensor in outputs)
    for tensor, (node, _) in zip(outputs, edges):
        if node is None:
            raise RuntimeError(
                f"a tensor of shape {list(tensor.shape)} has no graph: it does not require grad, or was made under "
                "no_grad. Give viz the result of operations on tensors that require grad."
            )
    task = GraphTask(keep_graph, False, 0)
    task.root = GraphRoot(edges)
    task.compute_dependencies(task.root)
    return task


def scene_of(outputs: Sequence[Tensor], names: Names) -> tuple[Scene, list[Node]]:
    """Return the scene of a graph, and its nodes in the order in which backward runs them.

    The members of a box are the numbers of its nodes in that order.
    """
    task = task_of(outputs)
    nodes = task.execution_order()
    scene = Scene()
    place: dict[Node, int] = {}
    roots = []
    for i, tensor in enumerate(outputs):
        name = names.of(tensor) or ("output" if len(outputs) == 1 else f"output {i}")
        lines = [(shape_of(tensor.shape, tensor.dtype), "plain")]
        if tensor._view is not None:
            lines.append((shortened(f"view: {' '.join(steps_of(tensor._view.chain)) or 'the whole'}"), "note"))
        roots.append(scene.add(Box("", "result", name=shortened(name), lines=lines, key=("result", i))))
    for i, node in enumerate(nodes):
        place[node] = scene.add(box_of(node, names, i))
    for root, (node, number) in zip(roots, task.root.next_edges):
        label = f"output {number}" if len(node.avals) > 1 else ""
        box = scene.boxes[place[node]]
        if box.kind != "leaf" and box.name == scene.boxes[root].name:
            box.name = ""  # once is enough
        scene.edges.append(Edge(root, place[node], label))
    for node in nodes:
        for i, (child, number) in enumerate(node.next_edges):
            if child is not None:
                label = _label(node, i, child, number)
                view = isinstance(node, (ChainBackward, ChainsBackward, RestridedBackward))
                scene.edges.append(Edge(place[node], place[child], label, dashed=view))
    scene.foot = [_summary(nodes)]
    return scene, nodes


def _label(node: Node, i: int, child: Node, number: int) -> str:
    aval = child.avals[number]
    shape = "" if child.is_accumulator else shape_of(aval.shape, aval.dtype)
    if isinstance(node, CopySlices) and not i:
        shape = f"base {shape}".strip()
    return f"{shape} · output {number}" if len(child.avals) > 1 else shape


def box_of(node: Node, names: Names, number: int) -> Box:
    """Return the box of a node."""
    if node.is_accumulator:
        return _leaf(node, names, number)
    title, kind = title_of(node), "operator"
    lines: list[tuple[str, str]] = []
    inner = None
    if isinstance(node, CopySlices):
        kind = "write"
        inner = Scene()
        steps = " ".join(steps_of(node.chain)) or "the whole base"
        lines.append((shortened(f"wrote {steps}"), "plain"))
        if node.fn is not None:
            inner.add(_plain(node.fn, names, number))
        else:
            lines.append(("released", "saved"))
            inner = None
    elif isinstance(node, (ChainBackward, RestridedBackward)):
        kind = "view"
        lines.append((shortened(" ".join(steps_of(node.chain)) or "the whole"), "plain"))
    elif isinstance(node, ChainsBackward):
        kind = "view"
        lines.append((f"{len(node.chains)} views", "plain"))
    else:
        return _plain(node, names, number)
    name = shortened(names.of_output(node, len(node.avals)))
    lines += hooks_of(node)
    key = (title, tuple(lines), None if inner is None else inner.boxes[0].key)
    return Box(title, kind, name, lines, inner, key, [number])


def _plain(node: Node, names: Names, number: int) -> Box:
    lines = [(str(saved), "saved") for saved in saved_of(node)]
    if isinstance(node, CopySlices):  # a write within a write
        inner = box_of(node, names, number)
        return inner
    lines += hooks_of(node)
    title = title_of(node)
    many = len(lines) - 8
    if many > 1:
        lines = [*lines[:8], (f"and {many} more", "note")]
    kind = "operator" if not isinstance(node, BackwardCFunction) else "result"
    name = shortened(names.of_output(node, len(node.avals)))
    return Box(title, kind, name, lines, None, (title, tuple(lines)), [number])


def title_of(node: Node) -> str:
    """Return the name of a node, without the namespace of PyTorch's C++ classes."""
    return node.name().removeprefix("torch::autograd::")


def _leaf(node: Any, names: Names, number: int) -> Box:
    variable = node.variable
    aval = node.avals[0]
    lines = [(shape_of(aval.shape, aval.dtype), "plain"), ("AccumulateGrad", "note"), *hooks_of(node)]
    return Box("", "leaf", shortened(names.of(variable) or "leaf"), lines, None, ("leaf", tuple(lines)), [number])


def hooks_of(node: Any) -> list[tuple[str, str]]:
    """Return a line for each hook of a node, in the order in which they run."""
    hooks, found = node._hooks, []
    if node.is_accumulator:
        found += [("tensor hook", hook) for hook in (node.variable._hooks or {}).values()]
    if hooks is not None:
        found += [("tensor hook", hook) for each in hooks.tensor.values() for hook in each.values()]
        found += [("retains grad", None) for _ in hooks.retain]
        found += [("pre-hook", hook) for hook in hooks.pre.values()]
    if node.is_accumulator:
        found += [("post-accumulate hook", hook) for hook in (node.variable._post_accumulate_hooks or {}).values()]
    if hooks is not None:
        found += [("post-hook", hook) for hook in hooks.post.values()]
    return [(shortened(kind if hook is None else f"{kind} {_hook_name(hook)}"), "hook") for kind, hook in found]


def _hook_name(hook: Any) -> str:
    return getattr(hook, "__name__", type(hook).__name__)


def _summary(nodes: list[Node]) -> str:
    """Say how many nodes there are, and how many bytes they saved; an array that several saved counts once."""
    seen: dict[Any, int] = {}
    for node in nodes:
        for saved in saved_of(node):
            if saved.identity is not None:
                seen[saved.identity] = max(saved.nbytes, seen.get(saved.identity, 0))
    leaves = {}
    for node in nodes:
        if node.is_accumulator:
            variable = node.variable
            leaves[of_tensor("", variable).identity] = nbytes_of(variable)
    total = sum(seen.values())
    own = sum(bytes_ for identity, bytes_ in seen.items() if identity in leaves)
    count = f"{len(nodes)} nodes" if len(nodes) != 1 else "1 node"
    return f"{count}, {size(total)} saved" + (f", {size(own)} of it by leaves" if own else "")
