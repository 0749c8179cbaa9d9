"""step: runs an optax optimizer's step inside of `xgrad.compile`, as part of the traced program, for optax.py.

The state's tensors are tensors from outside, which the program replaces as it does parameters.  Work that must be done
once and not in each call (the state begins from the parameters' values at the first step, and settles in its dtypes) is
done here, on the values that the tensors have outside of the trace.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ..config import state
from ..optim.placing import outside_of_trace
from ..tensor import Tensor
from ._optax_state import GroupState
from ._optax_update import Part, direct_of, settled, updated


def step(
    states: list[GroupState],
    parts: list[Part],
    all_params: list[list[Tensor]],
    params: list[Tensor],
    grads: list[Any],
    extra: dict[str, Any],
    functions: dict[str, Callable],
    unless: Any = None,
) -> None:
    """Do the step; `all_params` are the parameters of each state, `params` the ones that have a gradient.

    unless: an array; if it is above zero when the program runs, parameters and state stay as they are.
    """
    direct = direct_of(params)
    arrays = [p._read() for p in params]
    extra = {**extra, **functions}
    outside = [[_outside(p) for p in own] if group.fresh else None for group, own in zip(states, all_params)]
    with outside_of_trace():
        for group, values in zip(states, outside):
            if values is not None:
                group.refresh(values)
        like = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (arrays, grads))
        while True:
            leaves = [jax.ShapeDtypeStruct(t._array.shape, t._array.dtype) for group in states for t in group.tensors]
            avals = jax.eval_shape(lambda p, g, s: updated(parts, direct, p, g, s, extra)[2], *like, leaves)
            if settled(states, parts, avals):
                break
    tensors = [tensor for group in states for tensor in group.tensors]
    values, updates, leaves = updated(parts, direct, arrays, grads, [t._read() for t in tensors], extra)
    values, updates = iter(values), iter(updates)
    for param, is_direct in zip(params, direct, strict=True):
        new = next(values) if is_direct else optax.apply_updates(param._read(), next(updates))
        param._write(new if unless is None else _kept(param, new, unless))
    for tensor, leaf in zip(tensors, leaves, strict=True):
        tensor._write(leaf if unless is None else _kept(tensor, leaf, unless))


def _kept(tensor: Tensor, new: Any, unless: Any) -> Any:
    """Return the new value of a tensor, or its old one if `unless` is above zero."""
    return jax.lax.select(jnp.broadcast_to(unless > 0, new.shape), tensor._read(), new)


def _outside(param: Tensor) -> Any:
    """Return the value of a parameter outside of the trace."""
    param._requires_grad  # noqa: B018 - adds it to the overlay
    if id(param) not in state.trace.by_id:  # made in the trace
        return param._read()
    with outside_of_trace():
        return param._read()
