"""trace_state, in_trace: the traces of JAX that this thread runs in."""

import threading
from typing import Any

_trace_state: Any = None
_untraced: Any = None


def trace_state() -> Any:
    """Return a value that identifies the traces (`jax.jit`, `vmap`, `lax.scan`, ...) that this thread runs in."""
    global _trace_state
    if _trace_state is None:
        try:
            from jax.extend.core import get_opaque_trace_state  # at first use: it takes 18 ms
        except ImportError:
            from jax.core import get_opaque_trace_state  # jax before 0.8
        _trace_state = get_opaque_trace_state
    return _trace_state(convention="nnx")


def in_trace() -> bool:
    """Return True within a trace of this thread.  It takes 2 µs."""
    global _untraced
    if _untraced is None:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(trace_state()))  # traces belong to threads
        thread.start()
        thread.join()
        _untraced = found[0]
    return trace_state() != _untraced
