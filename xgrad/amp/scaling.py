"""Jitted functions of `GradScaler`: they divide gradients by its scale, look for inf and NaN, and update the scale.

`found_in` returns a 0-d tensor for the gradients of each device: 1.0 if one of them is not finite, else 0.0.  Where
all gradients are on one device nothing here reads a value, so a lazy block goes on, and a step can be compiled.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..config import state
from ..dispatch.multi_write import MultiWrite
from ..execution.shapes import MOST_RESULTS
from ..optim.placing import filled
from ..tensor import Tensor


def _unscaled(written: list[Any], read: list[Any]) -> list[Any]:
    *grads, found = written
    inverse = 1.0 / read[0]
    products = [(g * inverse.astype(jnp.promote_types(g.dtype, inverse.dtype))).astype(g.dtype) for g in grads]
    return [*products, _found(found, grads)]


def _seen(written: list[Any], read: list[Any]) -> list[Any]:
    return [_found(written[0], read)]


def _found(found: Any, grads: list[Any]) -> Any:
    finite = [jnp.isfinite(g).all() for g in grads]
    return jnp.where(jnp.stack(finite).all(), found, jnp.ones_like(found))


def _updated(written: list[Any], read: list[Any]) -> list[Any]:
    """Return the next scale, and the next number of steps since it last grew or shrank."""
    scale, tracker = written
    growth, backoff, interval, *found = read
    counted = tracker + jnp.ones_like(tracker)
    grows = counted == interval
    grown = scale * growth
    grown = jnp.where(grows & jnp.isfinite(grown), grown, scale)
    bad = sum(found) > 0
    return [jnp.where(bad, scale * backoff, grown), jnp.where(bad | grows, jnp.zeros_like(tracker), counted)]


_unscale = MultiWrite(_unscaled, "unscale_")
_see = MultiWrite(_seen, "found_inf")
_update = MultiWrite(_updated, "update_scale")


def found_in(grads: list[Tensor], scale: Tensor | None) -> dict[Any, Tensor]:
    """Return the finding of each device; divide the gradients by `scale`, if one is given, in place."""
    waiting: dict[Any, list[Tensor]] = {}
    for grad in grads:
        grad = grad._values() if grad.layout != "strided" else grad
        waiting.setdefault(_where(grad), []).append(grad)
    results: dict[Any, Tensor] = {}
    for together in waiting.values():
        first = together[0]
        found = results.get(first.device)
        if found is None or _where(found) != _where(first):
            found, before = filled(first, 0.0, (), "float32"), found
            if before is not None:
                found.fill_(before.item())
        results[first.device] = found
        for i in range(0, len(together), MOST_RESULTS - 1):
            share = together[i : i + MOST_RESULTS - 1]
            if scale is None:
                _see([found], share)
            else:
                _unscale([*share, found], [scale])
    return results


def update(scale: Tensor, tracker: Tensor, found: list[Tensor], growth: float, backoff: float, interval: int) -> None:
    """Write the next scale, and the next number of steps since it last grew or shrank."""
    numbers = [np.float32(growth), np.float32(backoff), np.int32(interval)]
    _update([scale, tracker], [*numbers, *([sum_of(found)] if _apart(found) else found)])


def sum_of(found: Sequence[Tensor]) -> Tensor:
    """Return the number of devices that have inf or NaN, as a tensor."""
    if _apart(found):
        return filled(found[0], float(sum(f.item() for f in found)))
    total = found[0]
    for other in found[1:]:
        total = total + other
    return total


def _apart(found: Sequence[Tensor]) -> bool:
    return len(set(map(_where, found))) > 1


def _where(grad: Tensor) -> Any:
    """Return the devices of a gradient: one program takes arrays that are on the same."""
    placed = None if state.trace is not None else grad._placed()
    return None if placed is None else frozenset(placed.device_set)
