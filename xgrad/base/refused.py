"""refuse_operations: raises an error for operations on 64-bit numbers that a TPU's compiler lacks or crashes on.

Invariant: a program is compared with the table once, when it is traced, and for a TPU alone.  The table is
what libtpu's compiler for a v5e said of each operation of JAX (0.0.42): it aborts, or has no code for it.  Divisions of
int64 compile for half a minute, and run.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

_INTEGERS = ("int64", "uint64")
# By platform and dtype: JAX's operations, "" for all.
REFUSED: dict[str, dict[str, frozenset[str]]] = {
    "tpu": {
        "complex128": frozenset(("",)),
        **dict.fromkeys(_INTEGERS, frozenset(("dot_general", "conv_general_dilated"))),
        "float64": frozenset(("lu", "nextafter")),
    }
}
_WAYS = {
    "complex128": "x.to(xgrad.complex64)",
    "float64": "x.to(xgrad.float32)",
    **dict.fromkeys(_INTEGERS, "x.to(xgrad.int32)"),
}
_WORDS = {
    "dot_general": "no products", "conv_general_dilated": "no convolutions",
    "lu": "no LU decomposition (inv, solve, det, lu)", "nextafter": "no next numbers",
}  # fmt: skip


def refuse_operations(platform: str, name: str, jaxpr: Any) -> None:
    """Raise `NotImplementedError` if a traced program has an operation that the platform lacks for its dtype."""
    for variable in (*jaxpr.invars, *jaxpr.outvars):
        _check(platform, name, getattr(variable.aval, "dtype", None), "")
    for equation in jaxpr.eqns:
        for variable in (*equation.invars, *equation.outvars):
            dtype = getattr(variable.aval, "dtype", None)
            _check(platform, name, dtype, "")
            _check(platform, name, dtype, equation.primitive.name)
        for inner in programs_in(equation):
            refuse_operations(platform, name, inner)


def programs_in(equation: Any) -> Iterator[Any]:
    """Yield the jaxprs that an equation calls."""
    for value in jax.tree.leaves(equation.params, is_leaf=lambda v: hasattr(v, "eqns") or hasattr(v, "jaxpr")):
        found = getattr(value, "jaxpr", value)
        if hasattr(found, "eqns"):
            yield found


def _check(platform: str, name: str, dtype: Any, operation: str) -> None:
    if not isinstance(dtype, np.dtype) or operation not in REFUSED[platform].get(dtype.name, ()):
        return
    lacks = f"no numbers of {dtype.name}" if not operation else f"{_WORDS[operation]} of {dtype.name}"
    raise NotImplementedError(
        f'"{name}" not implemented for {dtype.name} on a {platform.upper()}, whose compiler has {lacks}. Convert the '
        f"tensor, {_WAYS[dtype.name]}, or compute on the host: x.cpu()."
    )
