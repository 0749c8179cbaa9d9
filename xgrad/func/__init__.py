"""xgrad.func, as torch.func: vmap, grad, vjp, jvp, Jacobians, and modules as functions of their parameters."""

from ..base.missing import close_namespace as _close_namespace
from .derivatives import grad as grad
from .derivatives import grad_and_value as grad_and_value
from .derivatives import jvp as jvp
from .derivatives import linearize as linearize
from .derivatives import vjp as vjp
from .jacobians import hessian as hessian
from .jacobians import jacfwd as jacfwd
from .jacobians import jacrev as jacrev
from .modules import functional_call as functional_call
from .modules import stack_module_state as stack_module_state
from .vmap import debug_unwrap as debug_unwrap
from .vmap import vmap as vmap

__all__ = [
    "debug_unwrap", "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip

_close_namespace(__name__)
