"""The part of torch.nn that training code needs: the functional layers, and a Module with parameters and hooks.

Layers beyond `Linear` are Flax's, Equinox's or your own, optimizers are optax's.  The modules are loaded at their first
use: they would add to xgrad's own import.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import functional as functional

if TYPE_CHECKING:
    from . import utils as utils
    from .containers import ModuleDict as ModuleDict
    from .containers import ModuleList as ModuleList
    from .containers import Sequential as Sequential
    from .linear import Linear as Linear
    from .linear_cross_entropy_options import LinearCrossEntropyOptions as LinearCrossEntropyOptions
    from .module import Module as Module
    from .parameter import Buffer as Buffer
    from .parameter import Parameter as Parameter
    from .parameter_containers import ParameterDict as ParameterDict
    from .parameter_containers import ParameterList as ParameterList

_HOMES = {  # name: the module that it is in
    "Buffer": "parameter", "Linear": "linear", "LinearCrossEntropyOptions": "linear_cross_entropy_options",
    "Module": "module", "ModuleDict": "containers",
    "ModuleList": "containers", "Parameter": "parameter", "ParameterDict": "parameter_containers",
    "ParameterList": "parameter_containers", "Sequential": "containers",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "utils":
        return importlib.import_module(".utils", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted({*_HOMES, "functional", "utils"})


globals()["__all__"] = __dir__()
