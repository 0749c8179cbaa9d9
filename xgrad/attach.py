"""Gives `Tensor` its methods from operators, engine and autograd, when xgrad is imported.

`Tensor` and the engine import no operators: they call methods of `Tensor` that are put onto it here.
"""

from . import overrides
from .autograd import variable
from .autograd.backward import backward_of
from .autograd.forward_ad import tangent_of
from .autograd.torch_c_names import ExecutionEngine
from .base import unsupported
from .dispatch import call, forward_mode, help_texts, override_calls, public_names, recorded_views, view
from .dispatch.tables import FUNCTIONS, METHODS
from .engine import grad_dtype, history, hooks
from .ops.create import casts, constructors, copying
from .tensor import Tensor
from .tensor_methods import conversion, copy_and_pickle, storages

override_calls.replace_composites()
public_names.name_functions()
help_texts.attach_texts()

# Methods that tensor.py, the engine and dispatch/ call on Tensors beyond their public ones.
_internal = {
    "_call": staticmethod(call.call),
    "_construct": classmethod(constructors.construct),
    "_prepare_subclass": classmethod(overrides.prepare_subclass),
    "_hooks_of_node": hooks.hooks_of,
    "_tangent_of_view": view.tangent_of_view,
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
    "grad_fn": property(history.grad_fn),
    "backward": backward_of,
    "_tangent": property(tangent_of),
    "_view_func": view.view_func,
    "_view_func_unsafe": view.view_func_unsafe,
    "_rev_view_func_unsafe": view.rev_view_func_unsafe,
    "volatile": property(variable.volatile, variable.set_volatile),
    "_execution_engine": ExecutionEngine(),
    "grad_dtype": property(grad_dtype.grad_dtype, grad_dtype.set_grad_dtype),
}
for _name, _method in (METHODS | _internal | _autograd).items():
    setattr(Tensor, _name, _method)
    if isinstance(_method, property):
        _method.__set_name__(Tensor, _name)  # pyright: ignore - typeshed lacks it; for Python's messages
backward_of.__name__, backward_of.__qualname__ = "backward", "Tensor.backward"  # for Python's messages
conversion.attach(Tensor)
copy_and_pickle.attach(Tensor)
storages.attach(Tensor)
unsupported.attach(Tensor)
overrides.attach(Tensor)
