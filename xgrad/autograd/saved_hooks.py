"""saved_tensors_hooks: a block that calls a user's hooks for tensors saved for backward (torch/autograd/graph.py).

The pairs of hooks are a stack of the thread, and only the innermost pair is called (`state.saved_hooks`).
"""

from collections.abc import Callable, Iterator
from typing import Any

from ..config import Block, block, state


class saved_tensors_hooks(Block):
    """Within the block, a node saves `pack_hook(tensor)`, and backward uses `unpack_hook` of that.

    Only the innermost pair is called.  The version of a value that a hook packed is not checked.  Entering raises
    `RuntimeError` within `disable_saved_tensors_hooks`.

    >>> import xgrad
    >>> x = xgrad.ones(3, requires_grad=True)
    >>> with xgrad.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
    ...     y = x * x
    >>> y.sum().backward()
    >>> x.grad
    tensor([4., 4., 4.])
    """

    def __init__(self, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]) -> None:
        if not (callable(pack_hook) and callable(unpack_hook)):
            raise TypeError(
                "saved_tensors_hooks(): incompatible function arguments: it takes two callables, pack_hook and "
                f"unpack_hook, but got {type(pack_hook).__name__} and {type(unpack_hook).__name__}"
            )
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> "saved_tensors_hooks":
        self._will_restore("saved_hooks")
        push_hooks(self.pack_hook, self.unpack_hook)
        return self


def push_hooks(pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]) -> None:
    """Make this pair the innermost one.  Raises `RuntimeError` while hooks are disabled."""
    if state.saved_hooks_disabled is not None:
        raise RuntimeError(state.saved_hooks_disabled)
    state.saved_hooks = (*state.saved_hooks, (pack_hook, unpack_hook))


def pop_hooks() -> None:
    """Remove the innermost pair.  Raises `RuntimeError` if there is none."""
    if not state.saved_hooks:
        raise RuntimeError("no saved tensors hooks have been pushed in this thread")
    state.saved_hooks = state.saved_hooks[:-1]


@block
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Within the block, entering `saved_tensors_hooks` raises `RuntimeError(error_message)`; a decorator too.

    Raises that error at once if hooks are active already.  Blocks nest: the error has the innermost message.

    >>> import xgrad
    >>> with xgrad.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
    ...     with xgrad.autograd.graph.save_on_cpu():
    ...         pass
    Traceback (most recent call last):
    RuntimeError: no hooks here
    """
    if state.saved_hooks:
        raise RuntimeError(error_message)
    previous, state.saved_hooks_disabled = state.saved_hooks_disabled, error_message
    try:
        yield
    finally:
        state.saved_hooks_disabled = previous
