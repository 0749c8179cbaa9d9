"""Attaches operators, engine and autograd to `Tensor`: the one place, run at import.

`Tensor` and the engine import no operators; each names the functions that it needs from layers above as module
variables, which are set here.
"""

import sys
from typing import Any

from . import overrides
from .autograd.backward import backward_of
from .autograd.forward_ad import tangent_of
from .autograd.torch_c_names import ExecutionEngine
from .dispatch import call, forward_mode, override_calls, recorded_views, view
from .dispatch.tables import FUNCTIONS, METHODS
from .engine import copy_slices, grad_dtype, hooks
from .ops import casts, constructors, copying, duplicates, storages, unsupported, values
from .tensor import Tensor

_tensor: Any = sys.modules[Tensor.__module__]  # the module; the package's name `tensor` is the factory
_tensor._view_node = copy_slices.regenerate
_tensor._tangent_of_view = view.tangent_of_view
_tensor._move_retained_hook = hooks.move_retained_hook
_tensor._hooks_of = hooks.hooks_of
_tensor._prepare_subclass = overrides.prepare_subclass
_tensor._construct = constructors.construct

override_calls.replace_composites()

# Methods that the engine calls on Tensors beyond their public ones.
_engine = {
    "_call": staticmethod(call.call),
    "_fit": copying.fit_recorded,
    "_put": casts.move,
    "_copied_for": copying.copied,
    "_replay": recorded_views.replay,
    "_adjoint": recorded_views.adjoint,
    "_write_back": recorded_views.write_back,
    "_zeros_like": FUNCTIONS[""]["zeros_like"],
    "_set_tangent_through_base": forward_mode.tangent_through_base,
}
_autograd = {
    "backward": backward_of,
    "_tangent": property(tangent_of),
    "_view_func": view.view_func,
    "_execution_engine": ExecutionEngine(),
    "grad_dtype": property(grad_dtype.grad_dtype, grad_dtype.set_grad_dtype),
}
for _name, _method in (METHODS | _engine | _autograd).items():
    setattr(Tensor, _name, _method)
backward_of.__name__, backward_of.__qualname__ = "backward", "Tensor.backward"  # for Python's messages
values.attach(Tensor)
duplicates.attach(Tensor)
storages.attach(Tensor)
unsupported.attach(Tensor)
overrides.attach(Tensor)
