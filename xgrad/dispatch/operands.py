"""Converts an operator's array arguments (tensors, NumPy's and JAX's arrays) to Tensors or Python numbers."""

from typing import Any

import jax
import numpy as np

from ..base import dtypes
from ..base.dtypes import INEXACT
from ..overrides import override_of
from ..tensor import Tensor, blank, from_foreign
from .operator import Operator

NUMBERS = (int, float, bool, complex)
USUAL = frozenset({Tensor, type(None), *NUMBERS})


def is_operand(x: Any) -> bool:
    """Return whether an operator takes `x` as an array argument."""
    if isinstance(x, (Tensor, *NUMBERS, np.generic, jax.Array, np.ndarray)):
        return True
    return override_of(type(x)) is not None


def operand(op: Operator, x: Any) -> Any:
    """Convert an argument to a Tensor or a Python number.  Raises `TypeError` for a value of another kind."""
    if x.__class__ in USUAL:
        return x
    if isinstance(x, Tensor):
        return x if x._level is not None else plain(x)
    if isinstance(x, np.generic):
        return x.item() if np.dtype(x.dtype) not in (dtypes.bfloat16,) else float(x)
    if isinstance(x, (jax.Array, np.ndarray)):
        return from_foreign(x)
    if isinstance(x, NUMBERS):
        return plain_number(x)
    raise TypeError(f"{op.name}(): expected a Tensor or a number as an array argument, but got {type(x).__name__}")


def plain_number(x: Any) -> Any:
    """Convert a number of a subclass, as an enumeration's member is, to Python's; return any other object itself."""
    if x.__class__ in USUAL or isinstance(x, np.generic):
        return x
    if isinstance(x, int):
        return int.__int__(x)
    if isinstance(x, float):
        return float.__float__(x)
    return complex.__complex__(x) if isinstance(x, complex) else x


def plain(x: Tensor) -> Tensor:
    """Convert an instance of a subclass to a plain Tensor."""
    twin = blank(Tensor)
    twin.__dict__ = x.__dict__
    return twin


def numbers_that_fit(op: Operator, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert integers beyond JAX's default dtype to floats, if they meet a floating-point tensor."""
    if int not in map(type, args):
        return args
    info = np.iinfo(dtypes.default_integer())
    wide = [i for i, a in enumerate(args) if a.__class__ is int and not info.min <= a <= info.max]
    if not wide:
        return args
    if not any(a.__class__ is Tensor and a._dtype in INEXACT for a in args):
        raise OverflowError(
            f"Overflow: {op.name}(): the number {args[wide[0]]} does not fit into {info.dtype.name}, in which JAX "
            f"takes Python integers{dtypes.widen(info.dtype)}"
        )
    return tuple(float(a) if i in wide else a for i, a in enumerate(args))
