"""torch.compiler's names for programs that ask whether they are compiled, or exempt a function from it."""

import contextlib
from collections.abc import Callable
from typing import Any

from ..config import state


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


class set_stance(contextlib.ContextDecorator):
    """Do nothing, as a call, a block or a decorator: a compiled function gives what an eager one does."""

    def __init__(self, stance: str = "default", **options: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> None: ...


def reset() -> None:
    """Do nothing: each compiled function has its own `reset()`."""
