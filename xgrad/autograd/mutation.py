"""allow_mutation_on_saved_tensors: a block in which saved tensors may be written (PyTorch: torch/autograd/graph.py).

PyTorch clones a saved tensor before it is written over.  JAX arrays are immutable: the saved array is still there after
the write, which goes to other memory because the old one has a reference.  So nothing is cloned, whatever the
aliasing.  The graph has a handle of each saved value; the context has the values, and drops them when the block ends.
"""

import weakref
from collections.abc import Iterator
from typing import Any

from ..config import block, state
from ..engine.saved_variable import plain_entry
from ..errors import MutationContextError
from ..tensor import Tensor, from_foreign
from .saved_hooks import saved_tensors_hooks


class _Handle:
    """Represents one saved value in the graph; the value is in the context."""

    __slots__ = ("__weakref__", "counter", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.counter, self.version = tensor._version_counter, tensor._version

    @property
    def changed(self) -> bool:
        return self.counter is not None and self.counter.value != self.version


class _Context:
    """The context of `allow_mutation_on_saved_tensors`.

    `original` and `cloned` are PyTorch's: {handle: value} of the saved tensors that are unchanged, and of the saved
    tensors that have been changed since (PyTorch would have cloned these).
    """

    def __init__(self) -> None:
        self._values: weakref.WeakKeyDictionary[_Handle, Any] = weakref.WeakKeyDictionary()
        self._handles: weakref.WeakValueDictionary[tuple, _Handle] = weakref.WeakValueDictionary()

    @property
    def original(self) -> dict[_Handle, Tensor]:
        """The saved values of tensors that have not been changed."""
        return {handle: _tensor(value) for handle, value in self._values.items() if not handle.changed}

    @property
    def cloned(self) -> dict[_Handle, Tensor]:
        """The saved values of tensors that have been changed in place since."""
        return {handle: _tensor(value) for handle, value in self._values.items() if handle.changed}

    def clear(self) -> None:
        """Forget all values: graphs recorded in this context can't be differentiated any more."""
        self._values.clear()
        self._handles.clear()

    def _pack(self, tensor: Tensor) -> _Handle:
        value = plain_entry(tensor) if tensor._level is not None else tensor._read()
        key = id(tensor), tensor._version
        handle = self._handles.get(key)
        if handle is None or self._values.get(handle) is not value:  # an id may be used again
            if tensor._version_counter is None:
                tensor._bump(0)
            handle = self._handles[key] = _Handle(tensor)
            self._values[handle] = value
        return handle

    def _unpack(self, handle: _Handle) -> Tensor:
        value = self._values.get(handle)
        if value is None:
            raise MutationContextError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in which the graph was "
                "originally recorded."
            )
        return _tensor(value)


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else from_foreign(value)


@block
def allow_mutation_on_saved_tensors() -> Iterator[_Context]:
    """Within the block, a tensor that was saved may be changed in place: backward sees its saved value.

    Backward has to run inside of the block as well.  Yields an object for debugging: `original` and `cloned` are the
    saved values, `clear()` drops them.  Raises `RuntimeError` when it is nested; backward outside raises
    `MutationContextError`.

    >>> import xgrad
    >>> leaf = xgrad.ones(2, requires_grad=True)
    >>> with xgrad.autograd.graph.allow_mutation_on_saved_tensors():
    ...     x = leaf.clone()
    ...     y = (x * x).sum()
    ...     _ = x.zero_()
    ...     xgrad.autograd.grad(y, leaf)
    (tensor([2., 2.]),)
    """
    if state.mutation_allowed is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    context = _Context()
    with saved_tensors_hooks(context._pack, context._unpack):
        state.mutation_allowed = context
        try:
            yield context
        finally:
            state.mutation_allowed = None
            context.clear()
