"""lend: gives a tensor's array to a lazy block as a `Pending`, so that a queued write may reuse its memory."""

from typing import Any

from jax.sharding import SingleDeviceSharding

from ..base.jax_compat import Tracer
from .pending import Pending, aval_of, place_number


def lend(array: Any, owner: Any) -> Any:
    """Return a Pending with this value, which the queue may donate, in place of the array of a tensor or its storage.

    Return the array itself if it belongs to no tensor, to several devices or to a trace.
    """
    if isinstance(array, Tracer) or array.sharding.__class__ is not SingleDeviceSharding:
        return array
    storage = getattr(owner, "_storage", None)
    holder = owner if storage is None else storage
    held = getattr(holder, "_array", None)
    if isinstance(held, Pending) and held.value is array:
        return held  # the operand before this one is the same tensor
    if held is not array:
        return array
    p = valued(array, holder._owned)
    if holder._array is array:  # else another thread has written it: no call between the comparison and the assignment
        holder._array = p
    return p


def valued(array: Any, owned: bool) -> Pending:
    """Return a Pending that has this value, an array on one device."""
    p = Pending(None, 0, aval_of(array.shape, array.dtype, array.aval.weak_type))
    p.value = array
    p.owned = owned
    p.place = place_number(array.sharding) if array.committed else 0
    return p
