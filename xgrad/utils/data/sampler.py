"""RandomSampler, BatchSampler, ...: order the samples that DataLoader reads (PyTorch: torch/utils/data/sampler.py).

Orders are drawn by NumPy on the host, from a seed that xgrad's generator gives: they are needed there, and no program
has to be compiled for a dataset's length.  So equal seeds give equal orders on all devices, and not PyTorch's orders.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import numpy as np

from ...base import dtypes
from ...dispatch.tables import FUNCTIONS
from ...random import Generator, next_key
from ...tensor import Tensor, from_foreign

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
]  # fmt: skip

T_co = TypeVar("T_co", covariant=True)


def host_random(generator: Generator | None) -> np.random.Generator:
    """Return NumPy's generator, seeded with the next key of xgrad's (the default one for None)."""
    words = np.asarray(from_foreign(next_key(generator))._read())
    return np.random.Generator(np.random.PCG64([int(word) for word in words]))


_BLOCK = 1024  # indices that are drawn at a time: a run may have more than fit into memory


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


class Sampler(Generic[T_co]):
    """An iterable of indices, or of lists of them: a subclass has `__iter__`, and `__len__` if it is known."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError("Subclasses of Sampler should implement __iter__.")


class SequentialSampler(Sampler[int]):
    """All indices, in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Random indices: a permutation, or with `replacement` independent ones; `num_samples` of them.

    >>> import xgrad
    >>> from xgrad.utils.data import RandomSampler
    >>> sorted(RandomSampler(range(4), generator=xgrad.Generator().manual_seed(0)))
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        _positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """The number of indices in an iteration."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        random, n = host_random(self.generator), len(self.data_source)
        if self.replacement:
            for begin in range(0, self.num_samples, _BLOCK):
                yield from random.integers(n, size=min(_BLOCK, self.num_samples - begin)).tolist()
            return
        for begin in range(0, self.num_samples, n):
            yield from random.permutation(n)[: self.num_samples - begin].tolist()

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices, in random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in host_random(self.generator).permutation(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices of `weights`, drawn with probabilities proportional to them, with or without replacement.

    weights: a sequence or a tensor of one dimension; they need not sum to 1.  Raises `ValueError` for other shapes,
    `RuntimeError` for weights that are negative, infinite or NaN, or too few that are not zero.

    >>> import xgrad
    >>> from xgrad.utils.data import WeightedRandomSampler
    >>> list(WeightedRandomSampler([0.0, 2.0, 0.0], 3))
    [1, 1, 1]
    """

    def __init__(
        self,
        weights: Sequence[float] | Tensor,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        _positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self._weights = np.asarray(weights.tolist() if isinstance(weights, Tensor) else weights, dtype=np.float64)
        if self._weights.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {self._weights.shape}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    @property
    def weights(self) -> Tensor:
        """The weights, as float64 while x64 is on, else in the default dtype; they are drawn with in float64."""
        return FUNCTIONS[""]["tensor"](self._weights.tolist(), dtype=dtypes.as_dtype(float))

    def __iter__(self) -> Iterator[int]:
        weights, n = self._weights, self.num_samples
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not weights.sum() > 0:
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        random = host_random(self.generator)
        if self.replacement:
            ends = np.cumsum(weights)
            drawn = np.searchsorted(ends, random.random(n) * ends[-1], side="right")
            return iter(np.minimum(drawn, np.flatnonzero(weights)[-1]).tolist())
        if n > len(weights):
            raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
        if n > np.count_nonzero(weights):
            raise RuntimeError(
                "invalid multinomial distribution (with replacement=False, not enough non-negative category to sample)"
            )
        # The first arrivals of independent Poisson processes with these rates are a draw without replacement.
        with np.errstate(divide="ignore"):
            arrivals = random.exponential(size=len(weights)) / weights
        return iter(np.argsort(arrivals, kind="stable")[:n].tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of another sampler; the last one may be shorter, or is dropped.

    >>> from xgrad.utils.data import BatchSampler, SequentialSampler
    >>> list(BatchSampler(SequentialSampler(range(5)), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        _positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        n: int = len(self.sampler)  # pyright: ignore[reportArgumentType] - its own error if it has none
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
