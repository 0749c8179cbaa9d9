"""torch._check, torch._check_index, ...: raise an error unless a condition holds (PyTorch: torch/__init__.py).

In a trace, where a tensor has no value yet, `_check_tensor_all` checks nothing; PyTorch's compiled code raises when it
runs.
"""

from collections.abc import Callable
from typing import Any

from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor
from ..views.storage import Tracer


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], Any] | None = None) -> None:
    """Raise `error_type` with what `message()` returns, unless `cond` is True."""
    if not isinstance(cond, bool):
        other = ": _check_tensor_all takes a tensor" if isinstance(cond, Tensor) else ""
        raise TypeError(f"cond must be a bool, but got {type(cond)}{other}")
    if cond:
        return
    if message is not None and not callable(message):
        raise TypeError("message must be a callable")
    raise error_type("Expected cond to be True, but got False." if message is None else str(message()))


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """Raise `error_type` with what `message()` returns, unless all elements of a tensor of bools are True."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype.name != "bool":
        raise TypeError(f"cond tensor must have dtype bool, but got {cond.dtype}")
    whole = FUNCTIONS[""]["all"](cond)
    if not isinstance(whole._read(), Tracer):
        _check_with(error_type, whole.item(), message)


def _kind(error_type: type[Exception], check: Callable[..., None] = _check_with) -> Callable[..., None]:
    def check_it(cond: Any, message: Any = None) -> None:
        check(error_type, cond, message)

    return check_it


_check = _kind(RuntimeError)
_check_index = _kind(IndexError)
_check_value = _kind(ValueError)
_check_type = _kind(TypeError)
_check_not_implemented = _kind(NotImplementedError)
_check_tensor_all = _kind(RuntimeError, _check_tensor_all_with)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """Raise `RuntimeError` unless a number is a size: not negative, and at most `max`."""
    _check(bool(i >= 0 and (max is None or i <= max)), message)
