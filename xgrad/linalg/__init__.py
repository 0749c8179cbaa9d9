"""The public module xgrad.linalg (PyTorch: torch.linalg): det, inv, qr, ..., which ops/ declares."""

from ..base.missing import close_namespace as _close_namespace
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS
from ..errors import LinAlgError as LinAlgError

globals().update(_FUNCTIONS["linalg"])
globals()["__all__"] = sorted(_FUNCTIONS["linalg"].keys() | {"LinAlgError"})

_close_namespace(__name__)
