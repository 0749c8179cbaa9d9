"""xgrad.signal.windows, PyTorch's `torch.signal.windows`: the window functions that ops/signal/windows.py declares."""

from ..base.missing import missing as _missing
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["signal.windows"])


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted(_FUNCTIONS["signal.windows"].keys())


globals()["__all__"] = __dir__()

globals()["__getattr__"] = _missing(__name__)
