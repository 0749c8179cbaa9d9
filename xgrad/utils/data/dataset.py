"""Dataset, TensorDataset, Subset, ...: give samples by index or as a stream (PyTorch: torch/utils/data/dataset.py).

Beside PyTorch's methods some have `_collated_samples(indices)`, the batch of these samples in one read of each tensor,
or None where samples have to be read one by one.  A subclass with a `__getitem__` of its own is read one by one.
"""

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from ...dispatch.tables import FUNCTIONS
from ...random import Generator
from ...tensor import Tensor
from .sampler import host_random

__all__ = [
    "ChainDataset", "ConcatDataset", "Dataset", "IterableDataset", "StackDataset", "Subset", "TensorDataset",
    "random_split",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """A map from indices to samples: a subclass has `__getitem__`, and `__len__` if its size is known.

    `__getitems__(indices)` may return the list of several samples at once; `DataLoader` prefers it.
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: "Dataset[Any]") -> "Dataset[Any]":
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """A stream of samples: a subclass has `__iter__`, and is abstract without.

    With workers each one iterates over a copy of its own; the copy finds its part by `get_worker_info()`.
    """

    def __add__(self, other: Dataset[Any]) -> Dataset[Any]:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is the tuple of entry i of each tensor, along their first dimensions, which must be equally long.

    With the default collation a `DataLoader` reads a batch with one gather for each tensor.

    >>> import xgrad
    >>> from xgrad.utils.data import DataLoader, TensorDataset
    >>> data = TensorDataset(xgrad.arange(6).reshape(3, 2), xgrad.tensor([0.0, 1.0, 2.0]))
    >>> data[1]
    (tensor([2, 3]), tensor(1.))
    >>> for x, y in DataLoader(data, batch_size=2):
    ...     print(x.tolist(), y.tolist())
    [[0, 1], [2, 3]] [0.0, 1.0]
    [[4, 5]] [2.0]
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors: tuple[Tensor, ...] = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].size(0)

    def _collated_samples(self, indices: Sequence[int]) -> list[Tensor] | None:
        if type(self).__getitem__ is not TensorDataset.__getitem__:
            return None
        positions, n = np.asarray(indices), len(self)
        if positions.ndim != 1 or positions.dtype.kind not in "iu" or not positions.size:
            return None  # a sampler of slices or of other keys
        if positions.min() < -n or positions.max() >= n:
            return None  # one by one, for the error that names the index
        where = FUNCTIONS[""]["from_numpy"](np.where(positions < 0, positions + n, positions).astype(np.int32))
        select = FUNCTIONS[""]["index_select"]
        return [select(tensor, 0, where) for tensor in self.tensors]


class StackDataset(Dataset[Any]):
    """Several datasets side by side: a sample is the tuple of theirs, or the dictionary if they have names.

    Raises `ValueError` for datasets of different lengths, for none, or if some have names and others not.
    """

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if args and kwargs:
            raise ValueError("Supported either ``tuple``- (via args) or ``dict``- (via kwargs) like input, not both")
        if not (args or kwargs):
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        lengths = {len(dataset) for dataset in (args or kwargs.values())}  # pyright: ignore[reportArgumentType]
        if len(lengths) > 1:
            raise ValueError(f"Size mismatch between datasets (of {sorted(lengths)} samples)")
        (self._length,) = lengths

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        named = isinstance(self.datasets, dict)
        columns = [_items(dataset, indices) for dataset in (self.datasets.values() if named else self.datasets)]
        rows = zip(*columns)
        return [dict(zip(self.datasets, row)) for row in rows] if named else list(rows)

    def __len__(self) -> int:
        return self._length


def _items(dataset: Any, indices: list[Any]) -> list[Any]:
    if not callable(getattr(dataset, "__getitems__", None)):
        return [dataset[index] for index in indices]
    items = dataset.__getitems__(indices)
    if len(items) != len(indices):
        raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}")
    return items


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other, each with a length.

    >>> from xgrad.utils.data import ConcatDataset
    >>> both = ConcatDataset([[1, 2], [3, 4, 5]])
    >>> len(both), both[2], both[-1]
    (5, 3, 5)
    """

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """Return the index after the last sample of each dataset."""
        return list(itertools.accumulate(len(dataset) for dataset in sequence))

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets: list[Any] = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes: list[int] = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> Any:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        if which == len(self.datasets):
            raise IndexError(f"index {idx} is out of range for a ConcatDataset of {len(self)} samples")
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset[Any]):
    """Streams one after the other."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def _streams(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._streams():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._streams())


class Subset(Dataset[T_co]):
    """The samples of a dataset at the given indices.

    A subclass that overrides `__getitem__` must override `__getitems__` too, because `DataLoader` calls that.
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if type(self).__getitem__ is not Subset.__getitem__ and type(self).__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{type(self).__name__} overrides __getitem__ and not __getitems__, which DataLoader calls: add "
                "def __getitems__(self, indices): return [self[i] for i in indices]"
            )
        mapped = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(mapped)  # pyright: ignore[reportAttributeAccessIssue]
        return [self.dataset[i] for i in mapped]

    def __len__(self) -> int:
        return len(self.indices)

    def _collated_samples(self, indices: Sequence[int]) -> list[Tensor] | None:
        inner = getattr(type(self.dataset), "_collated_samples", None)
        if inner is None or type(self).__getitem__ is not Subset.__getitem__:
            return None
        if type(self).__getitems__ is not Subset.__getitems__:
            return None
        return inner(self.dataset, [self.indices[i] for i in indices])


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T_co]]:
    """Return random subsets without common samples, of these lengths, or of these fractions if they sum to 1.

    What fractions leave over when they are rounded down goes to the subsets in turn, from the first.

    Raises `ValueError` if the lengths do not sum to the dataset's, or for a fraction outside of [0, 1].

    Source: PyTorch's `random_split`; the permutation is drawn from xgrad's generator, by NumPy.

    >>> import xgrad
    >>> from xgrad.utils.data import random_split
    >>> train, test = random_split(range(10), [0.75, 0.25], generator=xgrad.Generator().manual_seed(0))
    >>> len(train), len(test), sorted([*train, *test]) == list(range(10))
    (8, 2, True)
    """
    total: int = len(dataset)  # pyright: ignore[reportArgumentType] - its own error if it has none
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1: {fraction}")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        for i, size in enumerate(sizes):
            if size == 0:
                warnings.warn(
                    f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2
                )
    else:
        sizes = [int(length) for length in lengths]
    if sum(sizes) != total:
        raise ValueError(
            f"Sum of input lengths does not equal the length of the input dataset: {list(lengths)} for {total} samples"
        )
    order = host_random(generator).permutation(total).tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size : end]) for size, end in zip(sizes, ends)]
