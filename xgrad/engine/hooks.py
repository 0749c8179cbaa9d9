"""The hook containers of a node and their order; RemovableHandle.

Order, for a non-leaf: tensor hooks (registration order) → retain-grad → node pre-hooks → apply → node post-hooks.  For
a leaf: tensor hooks → accumulator pre-hooks → accumulate → post-accumulate hooks → accumulator post-hooks.
Hooks are called from a copy of their container: one that removes itself or another takes effect with the next run
(PyTorch: torch/csrc/autograd/python_hook.cpp).
"""

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

_ids = itertools.count()


class RemovableHandle:
    """Removes the hook for which it was returned; usable as a context manager.

    >>> import xgrad
    >>> x = xgrad.ones(2, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 2)
    >>> handle.remove()
    """

    __slots__ = ("__weakref__", "_hooks", "id")

    def __init__(self, hooks: dict) -> None:
        self._hooks = hooks
        self.id = next(_ids)

    def remove(self) -> None:
        self._hooks.pop(self.id, None)

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *error: Any) -> None:
        self.remove()


def register(hooks: dict, hook: Callable) -> RemovableHandle:
    """Add a hook to a container.  Raises `TypeError` if it cannot be called."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, but got {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


class NodeHooks:
    """All hooks of one node; made when the first is registered."""

    __slots__ = ("post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, dict] = {}  # output number -> hooks of the tensor that is that output
        self.retain: dict[int, Any] = {}  # output number -> weak reference to the tensor that retains its gradient
        self.pre: dict = {}
        self.post: dict = {}


def same_kind(new: Any, old: Any, where: str) -> None:
    """Refuse a hook's replacement that does not match the gradient in shape, dtype and device."""
    if type(new) is not type(old) and not hasattr(new, "_read"):
        raise TypeError(f"{where} returned {type(new).__name__}; expected a Tensor or None")
    if new.shape != old.shape:
        raise RuntimeError(f"{where} has changed the size of value: from {list(old.shape)} to {list(new.shape)}")
    if new.is_sparse != old.is_sparse:
        kinds = ["sparse" if t.is_sparse else "dense" for t in (old, new)]
        raise RuntimeError(f"{where} has changed the type of value (was {kinds[0]}, got {kinds[1]})")
    if new.dtype != old.dtype:
        raise RuntimeError(f"{where} has changed the type of value: from {old.dtype.name} to {new.dtype.name}")
    if new.device != old.device:
        raise RuntimeError(f"{where} has changed the device of value: from {old.device} to {new.device}")


def run_tensor_hooks(hooks: Iterable[Callable], grad: Any) -> Any:
    """Pass a gradient through the hooks of one tensor; a hook that returns None keeps it."""
    for hook in tuple(hooks):
        result = hook(grad)
        if result is not None:
            same_kind(result, grad, f"hook '{getattr(hook, '__name__', hook)}'")
            grad = result
    return grad


def _check_replaced(new: tuple, old: tuple) -> None:
    for a, b in zip(new, old, strict=True):
        if b is None:
            if a is not None:
                raise RuntimeError("can't replace a None gradient with a non-None value")
        elif a is not None:
            same_kind(a, b, "hook")


def run_pre_hooks(hooks: dict, grads: tuple) -> tuple:
    """Pass the gradients of a node's outputs through its pre-hooks."""
    for hook in tuple(hooks.values()):
        result = hook(grads)
        if result is not None:
            if not isinstance(result, tuple):
                raise TypeError(f"expected tuple, but hook returned '{type(result).__name__}'")
            if len(result) != len(grads):
                raise RuntimeError(f"hook has returned an incorrect number of values: {len(result)} for {len(grads)}")
            _check_replaced(result, grads)
            grads = result
    return grads


def run_post_hooks(hooks: dict, grad_inputs: tuple, grad_outputs: tuple) -> tuple:
    """Pass what a node computed through its post-hooks, which may replace it."""
    for hook in tuple(hooks.values()):
        result = hook(grad_inputs, grad_outputs)
        if result is not None:
            if not isinstance(result, tuple):
                raise TypeError(f"expected tuple, but hook returned '{type(result).__name__}'")
            if len(result) != len(grad_inputs):
                raise RuntimeError(
                    f"hook has returned an incorrect number of values: got {len(result)}, expected {len(grad_inputs)}"
                )
            _check_replaced(result, grad_inputs)
            grad_inputs = result
    return grad_inputs


def retain_grad(node: Any, output_nr: int, tensor: Any) -> None:
    """Let `tensor` keep in `.grad` the gradient that arrives at a node's output."""
    node.hooks().retain[output_nr] = weakref.ref(tensor)


def move_retained_hook(tensor: Any, new_node: Any, new_nr: int = 0) -> None:
    """A retain-grad hook follows its tensor to the node that an in-place operation gave it; other hooks stay."""
    old = tensor._grad_fn
    if not tensor._retains_grad or old is None or old._hooks is None:
        return
    old._hooks.retain.pop(tensor._output_nr, None)
    retain_grad(new_node, new_nr, tensor)
