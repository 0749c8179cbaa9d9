"""The graph as a user sees it, and hooks on what it saves (PyTorch: torch/autograd/graph.py)."""

from ..engine.node import GradientEdge, Node, gradient_edge
from ..tensor import Tensor
from .mutation import allow_mutation_on_saved_tensors
from .offload import save_on_cpu
from .saved_hooks import disable_saved_tensors_hooks, saved_tensors_hooks

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge",
    "increment_version", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge on which the gradient of `tensor` arrives.  Raises `RuntimeError` if it requires none."""
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*gradient_edge(tensor))


def increment_version(tensor: Tensor) -> None:
    """Tell autograd that `tensor` was changed in place by other means."""
    tensor._bump()
