"""Helper functions for sparse tensors: refuse tensors inside of vmap, detach tensors, read values as NumPy arrays.

`require_plain` raises for tensors inside of vmap, `private` makes a tensor of the same array outside of all graphs, and
`host_of` reads the values that decide a shape.  The modules of xgrad/sparse and ops/sparse call them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...tensor import Tensor, from_array
from ...views.storage import Tracer, value_needed


def require_plain(name: str, *tensors: Any) -> None:
    """Raise for a BatchedTensor: an operation recorded here would give no entry a gradient."""
    if any(t._level is not None for t in tensors):
        raise NotImplementedError(
            f"{name}: no sparse tensors inside of vmap (or with is_grads_batched=True). Use dense ones there, "
            "as sparse=False gives them, or a loop."
        )


def same(array: Any) -> Any:
    return array


def private(tensor: Tensor, place: Callable[..., Any] = same) -> Tensor:
    """A tensor with the same array (or `place` of it), outside of all graphs; writes to one do not change the other."""
    require_plain("sparse tensor", tensor)
    twin = from_array(place(tensor._read()))
    twin._owned = False
    return twin


def host_of(tensor: Tensor, where: str) -> np.ndarray:
    """The values on the host, which are needed because they determine a shape."""
    array = tensor._read()
    if isinstance(array, Tracer):
        raise value_needed(
            array, f"{where}() needs the values: how many entries there are would be a shape (jax.jit traces)"
        )
    return np.asarray(private(tensor)._read())  # a twin: what NumPy sees is no longer ours to write to
