"""Holds the texts of xgrad.compile's errors; `value_error` finds the user's line that needs a traced tensor's value."""

import traceback
from pathlib import Path

import jax

from ..errors import TracedValueError
from .guards.code import LIBRARIES

VALUE_NEEDED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
    TracedValueError,
)
CHANGED = (
    "xgrad.compile: the function changes {} in Python (it was {}, and is {}), which a compiled program cannot repeat. "
    "Keep numbers that change in tensors (xgrad.tensor(0), and add_ to it), and return what is to be collected."
)
GIVEN = (
    "xgrad.compile: the function changes {} of an argument in Python (it was {}, and is {}), which a compiled program "
    "does not repeat. Change the tensors in it in place, or return what is new."
)
_VALUE = (
    "xgrad.compile: the function reads the value of a tensor, which is not known while it is traced{where}. "
    "Use xgrad.where(condition, a, b) in the place of `if`, keep numbers as tensors in the place of item() and "
    "float(), and read values outside, from what the function returns."
)
USED_ONCE = (
    "xgrad.compile: the function returns a {}, which gives what it has only once, and a compiled function returns the "
    "same one in each call. Return a list (list(...)), or compile the function that is called for each item."
)
HOLDS = (
    "xgrad.compile: the function returns a {} that holds tensors, which a compiled program cannot make anew in each "
    "call. Return lists, tuples, dictionaries, or what JAX knows as a pytree (jax.tree_util.register_dataclass)."
)
MODE = (
    "xgrad.compile: the function leaves a mode changed ({}), which a compiled program does not repeat. Use it as "
    "`with ...:` inside of the function, or change it outside."
)
_OURS = str(Path(__file__).parent.parent)


def alone(error: Exception) -> Exception:
    """Return an error without its frames, which would keep the whole trace alive."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)


def value_error(error: BaseException) -> TracedValueError:
    """Make a `TracedValueError` of JAX's error, with the line of the user's that needs a value."""
    where = ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((_OURS, *LIBRARIES)) and frame.line:
            where = f': "{frame.line.strip()}" in {frame.name}, {frame.filename}, line {frame.lineno}'
            break
    return TracedValueError(_VALUE.format(where=where))
