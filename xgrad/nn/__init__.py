"""torch.nn: the functional layers, Module with its parameters and hooks, and PyTorch's layers as modules.

The modules are loaded at their first use: they would add to xgrad's own import.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import functional as functional

if TYPE_CHECKING:
    from . import utils as utils
    from .containers import ModuleDict as ModuleDict
    from .containers import ModuleList as ModuleList
    from .containers import Sequential as Sequential
    from .linear_cross_entropy_options import LinearCrossEntropyOptions as LinearCrossEntropyOptions
    from .module import Module as Module
    from .modules.linear import Linear as Linear
    from .parameter import Buffer as Buffer
    from .parameter import Parameter as Parameter
    from .parameter_containers import ParameterDict as ParameterDict
    from .parameter_containers import ParameterList as ParameterList

# The classes of each file; TYPE_CHECKING's imports above say the same to editors (tests/nn/test_names.py).
_CLASSES = {
    "containers": "ModuleDict ModuleList Sequential",
    "linear_cross_entropy_options": "LinearCrossEntropyOptions",
    "module": "Module",
    "modules.linear": "Linear",
    "parameter": "Buffer Parameter",
    "parameter_containers": "ParameterDict ParameterList",
}
HOMES = {name: module for module, names in _CLASSES.items() for name in names.split()}
_MODULES = ("modules", "utils")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f".{HOMES[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted({*HOMES, *_MODULES, "functional"})


globals()["__all__"] = __dir__()
