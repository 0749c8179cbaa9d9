"""Types for annotations of arguments (Number, Device, DType, Sizes, ...), for users and the stubs of xgrad's functions.

`import xgrad` does not load this module.  (PyTorch: torch.types)

>>> import xgrad
>>> from xgrad.types import Number
>>> def scaled(x: xgrad.Tensor, by: Number) -> xgrad.Tensor:
...     return x * by
>>> scaled(xgrad.ones(2), 3)
tensor([3., 3.])
"""

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Protocol, SupportsIndex, TypeAlias

import jax
import numpy as np
from jax.sharding import PartitionSpec, Sharding

from .base.devices import device
from .base.dtype_object import dtype
from .tensor import Tensor

__all__ = ["DType", "Device", "Index", "IntOrSize", "Layout", "MemoryFormat", "Number", "Operand", "Sizes", "Tensors"]


class JaxDevice(Protocol):
    """A `jax.Device`, which type checkers take for a variable, and refuse in annotations."""

    @property
    def platform(self) -> str: ...
    @property
    def device_kind(self) -> str: ...


class Declared(Protocol):
    """An `xgrad.Backend`."""

    def __xgrad_place__(self) -> Any: ...


Number: TypeAlias = int | float | complex | np.generic
Operand: TypeAlias = Tensor | int | float | complex | np.generic | np.ndarray[Any, Any] | jax.Array
Tensors: TypeAlias = Sequence[Tensor]
Sizes: TypeAlias = Sequence[int]
IntOrSize: TypeAlias = int | Sequence[int]
Index: TypeAlias = (
    SupportsIndex | slice | EllipsisType | Tensor | np.ndarray[Any, Any] | jax.Array | Sequence[Any] | None
)
DType: TypeAlias = dtype | np.dtype[Any] | type[Any] | str
Device: TypeAlias = device | str | JaxDevice | Declared | Sharding | PartitionSpec
Layout: TypeAlias = str  # xgrad.strided, xgrad.sparse_coo, ...
MemoryFormat: TypeAlias = str  # xgrad.contiguous_format, ...


def __dir__() -> list[str]:
    return sorted(__all__)
