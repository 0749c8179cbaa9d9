"""gradient_edge: returns the autograd node and input number to which backward sends a tensor's gradient.

An edge is a pair (node, number of that node's input).  The gradient of a tensor with a history goes to its `grad_fn`,
the gradient of a leaf to its AccumulateGrad, the gradient of any other tensor nowhere: (None, 0).
"""

import weakref
from typing import Any, NamedTuple

from ..tensor import Tensor
from .accumulate_grad import make_accumulator
from .node import Node


class GradientEdge(NamedTuple):
    """The place where a gradient arrives: a node, and the number of one of its inputs.

    `ownership_token` is always None: a reference to a node keeps it alive, without a token.
    """

    node: Node
    output_nr: int
    ownership_token: Node | None = None


def gradient_edge(tensor: Tensor) -> tuple[Any, ...]:
    """The edge on which a tensor's gradient arrives: its grad_fn's, or its accumulator's, or (None, 0)."""
    node = tensor._grad_fn if tensor._view is None else tensor.grad_fn
    if node is not None:
        return (node, tensor._output_nr)
    if not tensor._requires_grad:  # a view made under no_grad requires grad because its base does, and has no edge
        return (None, 0)
    accumulator = tensor._accumulator
    if accumulator is not None:
        accumulator = accumulator()
    if accumulator is None:
        accumulator = make_accumulator(tensor)
    return (accumulator, 0)


def attach_edge(tensor: Tensor, edge: tuple[Any, ...]) -> None:
    """Make a new tensor stand for the one whose gradient arrives on `edge`."""
    node, output_nr = edge
    if node.is_accumulator:
        tensor._accumulator = weakref.ref(node)
    else:
        tensor._grad_fn, tensor._output_nr = node, output_nr
    tensor._requires_grad = True
