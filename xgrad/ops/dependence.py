"""On which of its arguments a function depends, as far as its JAX program tells.

The derivative of a product's backward is derived, and takes all its inputs, though the second derivative of x * x is a
constant.  What a recorded gradient does not depend on must not seem to require grad: `requires_grad` and the `strict`
checks of `autograd.functional` would say so, and PyTorch's, who writes such formulas out, don't.  This is asked of
multilinear operators alone, where PyTorch's formulas are as exact: it goes on to differentiate x**3 a fourth time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax


def dependence(function: Callable, arguments: Sequence[Any]) -> tuple[bool, ...]:
    """For each argument (shape and dtype, a number, or None) whether any result depends on it.

    A function called within the program counts as depending on all that it is given: never too little is found.
    """
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    live = {id(v) for v in program.outvars}
    for equation in reversed(program.eqns):
        if any(id(v) in live for v in equation.outvars):
            live.update(id(v) for v in equation.invars)
    operands = iter(program.invars)
    return tuple(a is not None and id(next(operands)) in live for a in arguments)
