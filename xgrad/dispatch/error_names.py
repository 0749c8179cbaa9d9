"""Puts an operator's public name in front of its errors: `softmax(): Dimension out of range (expected ...)`.

What a public function raises gets its name in the `except` clause of the function or of its wrapper: a call that raises
nothing pays nothing.  Texts that begin with the name stay as they are, and so do errors of users' code that an
operator calls (an override, a hook, a function that `apply_` maps).
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from ..base.tracebacks import is_users, shorten
from ..errors import public_caller
from .public_code import called_as

# Python's own texts for arguments that do not fit; they begin with the name of the Python function.
_BINDING = re.compile(r"[\w.<>]+\(\) (?=takes |missing |got )")
_NAMESPACE = r"(?:(?:linalg|fft|special|nn\.functional)[._])?"


def name_error(error: BaseException, name: str = "") -> None:
    """Put an operator's name in front of an error's text, and let its traceback end here; without `name`, the name of
    the function that the user called, where the traceback shall end.

    The name of an operator that was called inside of this one goes.
    """
    text = error.args[0] if error.args else None
    if isinstance(text, str) and str(error) == text and not _is_others(error):
        _put_name(error, text, name or public_caller())
    shorten(error, own=bool(name))


def _put_name(error: BaseException, text: str, name: str) -> None:
    inner = getattr(error, "_operator", None)
    if inner == name or not name:
        return
    if inner is not None:
        text = text.removeprefix(f"{inner}(): ")
    text = text.removeprefix("torch.").removeprefix("xgrad.")
    if binding := _BINDING.match(text):
        text = f"{name}() {text[binding.end() :]}"
    elif not re.match(rf"{_NAMESPACE}{re.escape(name.rstrip('_'))}_?([(:]| expects )", text):
        text = f"{name}(): {text}"
        error._operator = name  # pyright: ignore[reportAttributeAccessIssue]
    error.args = (text, *error.args[1:])


def _is_others(error: BaseException) -> bool:
    """Return True for an interrupt, a warning, and an error that passed a frame of a user's on its way here."""
    trace = error.__traceback__
    while trace is not None and not is_users(trace.tb_frame):
        trace = trace.tb_next
    return trace is not None or not isinstance(error, Exception) or isinstance(error, Warning)


def naming(function: Callable[..., Any], name: str) -> Any:
    """Return a composite that puts its public name in front of its errors."""

    @wraps(function)
    def names(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            name_error(error, name)
            raise

    return called_as(function, names, name)
