"""interpret: hands an operator's call with sparse tensors, vmap's tensors or subclasses to the code that can run it.

    call(op, args, statics)
      1  the innermost operator mode          operator_modes.py        the profiler, selective checkpoints
      2  a sparse tensor                      SparseTensor's class     names its interpreter
      3  the innermost vmap                   BatchedTensor's class    names its interpreter
      4  a class with `__xgrad_function__`    override_calls.py        in the order of overrides.py
      5  arrays, subclasses of Tensor         operands.py              as plain tensors, and the call begins again
      6  plain tensors                        call.py                  the kernel, its tangents, its record

The first of these that applies to a call runs the operator, and calls again with plainer arguments: the values of a
batch, the entries of a sparse tensor.  So `call` itself knows none of them.  Plain tensors pay nothing: they leave
`call` by the tests of their class that it makes anyway.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ..engine.arithmetic import Arithmetic
from ..engine.edges import gradient_edge
from ..tensor import Tensor
from .operands import operand
from .operator import Operator
from .override_calls import ask


class Rank(IntEnum):
    """The order of interpreters that tensors name: if there are several, the lowest runs the operator."""

    SPARSE = 2
    VMAP = 3


class Interpreter:
    """Runs operators on tensors of one class, whose attribute `_interpreter` it is."""

    rank: Rank

    def call(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        """Run an operator that has such a tensor among its arguments."""
        raise NotImplementedError

    def call_inplace(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        """Run the in-place form, which writes into the first argument."""
        raise NotImplementedError

    def gradients(self, node: Any, grad: Any, needs: int, arithmetic: Arithmetic) -> Any:
        """Run a recorded operator's node with a gradient of this class, which its formula cannot take."""
        raise NotImplementedError

    def lift(self, function: Callable[..., Any], *tensors: Tensor) -> Tensor:
        """Apply `function(n, *values)`, linear in the tensors, to their values: n entries, or None for one."""
        raise NotImplementedError


def interpreter_of(args: tuple[Any, ...]) -> Interpreter | None:
    """The first of the interpreters of the arguments' classes; None if they have none."""
    first = None
    for a in args:
        own = a._interpreter if isinstance(a, Tensor) else None
        if own is not None and (first is None or own.rank < first.rank):
            first = own
    return first


def interpret(op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...], call: Callable[..., Any]) -> Any:
    """Run an operator whose arguments are not all plain tensors and numbers; `call` runs it when they are."""
    interpreter = interpreter_of(args)
    if interpreter is not None:
        return interpreter.call(op, args, statics)
    result = ask(op, args, statics, call)
    if result is not NotImplemented:
        return result
    # The accumulator of a subclass's leaf has that leaf as its variable, not the plain twin that the operator gets.
    leaves = [gradient_edge(a) for a in args if isinstance(a, Tensor) and a._requires_grad and a._grad_fn is None]
    result = call(op, tuple([operand(op, a) for a in args]), statics)
    del leaves
    return result


def interpret_inplace(
    op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...], call_inplace: Callable[..., Any]
) -> Any:
    """Run the in-place form likewise; `NotImplemented` if all other arguments can become plain tensors."""
    interpreter = interpreter_of(args)
    if interpreter is not None:
        return interpreter.call_inplace(op, args, statics)
    return ask(op, args, statics, call_inplace, inplace=True)
