"""xgrad.func, as torch.func: vmap, grad, vjp, jvp, Jacobians, and modules as functions of their parameters."""

from ..base.missing import close_namespace as _close_namespace
from .derivatives import grad, grad_and_value, jvp, linearize, vjp
from .jacobians import hessian, jacfwd, jacrev
from .modules import functional_call, stack_module_state
from .vmap import debug_unwrap, vmap

__all__ = [
    "debug_unwrap", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip

_close_namespace(__name__)
