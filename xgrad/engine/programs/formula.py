"""Formula: an autograd node's backward as a pure function, which a compiled backward traces into a larger program.

Invariant: formulas are interned by the nodes.  Two nodes of the same structure (operator, static arguments, defined
gradients, wanted gradients) have one Formula, so a compiled backward compares programs by the identity of their
formulas; shapes and dtypes are not part of it.  A node without a formula runs by itself, as in the eager engine.
"""

from collections.abc import Callable
from typing import Any


class Formula:
    """`run(grads, values, avals, static)` returns a list with a gradient for each edge, None where it is undefined.

    `grads`: for each of the node's results, None where it is undefined.  `values`: the node's `operands`.  `avals` and
    `static`: the node's.  Bit i of `defined`: the gradient of edge i is defined.
    """

    __slots__ = ("defined", "run")

    def __init__(self, defined: int, run: Callable[[list[Any], list[Any], tuple[Any, ...], Any], list[Any]]) -> None:
        self.defined: int = defined
        self.run: Callable[..., Any] = run
