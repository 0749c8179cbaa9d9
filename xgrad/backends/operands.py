"""For the runtime of `xgrad.Backend`: `plain` unwraps a program's operand to a JAX array, `traced` finds tracers."""

from typing import Any

from ..base.jax_compat import Tracer
from ..execution.pending import Pending


def plain(x: Any, reason: str = "a program that runs at once") -> Any:
    """Return an operand as JAX takes it: the array behind a Pending, which is evaluated for that reason."""
    if x.__class__ is Pending:
        return x.value if x.value is not None else x.evaluated(reason)
    if x.__class__ is tuple:
        return tuple([plain(part, reason) for part in x])
    return x


def traced(x: Any) -> bool:
    """Return True for a tracer, or a tuple with one."""
    return any(map(traced, x)) if x.__class__ is tuple else isinstance(x, Tracer)
