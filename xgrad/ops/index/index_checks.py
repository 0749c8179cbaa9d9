"""Checks the indices of operators (gather, embedding, `x[index]`): their dtype, and their range where it costs no wait.

An index that came from Python or is on one CPU is checked (JAX shares its memory with NumPy).  One on an accelerator,
sharded, under a trace, or pending in a lazy block is not: an index out of range reads NaN (or the smallest integer),
and writes nothing.  `same_dtype` checks the values that an operator writes.
"""

from typing import Any

import numpy as np

from ...base.devices import spread
from ...base.jax_compat import Tracer
from ...base.platforms import default_platform
from ...batching.batched_tensor import inner_value
from ...execution.pending import waits
from ...tensor import Tensor


def on_host(x: Any) -> np.ndarray | None:
    """The values as a NumPy array if no accelerator and no lazy queue has to be waited for, else None."""
    if isinstance(x, (bool, int, float, np.ndarray, np.generic)):
        return np.asarray(x)
    if isinstance(x, Tensor):
        x = inner_value(x)
        if waits(x._read()):
            return None
    array = x._export("a check of indices") if isinstance(x, Tensor) else x
    if isinstance(array, Tracer):
        return None
    if default_platform() != "cpu" and any(d.platform != "cpu" for d in array.devices()):
        return None
    return None if spread(array) else np.asarray(array)


def valueless(x: Any) -> bool:
    """Return whether a tensor's value is not there: it is traced, or pending in a lazy block."""
    if not isinstance(x, Tensor):
        return isinstance(x, Tracer)
    x = inner_value(x)
    return waits(x._read()) or isinstance(x._export(), Tracer)


def check_range(index: Any, size: int, dim: int, negative: bool = False) -> None:
    """Raise `IndexError` if an index is outside of a dimension of this size (`negative`: counting from the end too)."""
    values = on_host(index)
    if values is None or not values.size or values.dtype.kind not in "iu":
        return
    low, high = int(values.min()), int(values.max())
    if high >= size or low < (-size if negative else 0):
        wrong = high if high >= size else low
        raise IndexError(f"index {wrong} is out of bounds for dimension {dim} with size {size}")


def require_integers(index: Any, name: str) -> None:
    """Raise `RuntimeError` unless the dtype of an index is int64 or int32: one of bytes may be meant as a mask."""
    if index.dtype not in (np.int32, np.int64):
        raise RuntimeError(f"{name}(): Expected dtype int64 or int32 for index, but got {index.dtype.name}")


def same_dtype(self: Any, source: Any, name: str) -> None:
    """Raise `RuntimeError` unless `source` has the dtype of the tensor that it is written into, as PyTorch demands."""
    if source.dtype != self.dtype:
        raise RuntimeError(
            f"{name}(): Expected self.dtype to be equal to src.dtype: self and source expected to have the same dtype, "
            f"but got {self.dtype.name} and {source.dtype.name}"
        )
