"""Autograd nodes without a derivative: in backward, `Error` raises, and `UndefinedGradBackward` returns no gradients.

PyTorch: torch/csrc/autograd/functions/basic_ops.h.
"""

from collections.abc import Sequence
from typing import Any

from ..errors import NotDifferentiableError
from ..tensor import Tensor
from .arithmetic import Arithmetic
from .edges import gradient_edge
from .node import InputMetadata, InternalNode, Node, wire


class Error(InternalNode):
    """The node of tensors that must not be differentiated."""

    def __init__(self, message: str) -> None:
        self.message = message

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        raise NotDifferentiableError(self.message)


class NotImplemented(Error):  # noqa: N818 - PyTorch's name
    """The node of an operation without a derivative."""


class UndefinedGradBackward(InternalNode):
    """The node that gives no gradient."""

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        return (None,) * len(self.next_edges)


def give_history(node: Node, outputs: Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> None:
    """Make `node`, which leads to `inputs`, the history of tensors."""
    edges = tuple(gradient_edge(t) if t.requires_grad else (None, 0) for t in inputs)
    wire(node, edges, tuple(InputMetadata(tuple(t.shape), t._dtype) for t in outputs))
    for i, output in enumerate(outputs):
        output._grad_fn, output._output_nr, output._requires_grad = node, i, True
