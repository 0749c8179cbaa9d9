"""Nodes without a derivative: `Error`, which raises in backward, and `UndefinedGradBackward`, which gives no gradient.

PyTorch: torch/csrc/autograd/functions/basic_ops.h.
"""

from typing import Any

from ..errors import NotDifferentiableError
from ..tensor import Tensor
from .arithmetic import Arithmetic
from .node import InputMetadata, InternalNode, wire


class Error(InternalNode):
    """The node of a tensor that must not be differentiated."""

    message: str

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        raise NotDifferentiableError(self.message)


class NotImplemented(Error):  # noqa: N818 - PyTorch's name
    """The node of an operation without a derivative."""


class UndefinedGradBackward(InternalNode):
    """The node that gives no gradient."""

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        return (None,) * len(self.next_edges)


def refuse_derivative(tensor: Tensor, message: str, kind: type[Error] = NotImplemented) -> None:
    """Make the history of a tensor, which has none or a wrong one, a node that raises `message` in backward."""
    node = wire(kind(), (), (InputMetadata(tuple(tensor.shape), tensor._dtype),))
    node.message = message
    tensor._grad_fn, tensor._output_nr, tensor._requires_grad = node, 0, True
