"""xgrad.interop: a module for each library that xgrad works with: JAX, torch, flax, equinox, optax, orbax, safetensors.

A module is imported when it is first named (`xgrad.interop.optax`), and its library with it: `pip install
"xgrad[optax]"`, or `[interop]` for all of them.
"""

import importlib
import pkgutil
from typing import Any


def __getattr__(name: str) -> Any:
    if name in __dir__():
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
