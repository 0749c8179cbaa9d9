"""xgrad.nn.modules: PyTorch's layers (Linear, Conv2d, ReLU, ...), in files named as in torch/nn/modules.

`xgrad.nn` shows their names; `xgrad.nn.modules` shows them too, as packages that were written for PyTorch expect.
"""

import importlib
from typing import Any

_FILES = {"lazy", "module", "utils"}  # files without a layer; the table of xgrad.nn lists the others


def _layers() -> list[str]:
    homes = importlib.import_module("xgrad.nn").HOMES  # at the call, as below
    mine = ("containers", "module", "parameter_containers")
    return sorted(name for name, home in homes.items() if home in mine or home.startswith("modules."))


def __dir__() -> list[str]:
    return sorted({*globals(), *_layers()})


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return _layers()
    nn = importlib.import_module("xgrad.nn")  # at the call: xgrad.nn may be what is being imported
    if name in nn.HOMES:
        return getattr(nn, name)
    if name in _FILES or f"modules.{name}" in nn.HOMES.values():
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
