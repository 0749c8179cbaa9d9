"""call_pair: runs an operator on two plain tensors faster than `call` (call.py), which takes any arguments.

It does the same as `call` for two Tensors without static arguments, and calls `call` in all other cases.  It saves a
loop, a list and a test of the mask, 0.5 µs of 2.7 around a kernel of 4.4 µs.
"""

from typing import Any

from ..base.dtypes import INEXACT_KINDS
from ..config import state
from ..engine.edges import gradient_edge
from ..execution.runner import runner
from ..tensor import Tensor, blank
from .call import call
from .narrow_sums import first_of
from .operator import Operator
from .record import NO_EDGE, save_for_backward, versions_of


def call_pair(op: Operator, a: Any, b: Any) -> Any:
    """`call(op, (a, b), ())`."""
    if a.__class__ is not Tensor or b.__class__ is not Tensor or state.forward_level >= 0:
        return call(op, (a, b), ())
    queue = None
    if not runner.plain:
        queue = state.queue or runner.queue()
        if runner.backends or state.operator_mode is not None or state.trace is not None:
            return call(op, (a, b), ())
    x, y = a._array, b._array
    if x is None or y is None:
        return call(op, (a, b), ())  # a view, or a base that has views
    try:
        kernel = op.kernels[()]
        if queue is None:
            out = kernel.run(x, y)
        elif kernel.program.lazy:
            out = queue.note(kernel.program, (x, y), (a, b))
        else:
            return call(op, (a, b), ())
    except Exception:
        return call(op, (a, b), ())  # the first call makes the kernel, and explains errors
    result = blank(Tensor)
    result._array = out
    left, right = a._requires_grad, b._requires_grad
    if (left or right) and kernel.differentiable and state.grad_enabled and out.aval.dtype.kind in INEXACT_KINDS:
        plan = kernel.plans.get(left + 2 * right) or kernel.plan(left + 2 * right, 2)
        node = kernel.node_class()
        node.plan = plan
        node.avals = (out.aval,)
        node.sequence_nr = state.next_sequence_nr()
        node.next_edges = (gradient_edge(a) if left else NO_EDGE, gradient_edge(b) if right else NO_EDGE)
        result._grad_fn = node
        result._requires_grad = True
        if plan.saves_result or plan.static or state.saved_hooks:
            save_for_backward(plan, node, (a, b), (result,) if plan.saves_result else ())
        elif plan.pick is not None:
            node.saved = plan.pick((a, b))
            if a._version_counter is not None or b._version_counter is not None:
                node.versions = versions_of(node.saved)
    return result


def call_adding_pair(op: Operator, a: Any, b: Any) -> Any:
    """`call_pair` of an operator whose program may report that a sum of integers does not fit."""
    result = call_pair(op, a, b)
    if result.__class__ is Tensor and result._array.__class__ is tuple:
        return first_of(op, result._array)
    return result
