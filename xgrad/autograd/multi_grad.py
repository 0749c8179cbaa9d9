"""register_multi_grad_hook: calls one hook for the gradients of several tensors (PyTorch: torch/autograd/graph.py).

Invariant: the gradients that a run of backward has collected belong to that run.  Several runs, in several threads or
one inside of the other, do not see each other's gradients, and the gradients of a run that failed end with it.
"""

import functools
from collections import deque
from collections.abc import Callable, Sequence
from operator import call
from typing import Any
from weakref import WeakKeyDictionary

from ..config import state
from ..engine.edges import GradientEdge, gradient_edge
from ..engine.hooks import RemovableHandle
from ..engine.node import Node
from ..tensor import Tensor
from .torch_c_names import _will_engine_execute_node


class MultiHandle(RemovableHandle):
    """Removes all hooks of one `register_multi_grad_hook`."""

    __slots__ = ("handles",)

    def __init__(self, handles: tuple[RemovableHandle, ...]) -> None:
        self.handles = handles

    def _close(self) -> Callable[[], Any]:
        return functools.partial(deque, map(call, [handle._close() for handle in self.handles]), 0)

    def __getstate__(self) -> Any:
        return self.handles

    def __setstate__(self, state: Any) -> None:
        self.handles: Any = state


def node_of(tensor: Tensor | GradientEdge) -> Node:
    """Return the node at which the gradient of `tensor` arrives: its `grad_fn`, or a leaf's accumulator."""
    if isinstance(tensor, GradientEdge):
        return tensor.node
    node = gradient_edge(tensor)[0]
    if node is None:
        raise AssertionError("Expected gradient function to be set: a tensor does not require grad")
    return node


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[[Any], Any], *, mode: str = "all"
) -> RemovableHandle:
    """Call `fn` once in each backward, for several tensors.

    `mode="all"`: `fn(grads)`, when this backward has computed the gradients of all `tensors` that it leads to; in the
    list, None stands for a tensor that it does not lead to or that got no gradient.  All tensors must require grad.
    `mode="any"`: `fn(grad)`, with the first of the gradients.  Tensors that require no grad are ignored.

    `fn` must not change its arguments, and its result is ignored.  The handle removes the hook.
    Raises `ValueError` for another mode, `AssertionError` in mode "all" for a tensor that does not require grad.

    >>> import xgrad
    >>> a, b = xgrad.ones(2, requires_grad=True), xgrad.ones(2, requires_grad=True)
    >>> c, d = a * b, a * b
    >>> def show(grads):
    ...     print([grad is not None for grad in grads])
    >>> handle = xgrad.autograd.graph.register_multi_grad_hook((a, b, c, d), show)
    >>> c.sum().backward(retain_graph=True)
    [True, True, True, False]
    >>> c.sum().backward(inputs=(a,), retain_graph=True)
    [True, False, True, False]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    if mode == "any":
        return _first_of(tensors, fn)
    nodes = [node_of(t) for t in tensors]
    runs: WeakKeyDictionary[Any, _Collected] = WeakKeyDictionary()

    def hook(i: int, grad: Tensor | None) -> None:
        task = _running()
        run = runs.get(task)
        if run is None:
            run = runs[task] = _Collected(len(nodes), sum(map(_will_engine_execute_node, nodes)))
        run.grads[i] = grad
        run.missing -= 1
        if not run.missing:
            del runs[task]
            fn(run.grads)

    return MultiHandle(tuple(t.register_hook(functools.partial(hook, i)) for i, t in enumerate(tensors)))


class _Collected:
    """The gradients of one run so far, and the number of those still to come."""

    __slots__ = ("grads", "missing")

    def __init__(self, count: int, missing: int) -> None:
        self.grads: list[Tensor | None] = [None] * count
        self.missing = missing


def _first_of(tensors: Sequence[Tensor], fn: Callable[[Tensor], Any]) -> RemovableHandle:
    runs: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    def hook(grad: Tensor) -> None:
        if runs.setdefault(task := _running(), True):
            runs[task] = False
            fn(grad)

    return MultiHandle(tuple(t.register_hook(hook) for t in tensors if t.requires_grad))


def _running() -> Any:
    if state.graph_task is None:
        raise AssertionError("expected this hook to be called inside a backward call")
    return state.graph_task
