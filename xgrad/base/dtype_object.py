"""dtype: the class of `xgrad.float32`, ..., PyTorch's dtype objects around NumPy's (PyTorch: torch/csrc/Dtype.cpp).

Invariant: arrays, plans and kernels have NumPy's dtypes; a `dtype` is what users are given (`x.dtype`, `xgrad.float32`)
and may hand back: it is equal to NumPy's of its name, has its hash, and NumPy and JAX read its attribute `dtype`.
There is one object for each dtype, and it can't be changed.
"""

from typing import Any

import numpy as np

from . import dtypes
from .immutable import fixed

__all__ = ["dtype", "get_default_dtype", "promote_types"]


class dtype(dtypes.Wrapper):
    """The dtype of a tensor: `xgrad.float32`, taken by NumPy and JAX wherever a dtype goes.

    `is_floating_point`, `is_complex`, `is_signed`; `itemsize`, in bytes; `to_real()`, `to_complex()`; and what NumPy's
    dtypes have: `name`, `kind`, `type`, ...

    >>> import numpy as np, xgrad
    >>> xgrad.ones(2).dtype
    xgrad.float32
    >>> xgrad.float32 == np.dtype("float32"), xgrad.bfloat16.is_floating_point, xgrad.uint8.is_signed
    (True, True, False)
    >>> np.zeros(2, xgrad.float16).dtype
    dtype('float16')
    """

    __slots__ = (
        "_hash", "alignment", "byteorder", "char", "is_complex", "is_floating_point", "is_signed", "itemsize",
        "kind", "name", "num", "str", "type",
    )  # fmt: skip
    is_complex: bool
    is_floating_point: bool
    is_signed: bool
    itemsize: int
    name: str
    kind: str
    type: Any

    def __new__(cls, spec: Any) -> "dtype":
        return of(np.dtype(spec))

    def to_real(self) -> "dtype":
        """Return the dtype of a complex dtype's parts; a real one itself."""
        return of(dtypes.real_of(self.dtype))

    def to_complex(self) -> "dtype":
        """Return the complex dtype whose parts have this dtype; complex64 for float16, as JAX has no narrower one.

        Raises `RuntimeError` for bool, integers and floats of 8 bits.
        """
        if not self.is_complex and (not self.is_floating_point or self.itemsize < 2):
            raise RuntimeError(f"Unknown Complex ScalarType for {dtypes.torch_name(self.dtype)}")
        return of(dtypes.complex_of(self.dtype))

    def __eq__(self, other: object) -> bool:
        return self is other or self.dtype == other

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"xgrad.{self.name}"

    def __reduce__(self) -> Any:
        return dtype, (self.name,)


class _Objects(dict[Any, Any]):
    def __missing__(self, found: Any) -> Any:
        if not isinstance(found, np.dtype):  # JAX's own, of random keys
            return found
        made = object.__new__(dtype)
        fixed(made, "dtype", found)
        fixed(made, "_hash", hash(found))
        for name in ("alignment", "byteorder", "char", "itemsize", "kind", "name", "num", "str", "type"):
            fixed(made, name, getattr(found, name))
        fixed(made, "is_floating_point", found in dtypes.FLOATS)
        fixed(made, "is_complex", found in dtypes.COMPLEX)
        fixed(made, "is_signed", found in dtypes.INEXACT or found in dtypes.SIGNED)
        return self.setdefault(made.dtype, made)


OBJECTS = _Objects()
of = OBJECTS.__getitem__


def get_default_dtype() -> dtype:
    """Return the dtype of floating-point tensors made from Python numbers (float32 unless set).

    >>> import xgrad
    >>> xgrad.get_default_dtype()
    xgrad.float32
    """
    return of(dtypes.settings.default_dtype)


def promote_types(type1: Any, type2: Any) -> dtype:
    """Return the smallest dtype to which both convert, by PyTorch's table.

    >>> import xgrad
    >>> xgrad.promote_types(xgrad.int32, xgrad.float16)
    xgrad.float16
    """
    return of(dtypes.promote_types(np.dtype(type1), np.dtype(type2)))


def __dir__() -> list[str]:
    return sorted(__all__)
