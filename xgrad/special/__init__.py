"""xgrad.special, PyTorch's `torch.special`: the operators that ops/ declares in that namespace."""

from ..base.missing import close_namespace as _close_namespace
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS.get("special", {}))
globals()["__all__"] = sorted(_FUNCTIONS["special"])

_close_namespace(__name__)
