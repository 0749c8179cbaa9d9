"""finfo and iinfo: the range and precision of a dtype, under PyTorch's names (PyTorch: torch/csrc/TypeInfo.cpp)."""

import builtins
import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..config import settings
from . import dtypes
from .immutable import Immutable

__all__ = ["finfo", "iinfo"]


def _dtype_of(spec: Any, function: str) -> np.dtype:
    """Return the dtype that was asked about, also if arrays of it cannot be made at present."""
    if spec is builtins.float:  # PyTorch: float64
        return dtypes.float64
    try:
        return np.dtype(spec)
    except TypeError:
        raise TypeError(
            f"{function}(): argument 'type' (position 1) must be a dtype such as xgrad.float32, not "
            f"{type(spec).__name__}"
        ) from None


class _Info(Immutable):
    """Equality by dtype; PyTorch's have no hash either."""

    _dtype: np.dtype
    bits: int
    dtype: str
    __hash__: Any = None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._dtype == self._dtype


class finfo(_Info):
    """The numbers of a floating-point dtype (by default the default one); for a complex dtype, the numbers of its
    parts.

    `bits`; `eps`, the step from 1 to the next number; `min` and `max`, the finite ones; `tiny` and `smallest_normal`,
    the smallest positive number of full precision; `resolution`, one in the last decimal digit that is always exact;
    `dtype`, its name.  The numbers are Python floats.

    Raises `TypeError` for an integer dtype.

    Source: PyTorch's `torch.finfo`.

    >>> import xgrad
    >>> xgrad.finfo(xgrad.bfloat16).eps
    0.0078125
    >>> xgrad.finfo(xgrad.float8_e4m3fn)
    finfo(resolution=1, min=-448, max=448, eps=0.125, smallest_normal=0.015625, tiny=0.015625, dtype=float8_e4m3fn)
    """

    eps: float
    min: float
    max: float
    tiny: float
    smallest_normal: float
    resolution: float

    def __init__(self, type: Any = None) -> None:
        found = settings.default_dtype if type is None else _dtype_of(type, "finfo")
        if found not in dtypes.INEXACT:
            raise TypeError(
                f"xgrad.finfo() requires a floating point input type. Use xgrad.iinfo to handle 'xgrad.{found.name}'"
            )
        found = dtypes.real_of(found)
        numbers = jnp.finfo(found)
        eps, smallest = float(numbers.eps), float(numbers.smallest_normal)
        vars(self).update(
            _dtype=found, bits=found.itemsize * 8, dtype=found.name, eps=eps, min=float(numbers.min),
            max=float(numbers.max), tiny=smallest, smallest_normal=smallest,
            # Decimals of so many digits survive the conversion: C++'s digits10, of eps = 2 ** -(bits of the mantissa).
            resolution=float(f"1e-{math.floor(-math.log10(eps))}"),
        )  # fmt: skip

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in names)}, dtype={self.dtype})"


class iinfo(_Info):
    """The numbers of an integer dtype: `bits`, `min`, `max`, and `dtype`, its name.

    Raises `TypeError` for a floating-point dtype and for bool.

    Source: PyTorch's `torch.iinfo`.

    >>> import xgrad
    >>> xgrad.iinfo(xgrad.int8)
    iinfo(min=-128, max=127, dtype=int8)
    """

    bits: int
    min: int
    max: int

    def __init__(self, type: Any) -> None:
        found = _dtype_of(type, "iinfo")
        if found == dtypes.bool:
            raise TypeError("xgrad.bool is not supported by xgrad.iinfo")
        if found not in dtypes.INTEGERS:
            raise TypeError(
                f"xgrad.iinfo() requires an integer input type. Use xgrad.finfo to handle 'xgrad.{found.name}'"
            )
        numbers = np.iinfo(found)
        vars(self).update(
            _dtype=found, bits=found.itemsize * 8, dtype=found.name, min=int(numbers.min), max=int(numbers.max)
        )

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
