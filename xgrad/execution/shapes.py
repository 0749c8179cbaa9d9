"""Finds the shapes and dtypes of an operation's results before it runs, by JAX's rules, for the queue of `xgrad.lazy`.

JAX's shape rules are asked once for each program and avals of operands, in each of JAX's x64 modes, because
the same operations have other dtypes there.
"""

import functools
from typing import Any

import jax
import numpy as np

from ..base.dtypes import WIDE, x64_enabled
from .pending import Aval, Pending, aval_of

MOST_RESULTS = 256  # of one program
MOST_KEYS = 256  # sets of operands' avals for which one program's results are known
AT_ONCE: Any = object()  # in place of avals: a program has to run at once
NUMBERS = {float: np.float64, int: np.int64, complex: np.complex128, bool: np.bool_}


def kind_of(x: Any) -> Aval:
    """Return the aval of an input: an array or a number."""
    if x.__class__ is Pending:
        return x.aval
    if x.__class__ in NUMBERS:
        return aval_of_number(x.__class__, x64_enabled())
    return aval_of(x.shape, np.dtype(jax.dtypes.canonicalize_dtype(x.dtype)), isinstance(x, jax.Array) and x.weak_type)


@functools.cache
def aval_of_number(kind: type, x64: bool) -> Aval:
    """Return the Aval of a Python number, where 64-bit types are on or off."""
    return aval_of((), np.dtype(jax.dtypes.canonicalize_dtype(NUMBERS[kind])), kind is not bool)


def structs_of(key: Any) -> Any:
    """Return the `jax.ShapeDtypeStruct`s of avals, in tuples as they are."""
    if key.__class__ is tuple:
        return tuple([structs_of(k) for k in key])
    return None if key is None else key.struct


def avals_of(program: Any, key: tuple[Any, ...]) -> Any:
    """Return the avals of a program's results, as JAX's shape rules give them for operands of these avals.

    The first of `key` is the x64 mode.
    """
    x64, *given = key
    if x64 is not x64_enabled():
        return AT_ONCE
    if not x64 and any(aval.dtype in WIDE for aval in jax.tree.leaves(given)):
        _remember(program, key, AT_ONCE)  # it refuses them, or converts them: JAX's rules would narrow them
        return AT_ONCE
    out = jax.eval_shape(program.run, *map(structs_of, given))
    if out.__class__ is tuple and 0 < len(out) <= MOST_RESULTS and all(hasattr(o, "shape") for o in out):
        found: Any = tuple([aval_of(o.shape, o.dtype, o.weak_type) for o in out])
    elif hasattr(out, "shape"):
        found = aval_of(out.shape, out.dtype, out.weak_type)
    else:
        found = AT_ONCE
    _remember(program, key, found)
    return found


def _remember(program: Any, key: tuple[Any, ...], found: Any) -> None:
    if len(program.avals) >= MOST_KEYS:  # shapes that never repeat
        program.avals.clear()
    program.avals[key] = found
