"""DistributedSampler: gives each process its part of a dataset (PyTorch: torch/utils/data/distributed.py)."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...distributed import get_rank, get_world_size
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index of the dataset, or of a permutation of it, from the `rank`-th on.

    num_replicas, rank: by default the number of processes of `jax.distributed`, and this one's.  drop_last: leave out
    the last samples if they can't be shared evenly, in place of repeating the first ones.  The permutation depends on
    `seed` and on the epoch: call `set_epoch(epoch)` before each one.

    Raises `ValueError` for a rank outside of [0, num_replicas - 1].

    >>> from xgrad.utils.data import DistributedSampler
    >>> list(DistributedSampler(range(5), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 0]
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        num_replicas = get_world_size() if num_replicas is None else num_replicas
        rank = get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch: Any = 0
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        n = len(dataset)
        self.num_samples: int = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size: int = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        random = np.random.Generator(np.random.PCG64(self.seed + self.epoch))
        order = random.permutation(n) if self.shuffle else np.arange(n)
        return iter(np.resize(order, self.total_size)[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which shuffles in another way."""
        self.epoch = epoch
