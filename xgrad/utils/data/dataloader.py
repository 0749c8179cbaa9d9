"""DataLoader: iterates over a dataset in batches, also with workers (PyTorch: torch/utils/data/dataloader.py).

Invariant: batches come in the sampler's order, with and without workers, unless `in_order=False`.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any, Generic, TypeVar
from warnings import warn

from ...random import Generator
from ._utils.collate import default_collate, default_convert
from ._utils.fetch import END, Fetcher, IterableFetcher, MapFetcher
from ._utils.worker import Worker, get_worker_info
from .dataset import Dataset, IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, host_random

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

T_co = TypeVar("T_co", covariant=True)
_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class _Forever(Sampler[Any]):
    """The indices of a stream, which has none."""

    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(None)


class DataLoader(Generic[T_co]):
    """Iterates over a dataset in batches, in order or shuffled, and reads ahead with `num_workers`.

    dataset: an object with `__getitem__` and `__len__`, or an `IterableDataset`.  batch_size: None for samples as they
    are.  shuffle, sampler, batch_sampler: the order, one of them at most; `generator` draws it.  drop_last: leave out
    the last batch if it is smaller, so that each step has the same shapes (a new one compiles once more).
    collate_fn: the function of a list of samples; by default `default_collate`.

    num_workers: threads that read ahead, each `prefetch_factor` batches (2); batches stay in order unless
    `in_order=False`.  Each has a shallow copy of the dataset, and calls `worker_init_fn(id)` once.  With
    `persistent_workers` they live for all epochs.  timeout: seconds to wait for a batch.  `pin_memory`,
    `pin_memory_device` and `multiprocessing_context` have no effect.

    Raises `ValueError` for options that exclude each other, `RuntimeError` for a batch that is late.

    Source: PyTorch's `DataLoader`.

    >>> import numpy as np
    >>> from xgrad.utils.data import DataLoader
    >>> samples = [(np.float32(i), f"number {i}") for i in range(3)]
    >>> for x, names in DataLoader(samples, batch_size=2, num_workers=1):
    ...     print(x, names)
    tensor([0., 1.]) ('number 0', 'number 1')
    tensor([2.]) ('number 2',)
    """

    generator: Generator | None
    in_order: bool
    num_workers: int
    pin_memory: bool
    pin_memory_device: str
    timeout: float
    worker_init_fn: Callable[[int], Any] | None

    dataset: Dataset[T_co]
    batch_size: int | None
    sampler: Any
    batch_sampler: Any
    drop_last: bool
    persistent_workers: bool
    _initialized = False
    _workers_alive: "_ThreadIterator | None" = None
    _length_called: int | None = None  # what __len__ said of an IterableDataset

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self._stream = isinstance(dataset, IterableDataset)
        if self._stream:
            _check_stream(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            sampler = (
                _Forever() if self._stream
                else RandomSampler(dataset, generator=generator) if shuffle
                else SequentialSampler(dataset)
            )  # fmt: skip
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset = dataset
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.collate_fn: Callable[[Any], Any] = collate_fn or (
            default_convert if batch_sampler is None else default_collate
        )
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.prefetch_factor: Any = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.generator, self.in_order, self.persistent_workers = generator, in_order, persistent_workers
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.multiprocessing_context = multiprocessing_context
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._initialized and name in _FIXED:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def _index_sampler(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _fetcher_maker(self) -> Callable[[Any], Fetcher]:
        return partial(
            IterableFetcher if self._stream else MapFetcher,
            batched=self.batch_sampler is not None, collate_fn=self.collate_fn, drop_last=self.drop_last,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Any]:
        if self.num_workers == 0:
            return _LocalIterator(self)
        if not self.persistent_workers:
            return _ThreadIterator(self)
        if self._workers_alive is None:
            self._workers_alive = _ThreadIterator(self)
        else:
            self._workers_alive.restart(self)
        return self._workers_alive

    def __len__(self) -> int:
        if not self._stream:
            return len(self._index_sampler)
        length = self._length_called = len(self.dataset)  # pyright: ignore[reportArgumentType] - its own error
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def _check_workers(workers: int, timeout: float, prefetch: int | None, persistent: bool) -> None:
    if workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if workers == 0 and prefetch is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing: let num_workers > 0, or leave it out"
        )
    if prefetch is not None and prefetch < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent and workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _check_stream(shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    if shuffle not in (False, None):
        raise ValueError(
            f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
        )
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if given is not None:
            raise ValueError(
                f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={given}"
            )


class _LoaderIterator(Iterator[Any]):
    """One iteration over a loader's batches."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._indices_of = loader._index_sampler
        self._begin(loader)

    def _begin(self, loader: DataLoader[Any]) -> None:
        self._indices = iter(self._indices_of)
        self._yielded, self._stream = 0, loader.dataset if loader._stream else None
        self._length_called = loader._length_called

    def __iter__(self) -> "_LoaderIterator":
        return self

    def __len__(self) -> int:
        return len(self._indices_of)

    def __next__(self) -> Any:
        batch = self._next()
        self._yielded += 1
        if self._length_called is not None and self._yielded > self._length_called:
            warn(
                f"Length of IterableDataset {self._stream} was reported to be {self._length_called} (when accessing "
                f"len(dataloader)), but {self._yielded} samples have been fetched. With workers, each has to read a "
                "part of its own: see get_worker_info().",
                stacklevel=2,
            )
        return batch

    def _next(self) -> Any:
        raise NotImplementedError

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _LocalIterator(_LoaderIterator):
    """Reads each batch when it is asked for."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if loader.timeout != 0:
            raise AssertionError("timeout needs num_workers > 0: without workers nothing is waited for")
        self._fetcher = loader._fetcher_maker()(loader.dataset)

    def _next(self) -> Any:
        batch = self._fetcher.fetch(next(self._indices))
        if batch is END:
            raise StopIteration
        return batch


class _ThreadIterator(_LoaderIterator):
    """Asks the workers in turn, `prefetch_factor` batches ahead of each, and returns what they give in this order."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        base = int(host_random(loader.generator).integers(1 << 62))
        options = loader.dataset, loader._fetcher_maker(), loader.worker_init_fn
        n = loader.num_workers
        self._workers = [Worker(i, n, base + i, *options) for i in range(n)]
        self._ahead = n * max(loader.prefetch_factor or 0, 1)
        self._timeout: float | None = loader.timeout or None
        self._in_order, self._persistent = loader.in_order, loader.persistent_workers
        self._asked: deque[tuple[Worker, Future[Any]]] = deque()
        self._restart()

    def restart(self, loader: DataLoader[Any]) -> None:
        """Begin the next epoch with the same workers."""
        for _, future in self._asked:
            future.cancel()
        self._begin(loader)
        for worker in self._workers:
            worker.restart()
        self._restart()

    def _restart(self) -> None:
        self._asked.clear()
        self._ended: set[int] = set()  # the numbers of the workers whose streams have ended
        self._turn = itertools.cycle(self._workers)
        for _ in range(self._ahead):
            self._ask()

    def _ask(self) -> None:
        """Ask the next worker for the next batch, if there are both."""
        if len(self._ended) == len(self._workers):
            return
        index = next(self._indices, END)
        if index is not END:
            worker = next(worker for worker in self._turn if worker.number not in self._ended)
            self._asked.append((worker, worker.submit(index)))

    def _next(self) -> Any:
        while self._asked:
            worker, future = self._oldest()
            try:
                batch = future.result(self._timeout)
            except FutureTimeout:
                if future.done():  # the dataset's own error
                    raise
                self.close()
                raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds") from None
            finally:
                if future.done():  # also with the dataset's error, after which the epoch goes on
                    self._asked.remove((worker, future))
                    if future.exception() is None and future.result() is END:
                        self._ended.add(worker.number)
                    self._ask()
            if batch is not END:
                return batch
        if not self._persistent:
            self.close()
        raise StopIteration

    def _oldest(self) -> tuple[Worker, "Future[Any]"]:
        """Return the first batch that was asked for, or with `in_order=False` the first of those that are there."""
        if not self._in_order:
            done, _ = wait([future for _, future in self._asked], self._timeout, FIRST_COMPLETED)
            for entry in self._asked:
                if entry[1] in done:
                    return entry
        return self._asked[0]

    def close(self) -> None:
        """Let the threads end."""
        for worker in self._workers:
            worker.close()
