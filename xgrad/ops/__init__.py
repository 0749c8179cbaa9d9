"""Declares xgrad's operators when it is imported; `xgrad.ops.ns.name` finds the operators that users register.

Each folder has one kind of operator, which its `__init__` names; aten.py and foreach.py have PyTorch's internal ones.
"""

# ruff: noqa: F401 - the import of a module declares its operators

import importlib
from typing import Any

# The dispatcher first: declarations of operators refer to it.
from ..dispatch import call, call_pair
from ..dispatch.tables import NAMESPACES
from ..tensor_methods import predicates, pytrees, storages

# isort: split
from .create import casts, constructors, copying, factories, from_data, strided
from .index import getitem, index_put, indexing, masks, scatter
from .linalg import (
    cholesky,
    contractions,
    eigen,
    householder,
    ldl,
    least_squares,
    lobpcg,
    lowrank,
    lu,
    matrix_functions,
    products,
    singular,
)
from .nn import (
    activation,
    attention,
    classification,
    convolution,
    ctc,
    embedding,
    fractional_pooling,
    grid,
    linear_cross_entropy,
    loss,
    margin_loss,
    multi_head_attention,
    normalization,
    pooling,
    recurrent,
    resampling,
)
from .pointwise import (
    arithmetic,
    bessel,
    binary,
    bounds,
    comparison,
    fake_quantize,
    polynomials,
    powers,
    special,
    unary,
)
from .random import distributions, dropout, sampling
from .reduce import calculus, distances, extrema, histograms, norms, reduction, scan, segments, sorting, statistics
from .shape import broadcasting, complex_views, joining, padding, rearranging, resizing, splitting, view_copies, views
from .signal import fft, stft, windows
from .sparse import compressed_conversion, conversion


def __getattr__(name: str) -> Any:
    if name == "aten":  # few programs ask for it
        return importlib.import_module(".aten", __name__)
    if name in NAMESPACES:
        return NAMESPACES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
