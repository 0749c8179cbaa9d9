"""LinearCrossEntropyOptions: options by which `linear_cross_entropy` cuts a batch into chunks (PyTorch: torch.nn)."""

import dataclasses
from typing import Any

from ..base import dtypes

_POLICIES = ("auto", "accurate", "balanced", "compact")


@dataclasses.dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """Let `linear_cross_entropy` process the batch in chunks, so that only the logits of one chunk exist at a time.

    `batch_chunk_size`: the rows of a chunk.  `chunking_method`: how to choose it; "aspect_ratio:N" takes batch /
    ceil(classes / features) rows, rounded up to a power of two, over N (at most the batch); "auto" is
    "aspect_ratio:2" unless the size is set; None means one chunk unless the size is set.  `acc_dtype`: the dtype of
    logits and sums, by default float32 for half precision.  `acc_policy` and `allow_retain_graph` are accepted without
    effect: gradients are computed in backward, as often as it runs.

    Raises `ValueError` for another size, policy, dtype or text of a method; `rows` does if size and method disagree.

    >>> import xgrad
    >>> xgrad.nn.LinearCrossEntropyOptions(batch_chunk_size=64).rows(1000, 16, 50)
    64
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            name, _, factor = self.chunking_method.partition(":")
            factor = factor if ":" in self.chunking_method else "1"
            if name != "aspect_ratio" or not factor.isdigit() or int(factor) < 1:
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        known = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
        if self.acc_dtype is not None and (isinstance(self.acc_dtype, str) or self.acc_dtype not in known):
            raise ValueError(
                f"acc_dtype must be one of {{None, float16, bfloat16, float32, float64}}, got {self.acc_dtype!r}"
            )

    def rows(self, batch: int, features: int, classes: int) -> int:
        """Return the rows of a chunk for these sizes."""
        method = self.chunking_method
        if method == "auto":
            method = None if self.batch_chunk_size is not None else "aspect_ratio:2"
        if method is None:
            return max(1, min(self.batch_chunk_size or batch, batch))
        factor = int(method.partition(":")[2] or 1)
        wanted = -(-batch // max(1, -(-classes // max(1, features))))
        found = min((1 << max(0, wanted - 1).bit_length()) // factor, batch)
        if self.batch_chunk_size is not None and min(self.batch_chunk_size, batch) != found:
            raise ValueError(
                f"batch_chunk_size (={self.batch_chunk_size}) and chunking_method ('{method}') give different chunk "
                f"sizes ({min(self.batch_chunk_size, batch)} vs {found}); pass only one."
            )
        return max(1, found)
