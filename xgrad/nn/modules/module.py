"""Imports Module and the global hooks, for packages that take them from here (PyTorch: torch/nn/modules/module.py)."""

from ..hook_registration import (
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
)
from ..hook_registration import (
    register_module_parameter_registration_hook as register_module_parameter_registration_hook,
)
from ..module import Module
from ..state_dict import IncompatibleKeys as _IncompatibleKeys

__all__ = [
    "Module",
    "_IncompatibleKeys",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
]
