"""shorten: cuts frames of xgrad, JAX, NumPy and the standard library from a traceback; the user's own frames stay.

Public functions call it in an `except` clause, so that a call that raises nothing pays nothing.
JAX_TRACEBACK_FILTERING=off shows all frames; an error that may be xgrad's own fault (`KeyError`, ...) keeps them.
"""

import sys
from typing import Any

import jax

_LIBRARIES = (
    frozenset({"xgrad", "jax", "jaxlib", "numpy", "ml_dtypes", "opt_einsum", "scipy"}) | sys.stdlib_module_names
)
_FAULTS = (AssertionError, AttributeError, KeyError, NameError)  # of xgrad's own, perhaps: every frame is of use

_REMOVED = "JAX has removed its internal frames"  # of a note that JAX adds: its frames are not there anyway


def is_users(frame: Any) -> bool:
    """Return True if a frame belongs to no library that xgrad stands on."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] not in _LIBRARIES


def shorten(error: BaseException, own: bool = True) -> None:
    """Remove the frames of libraries from an error's traceback, but for the frame that calls (if it is its `own`)."""
    first = error.__traceback__
    if hasattr(error, "__notes__"):
        error.__notes__ = [note for note in error.__notes__ if _REMOVED not in note]
    if first is None or isinstance(error, _FAULTS) or jax.config.values.get("jax_traceback_filtering") == "off":
        return
    last, trace = first, first.tb_next
    while trace is not None:
        if is_users(trace.tb_frame):
            last.tb_next = trace
            last = trace
        trace = trace.tb_next
    last.tb_next = None
    if not own:
        error.__traceback__ = first.tb_next
