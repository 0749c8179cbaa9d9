"""Records an operator's call in the autograd graph: makes its node, with edges and saved values."""

from typing import Any

from ..base.dtypes import INEXACT
from ..config import state
from ..engine.edges import gradient_edge
from ..engine.node import InputMetadata
from ..engine.saved_variable import SavedVariable
from ..tensor import Tensor
from .kernel import Kernel
from .plan import Plan

NO_EDGE = (None, 0)


def new_node(kernel: Kernel, needs: int, args: tuple[Any, ...], skip_self: bool = False) -> Any:
    """Make a node for a call; its results are attached later."""
    plan = kernel.plans.get(needs) or kernel.plan(needs, len(args))
    node = kernel.node_class() if kernel.overloads is None else kernel.class_for(args)()
    node.plan = plan
    node.sequence_nr = state.next_sequence_nr()
    edges = []
    for i, a in enumerate(args):
        if needs >> i & 1 and not (skip_self and i == 0):
            edges.append(edge := gradient_edge(a))
            if edge[0] is None and not node.plan.saves_result:
                node.plan = kernel.plan(node.plan.needs & ~(1 << i), len(args))
        else:
            edges.append(NO_EDGE)
    node.next_edges = tuple(edges)
    return node


def record_many(kernel: Kernel, needs: int, args: tuple[Any, ...], results: tuple[Any, ...]) -> None:
    """Record an operator with several results; integer results have no gradient."""
    if not any(r._dtype in INEXACT for r in results):
        return
    node = new_node(kernel, needs, args)
    node.avals = tuple(InputMetadata(tuple(r.shape), r._dtype) for r in results)
    constant = kernel.operator.constant
    for i, result in enumerate(results):
        if result._dtype in INEXACT and i not in constant:
            result._grad_fn, result._output_nr, result._requires_grad = node, i, True
    plan = node.plan
    if plan.saves_result:
        _save_many(plan, node, args, results)
    elif plan.saved or plan.static:
        save_for_backward(plan, node, args, ())


def _save_many(plan: Plan, node: Any, args: tuple, results: tuple) -> None:
    """Save arguments and results.  Results without a gradient (indices) have no node, and are saved as inputs are."""
    save_for_backward(plan, node, args, ())
    make = SavedVariable.packed if state.saved_hooks else SavedVariable
    chosen = results if plan.results is None else [results[i] for i in plan.results]
    saved = tuple(make(r, r._grad_fn is not None) for r in chosen)
    also_saved(node, saved)


def versions_of(saved: tuple[Any, ...]) -> tuple[int, ...]:
    versions = []
    for a in saved:
        counter = a._version_counter if isinstance(a, Tensor) else None
        versions.append(0 if counter is None else counter.value)
    return tuple(versions)


def _static(args: tuple) -> tuple[tuple, tuple]:
    """The shapes and dtypes of the arguments; () and None for a number."""
    shapes, kinds = [], []
    for a in args:
        if a.__class__ is Tensor and (array := a._array) is not None:
            aval = array.aval
            shapes.append(aval.shape)
            kinds.append(aval.dtype)
        else:
            shapes.append(tuple(a.shape) if isinstance(a, Tensor) else ())
            kinds.append(a._dtype if isinstance(a, Tensor) else None)
    return tuple(shapes), tuple(kinds)


def save_for_backward(
    plan: Plan, node: Any, args: tuple[Any, ...], results: tuple[Any, ...], weak_grad_fn: Any = None
) -> None:
    """Save the values that the plan names."""
    if plan.static:
        node.static = _static(args)
        if not (results or plan.saved):
            return
    if state.saved_hooks:
        node.saved = tuple(
            SavedVariable.packed(a, False) if isinstance(a, Tensor) else a for a in (args[i] for i in plan.saved)
        ) + tuple(SavedVariable.packed(r, True, weak_grad_fn) for r in results)
        node.versions = (0,) * len(node.saved)
        return
    saved = () if plan.pick is None else plan.pick(args)
    node.versions = versions_of(saved) + (0,) * len(results)
    for r in results:
        saved += (SavedVariable(r, True, weak_grad_fn),)
    node.saved = saved


def also_saved(node: Any, saved: tuple[Any, ...]) -> None:
    node.versions = (*(node.versions or (0,) * len(node.saved)), *(0 for _ in saved))
    node.saved = (*node.saved, *saved)
