"""xgrad.signal.windows, PyTorch's `torch.signal.windows`: the window functions that ops/signal/windows.py declares."""

from ..base.missing import close_namespace as _close_namespace
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["signal.windows"])
globals()["__all__"] = sorted(_FUNCTIONS["signal.windows"])

_close_namespace(__name__)
