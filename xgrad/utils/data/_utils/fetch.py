"""MapFetcher, IterableFetcher: read the samples of one batch for DataLoader, and collate them (PyTorch: fetch.py)."""

from collections.abc import Callable
from typing import Any

from .collate import default_collate

END: Any = object()  # the result of a fetch after an IterableDataset's last sample


class Fetcher:
    """Reads from a dataset.  batched: an index is a list of them, and a stream's samples come in lists."""

    def __init__(self, dataset: Any, batched: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.dataset, self.batched, self.collate_fn, self.drop_last = dataset, batched, collate_fn, drop_last

    def fetch(self, index: Any) -> Any:
        """Return the batch of these indices, or the next one of a stream; END after the last one."""
        raise NotImplementedError


class MapFetcher(Fetcher):
    """Reads from a dataset with indices."""

    def fetch(self, index: Any) -> Any:
        dataset = self.dataset
        if not self.batched:
            return self.collate_fn(dataset[index])
        if (
            self.collate_fn is default_collate
            and (whole := getattr(type(dataset), "_collated_samples", None)) is not None
        ):
            batch = whole(dataset, index)
            if batch is not None:
                return batch
        if getattr(dataset, "__getitems__", None):
            return self.collate_fn(dataset.__getitems__(index))
        return self.collate_fn([dataset[i] for i in index])


class IterableFetcher(Fetcher):
    """Reads from a stream."""

    def __init__(self, dataset: Any, batched: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        super().__init__(dataset, batched, collate_fn, drop_last)
        self._samples = iter(dataset)
        self._ended = False

    def fetch(self, index: Any) -> Any:
        if self._ended:
            return END
        wanted = len(index) if self.batched else 1
        found = []
        while len(found) < wanted:
            sample = next(self._samples, END)
            if sample is END:
                self._ended = True
                break
            found.append(sample)
        if not found or (self.batched and self.drop_last and len(found) < wanted):
            return END
        return self.collate_fn(found if self.batched else found[0])
