"""accumulate: adds a gradient that arrives at an autograd node to the gradients that are there (an input buffer).

The first gradient is stored; later ones are added into an operand to which the engine has the only reference, if there
is one: at 10⁷ elements a sum in new memory takes 17 ms, in the memory of an operand that is not needed any more 4.

A buffer is a plain list, one place for each of the node's inputs.
"""

from math import prod
from typing import Any

from ..execution.donation import Writing
from ..execution.programs.programs import Program, jit_checked
from ..tensor import Tensor, from_array
from ..views.storage import Tracer, may_donate
from . import sparse_gradient
from .sparse_gradient import SparseGradient

DONATE_FROM = 1 << 14  # elements; below this a fresh result is as cheap


def _add(a: Any, b: Any) -> Any:
    return a + b


add_arrays: Program = jit_checked(_add)
add_arrays.role = "sum"
add_into: Writing = Writing(lambda a, b: a + b)


def accumulate(buffer: list[Any], index: int, grad: list[Any]) -> None:
    """Add the array `grad[0]` to `buffer[index]`.  `grad` is a list so that references to the array can be counted."""
    try:
        if prod(grad[0].aval.shape) < DONATE_FROM:
            buffer[index] = add_arrays(buffer[index], grad[0])
        elif isinstance(grad[0], Tracer) or isinstance(buffer[index], Tracer):
            buffer[index] = add_arrays(buffer[index], grad[0])  # JAX may keep a reference to the concrete one
        elif may_donate(buffer, index):
            buffer[index] = add_into(buffer[index], grad[0])
        elif may_donate(grad, 0):
            buffer[index] = add_into(grad[0], buffer[index])
        else:
            buffer[index] = add_arrays(buffer[index], grad[0])
    except (AttributeError, TypeError, ValueError):  # a sparse gradient is not an array, and has no aval
        if SparseGradient not in (buffer[index].__class__, grad[0].__class__):
            raise
        total = sparse_gradient.add(_opened(buffer[index]), _opened(grad[0]))
        buffer[index] = total if total.__class__ is SparseGradient else total._read()


def _opened(value: Any) -> Tensor:
    if value.__class__ is SparseGradient:
        return value.tensor
    tensor = from_array(value)
    tensor._owned = False  # the buffer refers to the array too
    return tensor


def stolen(buffer: list[Any], index: int) -> Tensor:
    """Make a Tensor of `buffer[index]`, which may donate the array later if the buffer has the only reference to it."""
    alone = may_donate(buffer, index)
    tensor = from_array(buffer[index])
    tensor._owned = alone
    return tensor
