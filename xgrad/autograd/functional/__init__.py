"""autograd.functional: computes Jacobians, Hessians and products with them (PyTorch: torch/autograd/functional.py)."""

from ...base.missing import missing as _missing
from .jacobians import hessian as hessian
from .jacobians import jacobian as jacobian
from .products import hvp as hvp
from .products import jvp as jvp
from .products import vhp as vhp
from .products import vjp as vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def __dir__() -> list[str]:
    return sorted(__all__)


globals()["__getattr__"] = _missing(__name__)
