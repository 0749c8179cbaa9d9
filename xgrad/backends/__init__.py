"""xgrad.backends: declare in Python how a device behaves (`Backend`, its `Cost` and `Faults`), run on it, get a report.

JAX's devices compute for it.  `cudnn`, `mps` and the other names of torch.backends are here too (torch_names.py).
"""

from typing import Any

from ..base.missing import MissingNameError
from ..views.rules import ViewRule
from . import passes
from .backend import Backend
from .cost import Cost
from .faults import Faults
from .streams import Event, Stream
from .torch_names import LIBRARIES as _LIBRARIES
from .work import Operation

__all__ = ["Backend", "Cost", "Event", "Faults", "Operation", "Stream", "ViewRule", "passes"]


def __getattr__(name: str) -> Any:
    if name in _LIBRARIES:
        return _LIBRARIES[name]
    raise MissingNameError(__name__, name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_LIBRARIES})
