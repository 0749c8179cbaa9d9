"""Implements torch._C's private autograd functions (`_current_graph_task_id`, ...), which tools for PyTorch call.

They tell of the running backward, of views and of hooks; loggers, schedulers and checkpointing call them.
`Variable._execution_engine` is here too.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..config import state
from ..engine.edges import GradientEdge, gradient_edge
from ..engine.engine import current_graph_task_id, execute, queue_callback
from ..engine.graph_task import GraphTask
from ..engine.node import Node
from ..engine.saved_variable import SavedVariable as SavedTensor
from ..tensor import Tensor
from ..views.meta import CreationMeta, ViewMeta
from .anomaly_mode import _current_autograd_node
from .saved_hooks import pop_hooks as _pop_saved_tensors_default_hooks
from .saved_hooks import push_hooks as _push_saved_tensors_default_hooks
from .version_counter import _unsafe_set_version_counter
from .version_counter import increment_version as _increment_version

__all__ = [
    "CreationMeta", "ExecutionEngine", "SavedTensor", "_current_autograd_node",
    "_current_graph_task_execution_order", "_current_graph_task_id",
    "_get_creation_meta", "_get_current_graph_task_keep_graph", "_get_data_attr", "_get_obj_in_tls", "_get_sequence_nr",
    "_increment_version", "_is_checkpoint_valid", "_is_key_in_tls", "_make_saved_tensor",
    "_pop_saved_tensors_default_hooks", "_profiler_enabled", "_push_saved_tensors_default_hooks",
    "_saved_tensors_hooks_disable", "_saved_tensors_hooks_enable", "_saved_tensors_hooks_get_disabled_error_message",
    "_saved_tensors_hooks_is_enabled", "_saved_tensors_hooks_set_tracing", "_set_creation_meta", "_stash_obj_in_tls",
    "_top_saved_tensors_default_hooks", "_unsafe_set_version_counter", "_will_engine_execute_node", "kineto_available",
]  # fmt: skip

# -- the running backward --------------------------------------------------------------------------------------------

_current_graph_task_id = current_graph_task_id


def _running(asked: str) -> GraphTask:
    if state.graph_task is None:
        raise RuntimeError(f"{asked} should only be called during the backward pass")
    return state.graph_task


def _will_engine_execute_node(node: Node) -> bool:
    """Return True if the running backward evaluates this node, or captures a gradient there.

    Raises `RuntimeError` outside of backward, for an argument that is not a node, and for the accumulator of a leaf
    whose gradient `autograd.grad` captures: it is neither run nor skipped.
    """
    if not isinstance(node, Node):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    task = _running("_get_should_execute_nodes")
    will = task.will_execute(node)
    if will and node.is_accumulator and task.exec_info and task.exec_info[node].captures is not None:
        raise RuntimeError(
            "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). "
            "This is currently not supported."
        )
    return will


def _current_graph_task_execution_order() -> list[Node]:
    """Return the nodes that the running backward evaluates, in order.  Raises `RuntimeError` outside of backward."""
    return _running("_current_graph_task_execution_order").execution_order()


def _get_current_graph_task_keep_graph() -> bool:
    """Return True if the running backward does not release saved tensors, and outside of backward."""
    return state.graph_task is None or state.graph_task.keep_graph


def _get_sequence_nr() -> int:
    """Return the sequence number of this thread's next node."""
    return state.sequence_nr()


def _profiler_enabled() -> bool:
    """Return True within `autograd.profiler.profile` or `emit_nvtx`."""
    return state.recorder is not None


def kineto_available() -> bool:
    """Return False: JAX's profiler shows what a device does, under xgrad's names."""
    return False


# -- objects of a thread ---------------------------------------------------------------------------------------------


def _stash_obj_in_tls(key: str, value: Any) -> None:
    """Keep an object for this thread, and for the threads on which its backward goes on."""
    if not isinstance(key, str):
        raise TypeError(f"_stash_obj_in_tls(): incompatible function arguments: a str comes first, not {key!r}")
    state.stash = {**(state.stash or {}), key: value}


def _is_key_in_tls(key: str) -> bool:
    """Return True if an object is kept under this name."""
    return key in (state.stash or ())


def _get_obj_in_tls(key: str) -> Any:
    """Return the object that is kept under this name.  Raises `RuntimeError` if there is none."""
    if not _is_key_in_tls(key):
        raise RuntimeError(f"_get_obj_in_tls(): Expected an object that was stashed under {key!r} in this thread")
    return (state.stash or {})[key]


class ExecutionEngine:
    """The engine as PyTorch's users know it: `autograd.Variable._execution_engine`."""

    @staticmethod
    def queue_callback(callback: Callable[[], Any]) -> None:
        """Call `callback()` when the running backward ends; it may queue more.

        Raises `RuntimeError` outside of backward.
        """
        queue_callback(callback)

    @staticmethod
    def run_backward(
        tensors: Sequence[Tensor | GradientEdge],
        grad_tensors: Sequence[Tensor | None],
        keep_graph: bool,
        create_graph: bool,
        inputs: Sequence[Tensor | GradientEdge] = (),
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
    ) -> tuple[Tensor | None, ...] | None:
        """Run the graph from `tensors` with these gradients, without the checks of `backward` and `grad`.

        Returns the gradients of `inputs`; with `accumulate_grad` None, because then they are in the leaves' `.grad`.
        Raises `RuntimeError` if no path leads to one of `inputs`, unless `allow_unreachable`.
        """
        edges = tuple(_edge(t) for t in tensors)
        for i, (node, _) in enumerate(edges):
            if node is None:
                raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        found = execute(
            edges,
            list(grad_tensors),
            keep_graph=keep_graph,
            create_graph=create_graph,
            outputs=[_edge(x) for x in inputs],
            accumulate_grad=accumulate_grad or not inputs,
        )
        if accumulate_grad or not inputs:
            return None
        for i, result in enumerate(found):
            if result is None and not allow_unreachable:
                raise RuntimeError(
                    f"The differentiated Tensor at index {i} appears to not have been used in the graph."
                )
        return tuple(found)

    @staticmethod
    def is_checkpoint_valid() -> bool:
        """Return True if the running backward supports reentrant checkpointing: not with only some gradients."""
        return state.graph_task is None or not state.graph_task.exec_info


_is_checkpoint_valid = ExecutionEngine.is_checkpoint_valid


def _edge(x: Tensor | GradientEdge) -> tuple:
    return (x.node, x.output_nr) if isinstance(x, GradientEdge) else gradient_edge(x)


# -- views -----------------------------------------------------------------------------------------------------------


def _view_meta(tensor: Tensor) -> ViewMeta:
    if tensor._view is None:
        raise RuntimeError("Expected meta != nullptr to be true, but got false: not a differentiable view")
    return tensor._view


def _get_creation_meta(tensor: Tensor) -> CreationMeta:
    """Return how a view was made, which decides if it may be written in place.  Raises `RuntimeError` if the tensor is
    not a view."""
    return _view_meta(tensor).creation_meta


def _set_creation_meta(tensor: Tensor, new_creation_meta: CreationMeta) -> None:
    """Set the value that `_get_creation_meta` returns for a view."""
    _view_meta(tensor).creation_meta = CreationMeta(new_creation_meta)


# -- saved tensors ---------------------------------------------------------------------------------------------------


def _top_saved_tensors_default_hooks(ignore_is_tracing: bool) -> tuple[Callable, Callable] | None:
    """Return the innermost pair of saved tensors hooks, or None."""
    return state.saved_hooks[-1] if state.saved_hooks else None


def _saved_tensors_hooks_is_enabled() -> bool:
    """Return True if saved tensors hooks may be entered."""
    return state.saved_hooks_disabled is None


def _saved_tensors_hooks_get_disabled_error_message() -> str | None:
    """Return the message that entering saved tensors hooks raises, or None if they are enabled."""
    return state.saved_hooks_disabled


def _saved_tensors_hooks_disable(error_message: str, fail_if_non_empty: bool = True) -> None:
    """Forbid saved tensors hooks.  Raises `RuntimeError` with that message if there are some already."""
    if fail_if_non_empty and state.saved_hooks:
        raise RuntimeError(error_message)
    state.saved_hooks_disabled = error_message


def _saved_tensors_hooks_enable() -> None:
    """Allow saved tensors hooks again."""
    state.saved_hooks_disabled = None


def _saved_tensors_hooks_set_tracing(is_tracing: bool) -> bool:
    """Return False: PyTorch's compiler switches this, and there is none."""
    return False


def _get_data_attr(tensor: Tensor) -> Tensor:
    """Return `tensor.data`."""
    return tensor.data


def _make_saved_tensor(tensor: Tensor, is_output: bool, is_inplace_on_view: bool = False) -> SavedTensor:
    """Return `tensor` as a node saves it, packed by the innermost hooks."""
    return SavedTensor.packed(tensor, is_output)


def __dir__() -> list[str]:
    return sorted(__all__)
