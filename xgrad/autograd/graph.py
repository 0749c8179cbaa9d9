"""xgrad.autograd.graph: Node, get_gradient_edge, and hooks on saved tensors and gradients (PyTorch: torch/autograd)."""

import abc
from collections.abc import Callable, Sequence
from typing import Any

from ..base.missing import close_namespace as _close_namespace
from ..engine import node as _node
from ..engine.edges import GradientEdge, gradient_edge
from ..engine.hooks import RemovableHandle
from ..tensor import Tensor
from .multi_grad import node_of, register_multi_grad_hook
from .mutation import allow_mutation_on_saved_tensors
from .offload import save_on_cpu
from .saved_hooks import disable_saved_tensors_hooks, saved_tensors_hooks
from .torch_c_names import ExecutionEngine
from .version_counter import increment_version

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge",
    "increment_version", "region_activation_memory_budget", "register_multi_grad_hook", "save_on_cpu",
    "saved_tensors_hooks", "set_override_stale_capture_stream", "set_warn_on_accumulate_grad_stream_mismatch",
]  # fmt: skip


class Node(abc.ABC):
    """The class of every `grad_fn`: one recorded operation.  For `isinstance`; users make no nodes by it.

    A node is callable: it takes the gradients of its operation's outputs and returns the gradients of the inputs,
    without running any hook.

    >>> import xgrad
    >>> y = xgrad.ones(2, requires_grad=True) * 2
    >>> isinstance(y.grad_fn, xgrad.autograd.graph.Node), y.grad_fn.name()
    (True, 'MulBackward0')
    >>> y.grad_fn(xgrad.ones(2))
    (tensor([2., 2.]), None)
    """

    @abc.abstractmethod
    def name(self) -> str:
        """Return PyTorch's name of the operation, e.g. 'MulBackward0'."""

    @property
    @abc.abstractmethod
    def next_functions(self) -> tuple[tuple["Node | None", int], ...]:
        """For each input of the operation, the node that receives its gradient and that node's input number.

        (None, 0) for an input that needs no gradient.
        """

    @property
    @abc.abstractmethod
    def metadata(self) -> dict[Any, Any]:
        """A dictionary for the user's own notes on this node."""

    @abc.abstractmethod
    def _sequence_nr(self) -> int:
        """Return the number of the operation in its thread's order; larger numbers run first in backward."""

    @property
    @abc.abstractmethod
    def _input_metadata(self) -> tuple[Any, ...]:
        """For each output of the operation, the shape and dtype that its gradient has."""

    @abc.abstractmethod
    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` after each run of this node; it may return new grad_inputs.

        >>> import xgrad
        >>> x = xgrad.ones(2, requires_grad=True)
        >>> y = x.clone()
        >>> with y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: (grad_outputs[0] * 2,)):
        ...     y.sum().backward()
        >>> x.grad
        tensor([2., 2.])
        """

    @abc.abstractmethod
    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call `fn(grad_outputs)` before each run of this node; it may return new grad_outputs."""

    @classmethod
    def __subclasshook__(cls, subclass: type[Any]) -> Any:
        return True if cls is Node and issubclass(subclass, _node.Node) else NotImplemented


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Return the edge on which the gradient of `tensor` arrives.

    `backward` and `grad` accept it in place of the tensor, whose value it does not keep alive.
    Raises `RuntimeError` if the tensor requires no gradient.
    """
    if not tensor.requires_grad:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(node_of(tensor), gradient_edge(tensor)[1])


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """Do nothing: XLA has no streams that a gradient could arrive on."""


def set_override_stale_capture_stream(enabled: bool) -> None:
    """Do nothing: XLA captures no CUDA graphs of the user's."""


def region_activation_memory_budget(budget: float) -> Any:
    """Raise `RuntimeError`: in PyTorch this is a hint to `torch.compile`, and an error in eager code.

    Raises `TypeError` for an argument that is not a number, `ValueError` outside of [0, 1].
    """
    name = "autograd.graph.region_activation_memory_budget"
    if isinstance(budget, bool) or not isinstance(budget, (int, float)):
        raise TypeError(f"{name}: expects a float, got {type(budget).__name__}")
    if not 0.0 <= budget <= 1.0:
        raise ValueError(f"{name}: must be in [0, 1], got {budget}")
    raise RuntimeError(f"{name} can only be used inside a torch.compile region; it has no effect in eager mode.")


def _engine_run_backward(t_outputs: Sequence[Tensor | GradientEdge], *args: Any, **kwargs: Any) -> Any:
    """Run `Variable._execution_engine.run_backward`; the logger "xgrad.autograd.graph" logs the nodes at DEBUG."""
    return ExecutionEngine.run_backward(t_outputs, *args, **kwargs)


_close_namespace(__name__)
