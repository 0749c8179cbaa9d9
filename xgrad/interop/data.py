"""batches: puts a data loader's batches (torch's `DataLoader`, grain's, any iterable) on devices, as tensors of xgrad.

Invariant: host memory that XLA can read becomes a tensor with no copy on the CPU (unless `copy=True`), and with the
transfer only on an accelerator; of a batch that is split over devices each device gets its own part only.  Batches come
in order, and an error of the loader comes after the batches before it.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from ..base import dtypes
from ..base.devices import placement_of, settled
from ..errors import DtypeDisabledError, PlacementError
from ..execution.runner import transferred
from ..tensor import Tensor, from_foreign
from ._trees import called, mapped

__all__ = ["Batches", "batches"]


def batches(loader: Iterable[Any], device: Any = None, *, prefetch: int = 2, copy: bool = False) -> "Batches":
    """Return an iterable over a loader's batches, with Tensors in the place of torch's tensors and arrays.

    loader: any iterable; its batches are arrays, or nested dicts, lists and tuples of them, as torch's
    `default_collate` and grain's `batch` make them.  Numbers, strings and None stay.
    device: a device, or a Sharding (in `with xgrad.mesh(...)` a PartitionSpec), which splits each array of a batch; by
    default the default device.  Under `jax.distributed` a process passes its own part of the batch.
    prefetch: the number of batches on their way to the device while one is used: the loader is that much ahead.
    copy: for a loader that fills the same memory again; otherwise tensors share its arrays' memory.

    Raises, naming the array: `OverflowError` for 64-bit integers that don't fit into 32 bits while JAX's 64-bit mode is
    off (others, and float64, become numbers of 32 bits then, as in `xgrad.tensor`), `PlacementError` for an array that
    can't be split evenly (a last batch that is smaller: `drop_last=True`).

    >>> import numpy as np, xgrad
    >>> from xgrad.interop.data import batches
    >>> loader = [{"x": np.full(2, i, np.float32), "name": f"number {i}"} for i in range(2)]
    >>> for batch in batches(loader, "cpu"):
    ...     print(batch)
    {'x': tensor([0., 0.]), 'name': 'number 0'}
    {'x': tensor([1., 1.]), 'name': 'number 1'}
    """
    if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
        raise ValueError(f"prefetch is a number of batches, 0 or more, but got {prefetch!r}")
    return Batches(loader, None if device is None else placement_of(device), prefetch, copy)


class Batches:
    """The result of `batches`: it has the loader's length, and each iteration over it is one over the loader."""

    def __init__(self, loader: Iterable[Any], where: Any, prefetch: int, copy: bool) -> None:
        self.loader = loader
        self._where, self._prefetch, self._copy = where, prefetch, copy

    def __len__(self) -> int:
        return len(self.loader)  # pyright: ignore[reportArgumentType] - its own error if it has none

    def __iter__(self) -> "BatchIterator":
        return BatchIterator(iter(self.loader), self._converted, self._prefetch)

    def _converted(self, batch: Any) -> Any:
        return mapped(lambda name, leaf: _converted(leaf, name, self._where, self._copy), batch)


class BatchIterator(Iterator):
    """One iteration over the batches.

    `get_state` and `set_state` are the loader's iterator's if it has them, as grain's does: the state after the
    last batch that `next` returned, not counting batches that were read ahead.
    """

    def __init__(self, source: Iterator[Any], convert: Callable[[Any], Any], prefetch: int) -> None:
        self._source, self._convert, self._prefetch = source, convert, prefetch
        self._ready: deque[tuple[Any, Any]] = deque()
        self._end: Exception | None = None
        self._state = self._state_now()

    def _state_now(self) -> Any:
        return self._source.get_state() if hasattr(self._source, "get_state") else None  # pyright: ignore

    def __next__(self) -> Any:
        while self._end is None and len(self._ready) <= self._prefetch:
            try:
                batch = self._convert(next(self._source))
                self._ready.append((batch, self._state_now()))
            except Exception as error:  # StopIteration too
                self._end = error
        if self._ready:
            batch, self._state = self._ready.popleft()
            return batch
        error, self._end = self._end, StopIteration()
        assert error is not None
        raise error

    def get_state(self) -> Any:
        """Return the loader's state after the last batch that `next` returned, for a checkpoint."""
        if not hasattr(self._source, "get_state"):
            raise TypeError(f"{type(self._source).__name__} has no get_state: this loader can't be resumed")
        return self._state

    def set_state(self, state: Any) -> None:
        """Go on from a state of `get_state`."""
        if not hasattr(self._source, "set_state"):
            raise TypeError(f"{type(self._source).__name__} has no set_state: this loader can't be resumed")
        self._source.set_state(state)  # pyright: ignore[reportAttributeAccessIssue]
        self._ready.clear()
        self._end, self._state = None, state


def _converted(leaf: Any, name: str, where: Any, copy: bool) -> Any:
    if isinstance(leaf, np.ndarray):
        if leaf.dtype not in dtypes.INTEGERS | dtypes.INEXACT | {dtypes.bool}:
            return leaf  # strings, objects
        return from_foreign(_put(leaf, name, where, copy))
    if (torch := sys.modules.get("torch")) is not None and isinstance(leaf, torch.Tensor):
        from .torch import from_torch, host_array  # it imports torch, which is loaded here, and may be missing else

        host = host_array(leaf, name)
        return from_torch(leaf, device=where) if host is None else from_foreign(_put(host, name, where, copy))
    if isinstance(leaf, jax.Array):
        leaf = from_foreign(leaf)
    return leaf.to(where) if isinstance(leaf, Tensor) and where is not None else leaf


def _put(array: np.ndarray, name: str, where: Any, copy: bool) -> jax.Array:
    """Return a host array on its device; on the CPU it shares the memory, if that begins where XLA can read it."""
    try:
        fitting = dtypes.narrowed(array)
        if copy and fitting is array:
            fitting = np.array(array)
        if isinstance(where, Sharding) and not where.is_fully_addressable:
            return jax.make_array_from_process_local_data(where, fitting)
        return transferred(fitting, settled(where, array.shape))
    except (DtypeDisabledError, OverflowError, PlacementError) as error:
        raise type(error)(f"{called(name)}{error}") from None
