"""xgrad.special, PyTorch's `torch.special`: the operators that ops/ declares in that namespace."""

from ..base.missing import missing as _missing
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS

globals().update(_FUNCTIONS.get("special", {}))


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted(_FUNCTIONS["special"].keys())


globals()["__all__"] = __dir__()

globals()["__getattr__"] = _missing(__name__)
