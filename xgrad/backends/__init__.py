"""xgrad.backends: declare in Python how a device behaves (`Backend`, its `Cost` and `Faults`), run on it, get a report.

JAX's devices compute for it.  `cudnn`, `mps` and the other names of torch.backends are here too (torch_names.py).
"""

from typing import Any

from ..base.missing import MissingNameError
from ..views.rules import ViewRule as ViewRule
from . import passes as passes
from .backend import Backend as Backend
from .cost import Cost as Cost
from .faults import Faults as Faults
from .streams import Event as Event
from .streams import Stream as Stream
from .torch_names import LIBRARIES as _LIBRARIES
from .work import Operation as Operation

__all__ = ["Backend", "Cost", "Event", "Faults", "Operation", "Stream", "ViewRule", "passes"]


def __getattr__(name: str) -> Any:
    if name in _LIBRARIES:
        return _LIBRARIES[name]
    raise MissingNameError(__name__, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_LIBRARIES})
