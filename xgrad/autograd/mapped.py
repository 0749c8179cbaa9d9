"""A function of tensors mapped over a batch of tangents or gradients, for `functional` and `gradcheck`.

Invariant: the result has the history that the function gives it.  `jax.vmap` maps arrays, which have none: where there
is a history, the function is run for one entry of the batch after another.
"""

from collections.abc import Callable
from typing import Any

import jax

from ..ops import registry
from ..tensor import Tensor, from_array


def mapped(function: Callable[..., tuple[Tensor, ...]], *batches: Tensor) -> tuple[Tensor, ...]:
    """`function` of each entry of the batches, along their dimension 0; the results joined along theirs."""
    recorded = False

    def of_arrays(*arrays: Any) -> tuple:
        nonlocal recorded
        found = function(*(from_array(a) for a in arrays))
        recorded = any(t.requires_grad for t in found)
        return tuple(t._read() for t in found)

    results = jax.vmap(of_arrays)(*(b._read() for b in batches))
    if not (recorded and len(batches[0])):
        return tuple(from_array(r) for r in results)
    stack = registry.FUNCTIONS[""]["stack"]
    rows = (function(*entries) for entries in zip(*batches, strict=True))
    return tuple(stack(list(column)) for column in zip(*rows, strict=True))
