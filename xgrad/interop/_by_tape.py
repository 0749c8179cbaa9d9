"""by_tape, for `to_jax(grad="tape")`: makes a pure function whose gradient in JAX is xgrad's backward.

    run(*arrays)      a `jax.custom_vjp`
      forward         the function, on tensors that require grad
      backward        the function again, and `autograd.grad` with create_graph: itself such a `run`, so that
                      derivatives of any order are the tape's

Invariant: all arrays are arguments of `run` and none is closed over, because they may be tracers of the transformation
that differentiates it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..autograd.backward import grad
from ..base import dtypes
from ..config import state
from ..tensor import Tensor, from_foreign
from ..tensor_methods import pytrees


def by_tape(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Return the result of a function over tensors, as arrays whose gradient is the tape's."""
    leaves, tree = pytrees.flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    nesting: list[Any] = []

    def flat(*tensors: Tensor) -> list:
        full = [*leaves]
        for place, tensor in zip(places, tensors, strict=True):
            full[place] = tensor
        given, named = tree.unflatten(full)
        results, nested = pytrees.flatten(function(*given, **named))
        nesting[:] = [nested]
        return results

    arrays = [leaves[i]._read() for i in places]
    for i in places:
        leaves[i] = None
    results = taped(flat)(*arrays)
    return nesting[0].unflatten(results)


def taped(flat: Callable[..., list], ended: Callable[[], None] = lambda: None) -> Any:
    """Make a function over tensors one over arrays, with the tape's gradient.  Both return lists.

    `ended` is called when the graph of a call of `flat` is not needed any more.
    """

    @jax.custom_vjp
    def run(*arrays: Any) -> list:
        enabled, state.grad_enabled = state.grad_enabled, not state.inference
        try:
            results = flat(*[_recorded(array) for array in arrays])
            return [r._read() if isinstance(r, Tensor) else r for r in results]
        finally:
            state.grad_enabled = enabled
            ended()

    def forward(*arrays: Any) -> tuple[list, tuple]:
        return run(*arrays), arrays

    def backward(arrays: tuple, cotangents: list) -> tuple:
        moving = [i for i, a in enumerate(arrays) if a.dtype in dtypes.INEXACT]
        reached = [i for i, c in enumerate(cotangents) if c.dtype in dtypes.INEXACT]

        def pulled(*values: Tensor) -> list:
            given, from_above = values[: len(arrays)], values[len(arrays) :]
            inputs = [given[i] for i in moving]
            results = flat(*[g.clone() if g.requires_grad else g for g in given])
            pairs = [(results[i], c.conj()) for i, c in zip(reached, from_above) if results[i].requires_grad]
            if not pairs:
                return [x.detach() * 0 for x in inputs]
            ends, gradients = zip(*pairs)
            found = grad(ends, inputs, gradients, create_graph=True, allow_unused=True, materialize_grads=True)
            return [f.conj() for f in found if f is not None]  # never None: they are materialized

        found = iter(taped(pulled, ended)(*map(_array, (*arrays, *[cotangents[i] for i in reached]))))
        return tuple([next(found) if i in moving else None for i in range(len(arrays))])

    run.defvjp(forward, backward)
    return run


def _array(value: Any) -> Any:
    """Return the value as JAX's array: of a constant of NumPy's jax 0.7.2 makes something else while it traces."""
    return value if isinstance(value, jax.Array) else jnp.asarray(np.asarray(value))


def _recorded(array: Any) -> Tensor:
    """Return a tensor that requires grad, if its dtype can, and is not a leaf: the function may write its arguments."""
    tensor = from_foreign(array)
    return tensor.requires_grad_().clone() if tensor.dtype in dtypes.INEXACT else tensor
