"""skip_init: makes a module whose values will be loaded, and leaves the random state alone (torch/nn/utils/init.py)."""

import inspect
from typing import Any

from ...random import fork_rng
from ..module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Any:
    """Make a module whose parameters will be overwritten; the state of the random numbers stays what it was.

    In PyTorch the parameters are not initialized; here they are, as in any other module.  Raises
    `RuntimeError` for a class that is not a Module, and for one without the argument `device`.

    >>> from xgrad import nn
    >>> nn.utils.skip_init(nn.Linear, 5, 1)
    Linear(in_features=5, out_features=1, bias=True)
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    with fork_rng():
        return module_cls(*args, **kwargs)
