"""The public module xgrad.linalg (PyTorch: torch.linalg): det, inv, qr, ..., which ops/ declares."""

from ..base.missing import missing as _missing
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS
from ..errors import LinAlgError as LinAlgError

globals().update(_FUNCTIONS["linalg"])


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted(_FUNCTIONS["linalg"].keys() | {"LinAlgError"})


globals()["__all__"] = __dir__()

globals()["__getattr__"] = _missing(__name__)
