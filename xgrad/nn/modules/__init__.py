"""PyTorch's layers, in files of PyTorch's names (torch/nn/modules/): each holds parameters and calls nn.functional.

`xgrad.nn` shows their names; `xgrad.nn.modules` shows them too, as packages that were written for PyTorch expect.
"""

import importlib
from typing import Any

_FILES = {"lazy", "module", "utils"}  # files without a layer; the table of xgrad.nn lists the others


def __getattr__(name: str) -> Any:
    nn = importlib.import_module("xgrad.nn")  # at the call: xgrad.nn may be what is being imported
    if name in nn.HOMES:
        return getattr(nn, name)
    if name in _FILES or f"modules.{name}" in nn.HOMES.values():
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
