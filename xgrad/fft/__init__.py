"""The public module xgrad.fft (PyTorch: torch.fft): fft, ifft, rfft, ..., which ops/signal/fft.py declares."""

from ..base.missing import close_namespace as _close_namespace
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS["fft"])
globals()["__all__"] = sorted(_FUNCTIONS["fft"])

_close_namespace(__name__)
