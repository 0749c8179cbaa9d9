"""call: runs an operator on tensors: unwraps them, runs the kernel, wraps the results, and records an autograd node.

All but the kernel takes a few microseconds: a call makes a Tensor, and if it is recorded a node, three tuples and a
number.  Storages, version counters, SavedVariables and hook containers are made when they are needed.  A mask of bits,
not a tuple, marks the arguments that require grad.
"""

from typing import Any

from ..base.dtypes import INEXACT_KINDS
from ..base.limits import seen, unseen
from ..config import state
from ..engine.edges import gradient_edge
from ..engine.saved_variable import SavedVariable
from ..execution.runner import runner
from ..tensor import Tensor, blank, from_array
from ..views.storage import VersionCounter
from .forward_mode import forward
from .interpreter import interpret
from .kernel import Kernel, forget, kernel_of
from .kernel_errors import explain
from .narrow_sums import first_of
from .on_device import on_its_device
from .operands import NUMBERS, USUAL, numbers_that_fit
from .operator import Operator
from .record import NO_EDGE, record_many, save_for_backward, versions_of


def call(op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
    """Run an operator on Tensors and numbers; record it if a gradient may be asked for."""
    plain = runner.plain
    if not plain:
        if (mode := state.operator_mode) is not None:
            return mode.call(op, args, statics)
        if runner.backends:
            op = on_its_device(op, args)
    try:
        kernel = op.kernels[statics]
    except (KeyError, TypeError):
        kernel = kernel_of(op, statics)
    if not plain and state.trace is not None and _is_seen(kernel, args):
        with unseen():
            return call(op, args, statics)
    arrays = []
    needs, bit = 0, 1
    for a in args:
        if a.__class__ is Tensor:
            array = a._array
            arrays.append(a._read() if array is None else array)
            if a._requires_grad or (a._view is not None and a._view.base._requires_grad):
                needs |= bit
        elif a is None or a.__class__ in NUMBERS:
            arrays.append(a)
        else:
            return interpret(op, args, statics, call)
        bit += bit
    try:
        if plain:
            out = kernel.run(*arrays)
        elif (queue := state.queue) is not None and kernel.program.lazy and not runner.backends:
            out = queue.note(kernel.program, arrays, args)
        else:
            out = runner.run(kernel.program, arrays, args)
    except Exception as error:
        if isinstance(error, OverflowError) and (fitting := numbers_that_fit(op, args)) is not args:
            return call(op, fitting, statics)
        forget(op, statics)
        raise explain(error, op, arrays) from error.__cause__
    if out.__class__ is tuple:
        if op.overflows is not None:
            return first_of(op, out)
        return _several(kernel, needs, args, out)
    result = blank(Tensor)
    result._array = out
    if state.forward_level >= 0:  # before saving: a saved result has its tangent
        forward(kernel, args, (result,), call)
    if needs and kernel.differentiable and state.grad_enabled and (aval := out.aval).dtype.kind in INEXACT_KINDS:
        plan = kernel.plans.get(needs) or kernel.plan(needs, len(args))
        node = kernel.node_class() if kernel.overloads is None else kernel.class_for(args)()
        node.plan = plan
        node.avals = (aval,)
        node.sequence_nr = state.next_sequence_nr()
        edges = []
        for a in args if plan.alone else plan.only(args):
            if a is None:
                edges.append(NO_EDGE)
                continue
            edges.append(edge := gradient_edge(a))
            if edge[0] is None and not plan.saves_result:  # a view made under no_grad: no input is saved for it
                plan = node.plan = kernel.plan(plan.needs & ~(1 << len(edges) - 1), len(args))
        node.next_edges = tuple(edges)
        result._grad_fn = node
        result._requires_grad = True
        if state.saved_hooks:
            save_for_backward(plan, node, args, (result,) if plan.saves_result else ())
        elif plan.keeps_result and result._tangents is None:
            result._version_counter = counter = VersionCounter()
            node.saved = (SavedVariable.of_result(out, counter),)
        elif plan.saves_result or plan.static:
            save_for_backward(plan, node, args, (result,) if plan.saves_result else ())
        elif plan.pick is not None:
            saved = node.saved = plan.pick(args)
            for a in saved:
                if a.__class__ is Tensor and a._version_counter is not None:
                    node.versions = versions_of(saved)
                    break
    return result


def _is_seen(kernel: Kernel, args: tuple[Any, ...]) -> bool:
    """Return True if a trace sees this thread's frames, and the call has none of a user's."""
    return kernel.own and not state.saved_hooks and {*map(type, args)} <= USUAL and seen() is not None


def _several(kernel: Kernel, needs: int, args: tuple, out: tuple) -> Any:
    """Wrap and record the results of an operator that has several."""
    results = tuple(from_array(o) for o in out)
    if state.forward_level >= 0:
        forward(kernel, args, results, call)
    if needs and kernel.differentiable and state.grad_enabled:
        record_many(kernel, needs, args, results)
    return results if kernel.outputs is None else kernel.outputs(*results)
