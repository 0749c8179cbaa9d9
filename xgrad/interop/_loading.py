"""Checks that tensors can be written, and writes loaded values into them, for safetensors.py and _checkpoint_writes.py.

Callers check all tensors before they write the first: so a tensor that refuses the write leaves all as they were.
"""

from collections.abc import Iterable
from typing import Any

from ..config import Unrecorded, state
from ..errors import InferenceTensorError, OverlapError
from ..tensor import Tensor, from_foreign
from ..views.storage import place_of


def check_writable(name: str, tensor: Tensor) -> None:
    """Raise the error that a write to the tensor would raise, with its name."""
    if tensor._inference and not state.inference:
        raise InferenceTensorError(
            f"'{name}' was made in inference mode: load into it within inference_mode(), or into a clone()"
        )
    geometry = tensor._geometry()
    if geometry is not None and geometry.overlaps():
        raise OverlapError(f"'{name}' shows one element in several places, and can't be loaded into: clone() it")


def write_all(pairs: Iterable[tuple[Tensor, Any]]) -> None:
    """Write each array, of the same shape, dtype and sharding, into its tensor: storages stay, versions rise."""
    with Unrecorded():
        for tensor, array in pairs:
            tensor.copy_(from_foreign(array))


def home_of(tensor: Tensor) -> Any:
    """Return the placement for a tensor's new value; None if the tensor was made without a device: JAX may choose."""
    return place_of(tensor._read())
