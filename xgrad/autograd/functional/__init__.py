"""autograd.functional: computes Jacobians, Hessians and products with them (PyTorch: torch/autograd/functional.py)."""

from ...base.missing import close_namespace as _close_namespace
from .jacobians import hessian, jacobian
from .products import hvp, jvp, vhp, vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_close_namespace(__name__)
