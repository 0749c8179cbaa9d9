"""Raises PyTorch's `TypeError` for arguments that should be tensors: "argument 'input' (position 1) must be Tensor".

Functions read their arguments' shape or dtype without a test, so usual calls pay for none.  If that fails with an
`AttributeError`, this file finds out if an argument of the user's lacks the attribute, and raises the `TypeError` then.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..overrides import overloaded
from ..tensor import Tensor

_PLAIN = (type(None), str, bytes, bool, int, float, complex, list, tuple, dict, set, object, np.ndarray)


def require_tensor(function: str, input: Any) -> None:
    """Raise `TypeError` for a first argument that is not a Tensor."""
    if not isinstance(input, Tensor):
        raise _refusal(function, "input", 1, input)


def given(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Bind the arguments of a call to their names, in the function's order."""
    try:
        return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except TypeError:  # Python raises its own error
        return {}


def refuse(function: Callable[..., Any], values: Mapping[str, Any], error: BaseException) -> None:
    """Raise `TypeError` if the error came from an argument that is not a Tensor; `values` are all arguments, in
    order."""
    if type(error) is not AttributeError or overloaded(values.values()):
        return
    for place, (name, value) in enumerate(values.items(), 1):
        if isinstance(value, Tensor):
            continue
        if value is error.obj or (place == 1 and value.__class__ in _PLAIN):
            raise _refusal(function.__name__, name, place, value) from None
        if isinstance(value, (tuple, list)) and any(v is error.obj for v in value) and error.obj.__class__ in _PLAIN:
            raise _refusal(function.__name__, name, place, error.obj) from None


def _refusal(function: str, name: str, place: int, value: Any) -> TypeError:
    return TypeError(f"{function}(): argument '{name}' (position {place}) must be Tensor, not {type(value).__name__}")
