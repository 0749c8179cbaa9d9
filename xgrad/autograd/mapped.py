"""mapped: runs a function on all entries of batches at once, as `func.vmap`, for autograd.functional and gradcheck."""

from collections.abc import Callable

from ..batching.batched_tensor import VmapLevel, add_batch, in_level, remove_batch
from ..tensor import Tensor


def mapped(function: Callable[..., tuple[Tensor, ...]], *batches: Tensor) -> tuple[Tensor, ...]:
    """Apply `function` to each entry of the batches, along dimension 0; return the results, stacked likewise."""

    def run(level: VmapLevel) -> tuple[Tensor, ...]:
        results = function(*(add_batch(b, 0, level) for b in batches))
        return tuple(remove_batch(r, 0, level) for r in results)

    return in_level(run, len(batches[0]))
