"""The graph as a user sees it, and hooks on what it saves (PyTorch: torch/autograd/graph.py)."""

from collections.abc import Callable
from typing import Any

import jax

from ..config import state
from ..engine.node import GradientEdge, Node, gradient_edge
from ..tensor import Tensor, from_foreign

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


class saved_tensors_hooks:
    """Within the block, what is saved for backward is `pack_hook(tensor)`, and `unpack_hook` of it when it is needed.

    The innermost pair counts.  Version checks are off for what a hook packed.

    >>> import xgrad
    >>> x = xgrad.ones(3, requires_grad=True)
    >>> with xgrad.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
    ...     y = x * x
    >>> y.sum().backward()
    >>> x.grad
    tensor([4., 4., 4.])
    """

    def __init__(self, pack_hook: Callable, unpack_hook: Callable) -> None:
        if not (callable(pack_hook) and callable(unpack_hook)):
            raise TypeError("saved_tensors_hooks expects two callables, pack_hook and unpack_hook")
        self.pair = (pack_hook, unpack_hook)

    def __enter__(self) -> "saved_tensors_hooks":
        if state.saved_hooks_disabled is not None:
            raise RuntimeError(state.saved_hooks_disabled)
        state.saved_hooks = (*state.saved_hooks, self.pair)
        return self

    def __exit__(self, *error: Any) -> None:
        state.saved_hooks = state.saved_hooks[:-1]


class disable_saved_tensors_hooks:
    """Within the block, entering `saved_tensors_hooks` raises `RuntimeError(error_message)`."""

    def __init__(self, error_message: str) -> None:
        self.message = error_message

    def __enter__(self) -> None:
        if state.saved_hooks:
            raise RuntimeError(self.message)
        self.previous, state.saved_hooks_disabled = state.saved_hooks_disabled, self.message

    def __exit__(self, *error: Any) -> None:
        state.saved_hooks_disabled = self.previous


class save_on_cpu(saved_tensors_hooks):
    """Within the block, what is saved for backward is kept in host memory and brought back when it is needed.

    `pin_memory=True` uses the device's pinned host memory, where JAX offers that kind, else the CPU device.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> tuple:
            array = tensor._read()
            home = array.sharding
            return home, jax.device_put(array, _host(array, pin_memory))

        def unpack(packed: tuple) -> Tensor:
            home, array = packed
            return from_foreign(jax.device_put(array, home))

        super().__init__(pack, unpack)


def _host(array: Any, pin: bool) -> Any:
    device = next(iter(array.sharding.device_set))
    kinds = {memory.kind for memory in device.addressable_memories()}
    if pin and "pinned_host" in kinds:
        return array.sharding.with_memory_kind("pinned_host")
    return jax.devices("cpu")[0]


class _MutationContext:
    """What `allow_mutation_on_saved_tensors` yields."""

    def __init__(self) -> None:
        self.open = True

    def clear(self) -> None:
        """PyTorch drops its clones here; there are none."""


class allow_mutation_on_saved_tensors:
    """Within the block, a tensor that was saved may be changed in place: backward sees it as it was saved.

    PyTorch clones before such a write.  JAX arrays are immutable: the saved array is kept, and nothing is cloned.
    Backward has to run inside of the block.

    >>> import xgrad
    >>> leaf = xgrad.ones(2, requires_grad=True)
    >>> with xgrad.autograd.graph.allow_mutation_on_saved_tensors():
    ...     x = leaf.clone()
    ...     y = (x * x).sum()
    ...     _ = x.zero_()
    ...     xgrad.autograd.grad(y, leaf)
    (tensor([2., 2.]),)
    """

    def __enter__(self) -> _MutationContext:
        if state.mutation_allowed is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        context = _MutationContext()

        def pack(tensor: Tensor) -> Any:
            return tensor._read()

        def unpack(array: Any) -> Tensor:
            if not context.open:
                raise RuntimeError(
                    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph "
                    "was originally recorded."
                )
            return from_foreign(array)

        self.hooks = saved_tensors_hooks(pack, unpack)
        self.hooks.__enter__()
        state.mutation_allowed = self.context = context
        return context

    def __exit__(self, *error: Any) -> None:
        self.context.open = False
        state.mutation_allowed = None
        self.hooks.__exit__(*error)
