"""torch.compiler's functions for users: `is_compiling`, and `disable`, `set_stance`, ..., which have no effect here."""

from collections.abc import Callable, Iterator
from typing import Any

from ..config import block, state


def is_compiling() -> bool:
    """Return True while `xgrad.compile` traces the function that asks.

    >>> import xgrad
    >>> xgrad.compiler.is_compiling()
    False
    """
    return state.trace is not None


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Return the function as it is: a trace of `xgrad.compile` takes all that runs in it."""
    return fn if fn is not None else lambda fn: fn


def allow_in_graph(fn: Any) -> Any:
    """Return the function as it is: a trace takes all functions."""
    return fn


assume_constant_result = allow_in_graph
is_dynamo_compiling = is_exporting = is_compiling


def cudagraph_mark_step_begin() -> None:
    """Do nothing: XLA's programs own no memory between calls."""


@block
def set_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """Do nothing, as a call, a block or a decorator: a compiled function gives what an eager one does."""
    yield


def reset() -> None:
    """Do nothing: each compiled function has its own `reset()`."""
