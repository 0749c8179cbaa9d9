"""Worker: a thread that reads and collates batches ahead for DataLoader (PyTorch: worker.py, processes there).

Threads, because a process that has started XLA can't be forked safely, and a spawned one can't import what was defined
in a notebook; decoding, reading and NumPy's work release Python's lock.  A dataset whose Python code itself is the cost
gains nothing: grain's loaders (`xgrad.interop.data.batches`) have processes.

Invariants: a worker evaluates its batches in the order in which they were asked of it, with a shallow copy of the
dataset and random numbers of its own; it refers to nothing of the loader's iterator, so that an abandoned iterator's
threads end.
"""

import copy
import random
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....config import state
from ....random import Generator
from .fetch import Fetcher

__all__ = ["WorkerInfo", "get_worker_info"]


@dataclass(frozen=True, slots=True)
class RandomSources:
    """Random numbers of one worker: Python's and NumPy's global ones are shared by all threads of the process."""

    random_generator: random.Random
    torch_generator: Generator
    numpy_generator: np.random.Generator


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker: its number, the number of workers, its seed, its copy of the dataset, and its random numbers."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: RandomSources | None = None
    worker_method: str | None = "thread"


class _Current(threading.local):
    info: WorkerInfo | None = None


_current = _Current()


def get_worker_info() -> WorkerInfo | None:
    """Return the worker whose thread calls it, None outside of a `DataLoader`'s workers.

    >>> from xgrad.utils.data import get_worker_info
    >>> print(get_worker_info())
    None
    """
    return _current.info


def _copied(dataset: Any) -> Any:
    try:
        return copy.copy(dataset)
    except Exception:  # of a class that can't be copied: the workers share it
        return dataset


class Worker:
    """One thread with its copy of the dataset.

    make: the function of a dataset that returns its fetcher, called in the thread when an epoch begins.
    """

    def __init__(
        self, number: int, workers: int, seed: int, dataset: Any, make: Callable[[Any], Fetcher], init: Any
    ) -> None:
        self.number = number
        sources = RandomSources(
            random.Random(seed), Generator().manual_seed(seed), np.random.Generator(np.random.PCG64(seed))
        )
        self._info = WorkerInfo(number, workers, seed, _copied(dataset), sources)
        self._make = make
        self._thread = ThreadPoolExecutor(1, f"DataLoader worker {number}")
        # Ends the thread after the batch that it reads at present; also when nothing refers to the worker any more.
        self.close: Callable[[], Any] = weakref.finalize(self, self._thread.shutdown, wait=False, cancel_futures=True)
        self._fetcher: dict[str, Fetcher] = {}
        place, mesh = state.place, state.mesh  # results go where the loader's thread puts new tensors
        self._begun: Future[None] | None = self._thread.submit(_begin, self._info, init, place, mesh)
        self.restart()

    def restart(self) -> None:
        """Begin an epoch: a stream is iterated from its start."""
        self._thread.submit(_reset, self._fetcher, self._make, self._info.dataset)

    def submit(self, index: Any) -> "Future[Any]":
        """Ask for a batch."""
        return self._thread.submit(_fetch, self._begun, self._fetcher, index)


def _begin(info: WorkerInfo, init: Any, place: Any, mesh: Any) -> None:
    _current.info = info
    assert info.rng is not None
    state.generator, state.place, state.mesh = info.rng.torch_generator, place, mesh
    if init is not None:
        init(info.id)


def _reset(holder: dict[str, Any], make: Callable[[Any], Fetcher], dataset: Any) -> None:
    holder.pop("fetcher", None)
    holder.pop("error", None)
    try:
        holder["fetcher"] = make(dataset)
    except BaseException as error:  # of the dataset's __iter__: raised with the first batch
        holder["error"] = error


def _fetch(begun: Any, holder: dict[str, Any], index: Any) -> Any:
    try:
        begun.result()  # the error of worker_init_fn
        if "error" in holder:
            raise holder["error"]
        return holder["fetcher"].fetch(index)
    except Exception as error:
        info = _current.info
        error.add_note(f"Caught {type(error).__name__} in DataLoader worker {info.id if info else '?'}.")
        raise
