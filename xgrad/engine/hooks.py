"""Stores and runs the hooks of tensors and autograd nodes, in PyTorch's order; `RemovableHandle` removes one.

Order, for a non-leaf: tensor hooks (registration order) → retain-grad → node pre-hooks → apply → node post-hooks.  For
a leaf: tensor hooks → accumulator pre-hooks → accumulate → post-accumulate hooks → accumulator post-hooks.
Hooks are called from a copy of their container: one that removes itself or another takes effect with the next run
(PyTorch: torch/csrc/autograd/python_hook.cpp).
"""

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from operator import methodcaller
from typing import Any

from ..config import Leaving, state

_ids = itertools.count()


class Hooks(dict[Any, Any]):
    """A container of hooks, {handle's id: hook}, to which handles refer weakly."""

    __slots__ = ("__weakref__",)


EVERYWHERE = Hooks()  # {id: True} of the hooks of all modules and of all optimizers, on which compiled programs depend


class RemovableHandle:
    """Removes the hook for which it was returned; usable as a context manager.

    It refers weakly to the hook's container, and to the containers of `extra_dict` (one, or a list), from which it
    removes what is said of the hook.  Pickled together with the container it removes the same hook of the copy.

    >>> import xgrad
    >>> x = xgrad.ones(2, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 2)
    >>> handle.remove()
    """

    __slots__ = ("__weakref__", "extra_dict_ref", "hooks_dict_ref", "id")
    id: Any

    def __init__(self, hooks_dict: dict[Any, Any], *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref: Callable[[], dict[Any, Any] | None] = weakref.ref(hooks_dict)
        self.id = next(_ids)
        extra = () if extra_dict is None else [extra_dict] if isinstance(extra_dict, dict) else extra_dict
        self.extra_dict_ref: tuple[Callable[[], dict[Any, Any] | None], ...] = tuple(map(weakref.ref, extra))

    def remove(self) -> None:
        self._close()()

    def __enter__(self) -> "RemovableHandle":
        return self

    __exit__: Any = Leaving()

    def _close(self) -> Callable[[], Any]:
        containers = (hooks for ref in (self.hooks_dict_ref, *self.extra_dict_ref) if (hooks := ref()) is not None)
        return partial(deque, map(methodcaller("pop", self.id, None), [*containers]), 0)

    def __getstate__(self) -> Any:
        return (self.hooks_dict_ref(), self.id, [hooks for ref in self.extra_dict_ref if (hooks := ref()) is not None])

    def __setstate__(self, state: Any) -> None:
        hooks, self.id, *extra = state
        self.hooks_dict_ref = weakref.ref(Hooks() if hooks is None else hooks)
        self.extra_dict_ref = tuple(map(weakref.ref, extra[0])) if extra else ()
        _take(self.id)


def _take(number: int) -> None:
    """Count later handles from above `number`, so that none of them gets it."""
    global _ids
    _ids = itertools.count(max(number + 1, next(_ids)))


def adopted(hooks: Any) -> Hooks | None:
    """Make a container of hooks from a dictionary, {number: hook}; None stays None.  Raises `TypeError` for others."""
    if hooks is None:
        return None
    if not isinstance(hooks, dict) or not all(map(callable, hooks.values())):
        raise TypeError(f"hooks come as None or as an OrderedDict, {{number: hook}}, not {type(hooks).__name__}")
    for number in hooks:
        if isinstance(number, int):
            _take(number)
    return Hooks(hooks)


def register(hooks: dict[Any, Any], hook: Callable[..., Any], *flags: dict[Any, Any]) -> RemovableHandle:
    """Add a hook to a container, and its id to the dictionaries `flags`.  Raises `TypeError` if it cannot be called."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, but got {type(hook).__name__}")
    handle = RemovableHandle(hooks, extra_dict=flags)
    hooks[handle.id] = hook
    for flag in flags:
        flag[handle.id] = True
    return handle


class NodeHooks:
    """All hooks of one node; made when the first is registered."""

    __slots__ = ("post", "pre", "retain", "tensor")

    def __init__(self) -> None:
        self.tensor: dict[int, Hooks] = {}  # output number -> hooks of the tensor that is that output
        self.retain: dict[int, Any] = {}  # output number -> weak reference to the tensor that retains its gradient
        self.pre: Hooks = Hooks()
        self.post: Hooks = Hooks()

    def __bool__(self) -> bool:
        """Return whether any hook is registered.  A removed hook has left its container, which may be empty then."""
        return bool(self.pre or self.post or self.retain or any(self.tensor.values()))


def _named(hook: Any) -> str:
    return f"hook '{getattr(hook, '__name__', hook)}'"


def check_tensor(value: Any, hook: Any) -> None:
    """Raise `TypeError` if a hook returned something else than a tensor."""
    if not hasattr(value, "_read"):
        raise TypeError(
            f"expected Variable, but hook returned '{type(value).__name__}' ({_named(hook)}; a hook returns a Tensor, "
            "or None to keep the gradient)"
        )


def _check_replacement(new: Any, old: Any, hook: Any) -> None:
    """Refuse a hook's replacement that does not match the gradient in shape, dtype and device."""
    if new is None:
        return
    if old is None:
        raise RuntimeError(f"can't replace a None gradient with a non-None value ({_named(hook)})")
    check_tensor(new, hook)
    if new.shape != old.shape:
        change = f"size of value: from {list(old.shape)} to {list(new.shape)}"
    elif new._sparse != old._sparse:
        kinds = ["sparse" if t._sparse else "dense" for t in (old, new)]
        change = f"type of value (was {kinds[0]} got {kinds[1]})"
    elif new.dtype != old.dtype:
        change = f"type of value (was {old.dtype.name} got {new.dtype.name})"
    elif new.device != old.device:
        change = f"device of value: from {old.device} to {new.device}"
    else:
        return
    raise RuntimeError(f"{_named(hook)} has changed the {change}")


def _check_replacements(new: Any, old: tuple, hook: Any) -> None:
    if not isinstance(new, tuple):
        raise TypeError(f"expected tuple, but hook returned '{type(new).__name__}' ({_named(hook)})")
    if len(new) != len(old):
        raise RuntimeError(
            f"{_named(hook)} has returned an incorrect number of values (got {len(new)}, but expected {len(old)})"
        )
    for a, b in zip(new, old, strict=True):
        _check_replacement(a, b, hook)


def run_tensor_hooks(hooks: Iterable[Callable[..., Any]], grad: Any) -> Any:
    """Pass a gradient, or None, through the hooks of one tensor; a hook that returns None keeps it."""
    for hook in tuple(hooks):
        result = hook(grad)
        if result is not None:
            _check_replacement(result, grad, hook)
            grad = result
    return grad


def run_pre_hooks(hooks: dict[Any, Any], grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Pass the gradients of a node's outputs through its pre-hooks."""
    for hook in tuple(hooks.values()):
        result = hook(grads)
        if result is not None:
            _check_replacements(result, grads, hook)
            grads = result
    return grads


def run_post_hooks(
    hooks: dict[Any, Any], grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Pass the gradients that a node computed through its post-hooks, which may replace them."""
    for hook in tuple(hooks.values()):
        result = hook(grad_inputs, grad_outputs)
        if result is not None:
            _check_replacements(result, grad_inputs, hook)
            grad_inputs = result
    return grad_inputs


def note_users_code() -> None:
    """Note in the running backward that users' code is about to run, which may leave modes switched."""
    task = state.graph_task
    if task is not None:
        task.users_code = True


def run_post_accumulate_hooks(hooks: dict[Any, Any], variable: Any) -> None:
    """Call the hooks of a leaf whose gradient has been accumulated."""
    note_users_code()
    for hook in tuple(hooks.values()):
        result = hook(variable)
        if result is not None and result is not variable:
            check_tensor(result, hook)
            raise RuntimeError(f"Tensor post accumulate grad hooks should return None, but {_named(hook)} did not")


def hooks_of(tensor: Any) -> Hooks | None:
    """The container of a non-leaf's tensor hooks; None before the first hook.

    It belongs to the tensor's node; or, after an in-place view operation (`t_`), still to the node from before it.
    Hooks then run in order of registration, with the gradient of the value from before, as in PyTorch.
    """
    node, earlier = tensor._grad_fn, tensor._earlier_hooks
    if earlier is not None and earlier[0] is node:
        return earlier[1]
    return None if node._hooks is None else node._hooks.tensor.get(tensor._output_nr)


def retain_grad(node: Any, output_nr: int, tensor: Any) -> None:
    """Store the gradient that arrives for a node's output in `tensor.grad`."""
    node.hooks().retain[output_nr] = weakref.ref(tensor)


def move_retained_hook(tensor: Any, new_node: Any, new_nr: int = 0) -> None:
    """Move a tensor's retain-grad hook to the new node of an in-place operation; other hooks stay on the old."""
    old = tensor._grad_fn
    if not tensor._retains_grad or old is None or old._hooks is None:
        return
    old._hooks.retain.pop(tensor._output_nr, None)
    retain_grad(new_node, new_nr, tensor)
