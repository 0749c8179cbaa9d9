"""xgrad.nn.functional: convolutions, pooling, activations, losses, ... as functions (PyTorch: torch.nn.functional).

Each is declared in `xgrad/ops`; this module has those whose namespace is `nn.functional`.

>>> import xgrad
>>> import xgrad.nn.functional as F
>>> F.softplus(xgrad.tensor([-100.0, 0.0, 100.0]))
tensor([  0.0000,   0.6931, 100.0000])
"""

from typing import Any

from ..base.missing import without as _without
from ..dispatch.tables import FUNCTIONS as _FUNCTIONS

_FUNCTIONS["nn.functional"].update({name: _FUNCTIONS[""][name] for name in ("sigmoid", "tanh")})

globals().update(_FUNCTIONS["nn.functional"])


def __getattr__(name: str) -> Any:
    return _without(__name__, name)


def __dir__() -> list[str]:
    """Return the names that users may use, which `__all__` has too."""
    return sorted(_FUNCTIONS["nn.functional"].keys())


globals()["__all__"] = __dir__()
