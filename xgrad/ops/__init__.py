"""The operator table: importing this package declares every operator."""

import importlib
import importlib.util

from . import call, copying, values, views

_FAMILIES = (
    "arithmetic", "pointwise", "comparison", "casts", "reduction", "scan", "sorting", "linalg", "activation",
    "convolution", "pooling", "normalization", "loss", "layers", "factories", "shape", "indexing", "getitem", "_mini",
)  # fmt: skip
for _family in _FAMILIES:
    if importlib.util.find_spec(f"{__name__}.{_family}"):
        try:
            importlib.import_module(f"{__name__}.{_family}")
        except ImportError as _error:  # while families are being written
            print("not yet:", _family, _error)

__all__ = ["call", "copying", "values", "views"]
