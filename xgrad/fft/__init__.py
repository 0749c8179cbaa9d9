"""The public module xgrad.fft (PyTorch: torch.fft): fft, ifft, rfft, ..., which ops/signal/fft.py declares."""

from ..base.missing import missing as _missing
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["fft"])


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted(_FUNCTIONS["fft"].keys())


globals()["__all__"] = __dir__()

globals()["__getattr__"] = _missing(__name__)
