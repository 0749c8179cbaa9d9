"""call_inplace: runs an operator's in-place form (`x.add_(y)`), which writes its first argument, and records it."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..base.dtypes import INEXACT, int32
from ..config import state
from ..engine.copy_slices import CopySlices
from ..engine.history import history_of_view, rebase_history
from ..engine.node import InputMetadata
from ..engine.saved_variable import SavedVariable, snapshot
from ..execution.donation import complete
from ..execution.runner import runner
from ..tensor import Tensor
from ..views.meta import check_inplace
from .call import call
from .forward_mode import forward, write_tangents
from .interpreter import interpret_inplace
from .kernel import Kernel, forget, kernel_of
from .kernel_errors import explain
from .on_device import on_its_device
from .operands import USUAL, numbers_that_fit, operand
from .operator import Operator
from .record import also_saved, new_node, save_for_backward


def call_inplace(op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Tensor:
    """Run an operator and write its result into its first argument, through its view chain.

    Order: does anything require grad → check_inplace → save (the *old* array of self: free here) → kernel → write,
    bump generation and version → rebase_history → forward mode → save results.
    """
    if not runner.plain and (mode := state.operator_mode) is not None:
        return mode.call_inplace(op, args, statics)
    usual = USUAL.issuperset(map(type, args))
    if not usual:
        result = interpret_inplace(op, args, statics, call_inplace)
        if result is not NotImplemented:
            return result
    if not usual or args[0].__class__ is not Tensor or int in map(type, args):
        args = inplace_operands(op, args, usual)
    if runner.backends:
        op = on_its_device(op, args)
    if op.overflows is not None and args[0].dtype == int32:
        call(op, args, statics)  # raises, before anything is written
    kernel = kernel_of(op, statics)
    needs, bit = 0, 1
    for a in args:
        if isinstance(a, Tensor) and (a._requires_grad or (a._view is not None and a.requires_grad)):
            needs |= bit
        bit += bit
    if needs and not (state.grad_enabled and kernel.differentiable and args[0]._like().dtype in INEXACT):
        needs = 0
    return run_inplace(kernel, args, needs, _write)


def inplace_operands(op: Operator, args: tuple[Any, ...], usual: bool = False) -> tuple[Any, ...]:
    """Convert the arguments but the first to tensors and numbers.  Raises `TypeError` if the first is not a Tensor."""
    if not isinstance(args[0], Tensor):
        raise TypeError(f"{op.name}_(): the first argument must be a Tensor, but got {type(args[0]).__name__}")
    if not usual:
        args = (args[0], *[operand(op, a) for a in args[1:]])
    return numbers_that_fit(op, args)


def run_inplace(kernel: Kernel, args: tuple[Any, ...], needs: int, write: Callable[..., Any]) -> Tensor:
    """Write by `write(kernel, args)`, and record the operation for the arguments in the mask `needs`."""
    op, self = kernel.operator, args[0]
    if needs:
        check_inplace(self)
    if self._inference:
        self._bump(0)  # raises, outside of inference mode
    moving = state.forward_level >= 0 and any(
        isinstance(a, Tensor) and a._moves() for a in (args[:1] if op.overwrites else args)
    )
    node = holder = None
    if moving:
        before, holder = snapshot(self), snapshot(self)
        holder._tangents = None
        forward(kernel, tuple(before if a is self else a for a in args), (holder,), call)
    if needs:
        # A view's own edge becomes its base's, by CopySlices.
        node = new_node(kernel, needs, args, skip_self=self._view is not None)
        node.inplace = True
        plan = node.plan
        if plan.saved or plan.static:
            save_for_backward(plan, node, (snapshot(self) if 0 in plan.saved else self, *args[1:]), ())
    version = self._version if needs else 0
    inputs = None if node is None else (node.saved, node.versions)
    try:
        write(kernel, args)
        if node is not None or holder is not None:
            _follow(self, node, inputs, holder)
    except BaseException:
        # An interrupt between a value and its history would leave the gradient of another value.
        if needs and self._version != version:
            try:
                complete(_follow, self, node, inputs, holder)
            except BaseException:
                complete(_follow, self, node, inputs, holder)
        raise
    return self


def _follow(self: Tensor, node: Any, inputs: tuple | None, holder: Tensor | None) -> None:
    """Attach history and tangents to a tensor after its value was written.  Doing it twice does no harm."""
    if node is not None:
        value, view = self._like(), self._view
        node.avals = (InputMetadata(value.shape, value.dtype),)
        written = None if view is None else view.base._grad_fn
        if not isinstance(written, CopySlices) or written.fn is not node:  # else the history is there already
            rebase_history(self, node)
    if holder is not None and holder._tangents:
        write_tangents(self, holder)
    if node is not None and node.plan.saves_result:
        assert inputs is not None
        node.saved, node.versions = inputs
        _save_result(node, self)


def _write(kernel: Kernel, args: tuple) -> None:
    """Run the kernel and write its result: into the tensor's own array, or through the chain into the root."""
    op, self = kernel.operator, args[0]
    arrays = []
    for a in args[1:]:
        arrays.append(a._read() if isinstance(a, Tensor) else a)
    chain = self._chain
    try:
        if chain is None or chain.is_root:
            self._rewrite(kernel.write, *arrays)
        elif state.trace is not None:
            # Two parts of a larger program, which must distinguish what it reads and writes (compiler/program.py).
            new = kernel.written(chain.replay(self._held()), *arrays)
            self._rewrite(lambda donate, where=None: chain.writer(False, where), new, *chain.starts)
        else:
            # One program reads the view, computes and writes back; it returns only the root, because XLA
            # would copy the whole buffer if it did.
            self._rewrite(partial(chain.update, kernel.written, kernel), chain.starts, *arrays)
    except Exception as error:
        forget(op, tuple(kernel.statics.values()))
        raise explain(error, op, [self, *arrays]) from error.__cause__


def _save_result(node: Any, self: Tensor) -> None:
    """Save the result of an in-place operation: on a view it belongs to the view's new grad_fn, held weakly."""
    view = self._view
    weak = None if view is None else history_of_view(self, view.base)
    if state.saved_hooks:
        saved = SavedVariable.packed(self, True, weak)
    else:
        saved = SavedVariable(self, True, weak)
    saved._output_nr = 0
    also_saved(node, (saved,))
