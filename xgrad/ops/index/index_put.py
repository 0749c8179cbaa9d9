"""index, index_put: read and write elements by index tensors and masks, for `x[...]` and `x[...] = value`.

The gradient of reading scatter-adds, so duplicates accumulate; only the index is saved.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base import dtypes
from ...dispatch.call import call
from ...dispatch.declare import composite, internal
from ...dispatch.inplace import call_inplace
from ...dispatch.promotion import cast
from ...dispatch.samples import COMPLEX, real, sample, whole
from ...tensor import Tensor
from .index_checks import check_range
from .masks import index_tensor, truth
from .scatter import add


def _full_index(self: Any, indices: tuple, places: tuple) -> tuple:
    """An index with `indices` in the dimensions `places` and full slices elsewhere, which NumPy reads as PyTorch."""
    shapes = [i.shape for i in indices]
    try:
        jnp.broadcast_shapes(*shapes)
    except ValueError:
        shown = ", ".join(str(list(s)) for s in shapes)
        raise IndexError(
            f"shape mismatch: indexing tensors could not be broadcast together with shapes {shown}"
        ) from None
    full: list = [slice(None)] * self.ndim
    for place, index in zip(places, indices):
        full[place] = index
    return tuple(full)


@internal(
    "index",
    samples=(
        sample(real(2, 3), whole(-3, 3, 4), places=(1,)),
        sample(real(2, 3), whole(0, 2, 4), whole(0, 3, 4), places=(0, 1)),
        sample(real(2, 3), whole(0, 2, 2, 1), whole(0, 3, 3), places=(0, 1)),
        sample(real(2, 3), whole(0, 3, 0), places=(1,)),
        *COMPLEX,
    ),
)
def index_(self, *indices, places):
    """`self` indexed by integer tensors in the dimensions `places`."""
    return self.at[_full_index(self, indices, places)].get(mode="fill")


def _index_adjoint(grad: Any, function: Any, indices: Any, shapes: Any, dtypes: Any) -> Any:
    return jax.vjp(lambda x: function(x, *indices), jnp.zeros(shapes[0], dtypes[0]))[1](grad.astype(dtypes[0]))[0]


index_.derivative(self=_index_adjoint)


@internal(
    "index_put",
    samples=(
        sample(real(2, 4), real(2, 3), whole(0, 4, 3), places=(1,), accumulate=False),
        sample(real(2, 3), real(4), whole(0, 2, 4), whole(0, 3, 4), places=(0, 1), accumulate=True),
        sample(real(2, 4), real(), whole(0, 4, 3), places=(1,), accumulate=False),
        sample(real(2, 3), real(2, 0), whole(0, 3, 0), places=(1,), accumulate=True),
        *COMPLEX,
    ),
)
def index_put_array(self, values, *indices, places, accumulate):
    """A copy of `self` with `values`, which broadcast, written or added at an advanced index."""
    at = self.at[_full_index(self, indices, places)]
    if getattr(values, "weak_type", False):
        values = cast(values, self.dtype)
    if values.dtype != self.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got "
            f"{dtypes.torch_name(self.dtype)} for the destination and "
            f"{dtypes.torch_name(values.dtype)} for the source."
        )
    shape = jax.eval_shape(lambda: at.get()).shape
    try:
        values = jnp.broadcast_to(values, shape)
    except ValueError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result of "
            f"shape {list(shape)}"
        ) from None
    return add(at, values) if accumulate else at.set(values)


index_put_array.derivative(
    self=lambda grad, indices, places, accumulate: (
        grad if accumulate else grad.at[_full_index(grad, indices, places)].set(0)
    ),
    values=lambda grad, indices, places: index_(grad, *indices, places=places),
)


def expand_masks(self: Tensor, indices: Any) -> tuple[tuple[int, ...], list[Tensor]]:
    """Index tensors and masks, None for a whole dimension, as (dimensions, integer tensors), checked."""
    places: list[int] = []
    tensors: list[Tensor] = []
    dim = 0
    for number, index in enumerate(indices):
        if index is None:
            dim += 1
            continue
        if index._dtype in (dtypes.bool, dtypes.uint8):
            shape = tuple(self.shape[dim : dim + index.ndim])
            if tuple(index.shape) != shape:
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index {number} does not match the shape of the "
                    f"indexed tensor {list(self.shape)} at index {dim}"
                )
            found = [index_tensor(i) for i in np.nonzero(truth(index, "indexing with a boolean mask"))]
        elif index._dtype in (dtypes.int32, dtypes.int64):
            found = [index]
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        if dim + len(found) > self.ndim:
            raise IndexError(f"too many indices for tensor of dimension {self.ndim}")
        for i in found:
            if i is index:
                check_range(i, self.shape[dim], dim, negative=True)
            places.append(dim)
            tensors.append(i)
            dim += 1
    return tuple(places), tensors


def write_at(
    self: Tensor, places: tuple[Any, ...], indices: list[Any], values: Any, accumulate: bool, inplace: bool
) -> Tensor:
    """`index_put` with prepared indices; without any the whole tensor is meant."""
    run = call_inplace if inplace else call
    return run(index_put_array.operator, (self, values, *indices), (places, bool(accumulate)))


@composite
def index_put(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """A copy of `input` with `values` written (or added) at the places that a tuple of index tensors names."""
    places, tensors = expand_masks(input, indices)
    return write_at(input, places, tensors, values, accumulate, False)


@composite("index_put_")
def index_put_(input: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """Write `values` (or add them) at the places that a tuple of index tensors names, in place."""
    places, tensors = expand_masks(input, indices)
    return write_at(input, places, tensors, values, accumulate, True)
