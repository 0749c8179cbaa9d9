"""Hooks on what is saved for backward, for all operations of a block (PyTorch: torch/autograd/graph.py).

The pairs are a stack that belongs to the thread, of which the innermost counts (`state.saved_hooks`).
"""

from collections.abc import Callable
from typing import Any

from ..config import state


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
