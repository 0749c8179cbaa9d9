"""xgrad.autograd: backward, grad, Function, no_grad, gradcheck, ..., for users (PyTorch: torch/autograd)."""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ..base.missing import MissingNameError as _MissingNameError
from ..engine.saved_variable import SavedVariable as SavedTensor  # the name by which PyTorch shows it
from . import forward_ad, graph
from .anomaly_mode import _current_autograd_node as _current_autograd_node
from .anomaly_mode import detect_anomaly, set_detect_anomaly
from .backward import backward, grad
from .compiled_backward import compiled_backward
from .function import Function, NestedIOFunction, once_differentiable
from .grad_mode import _force_original_view_tracking as _force_original_view_tracking
from .grad_mode import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    is_multithreading_enabled,
    is_view_replay_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .gradcheck import gradcheck, gradgradcheck
from .variable import Variable
from .version_counter import _unsafe_preserve_version_counter as _unsafe_preserve_version_counter

if _TYPE_CHECKING:
    from . import functional as functional
    from . import profiler as profiler


def _found(name: str) -> _Any:
    if name in ("functional", "profiler"):  # loaded at first use
        return _import_module(f".{name}", __name__)
    raise _MissingNameError(__name__, name)


globals()["__getattr__"] = _found  # type checkers do not see it: a misspelt name is an error


__all__ = [
    "Function", "NestedIOFunction", "SavedTensor", "Variable", "anomaly_mode", "backward", "compiled_backward",
    "detect_anomaly", "enable_grad", "enforce_grad_layout_policy", "forward_ad", "function", "functional", "grad",
    "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_multithreading_enabled",
    "is_view_replay_enabled", "no_grad", "once_differentiable", "profiler", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled", "variable",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)
