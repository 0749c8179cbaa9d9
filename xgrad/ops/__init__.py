"""The operator table: importing this package declares every operator."""

import importlib
import importlib.util

from . import call, pair  # isort: skip - the declarations below bind them
from . import copying, values, views

_FAMILIES = (
    "arithmetic", "binary", "pointwise", "special", "comparison", "casts",
    "reduction", "scan", "sorting", "linalg", "activation",
    "convolution", "pooling", "normalization", "padding", "resampling", "distances", "loss", "classification", "ctc",
    "layers", "grid",
    "embedding", "dropout", "data", "factories", "sampling", "shape", "copies",
    "scatter", "indexing", "masks", "advanced", "getitem", "_mini",
)  # fmt: skip
for _family in _FAMILIES:
    if importlib.util.find_spec(f"{__name__}.{_family}"):
        try:
            importlib.import_module(f"{__name__}.{_family}")
        except Exception as _error:  # while families are being written
            print("not yet:", _family, _error)

__all__ = ["call", "copying", "pair", "values", "views"]
