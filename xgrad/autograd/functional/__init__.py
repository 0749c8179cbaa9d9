"""autograd.functional: computes Jacobians, Hessians and products with them (PyTorch: torch/autograd/functional.py)."""

from ...base.missing import close_namespace as _close_namespace
from .jacobians import hessian as hessian
from .jacobians import jacobian as jacobian
from .products import hvp as hvp
from .products import jvp as jvp
from .products import vhp as vhp
from .products import vjp as vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_close_namespace(__name__)
