"""on_its_device: refuses operands on two devices if one is an `xgrad.Backend`; returns that backend's operator.

`call` asks here once such a backend is in use, because JAX does not know it; JAX itself refuses arrays on two of its
own devices.  `beside` brings what an operator made on the host, such as indices, to the backend.
"""

from typing import Any

import jax

from ..base.jax_compat import Tracer
from ..execution.pending import Pending, declared_of
from ..execution.runner import not_the_same
from ..tensor import Tensor, from_array
from .operator import Operator

_KEYS = {("key",), ("random",)}
# The operators over the parts of sparse tensors, whose indices are on the host.
_SPARSE = {"gather_entries", "sum_entries", "sparse_mm", "sampled_mm", "to_dense", "add"}
_INDICES_ANYWHERE = {"index", "index_put", "getitem", "setitem"}  # PyTorch takes indices on the CPU there


def on_its_device(op: Operator, args: tuple[Any, ...]) -> Operator:
    """Return the operator as the `xgrad.Backend` of its operands has it: `op`, or one with a function of its own.

    Raises PyTorch's `RuntimeError` if an `xgrad.Backend` and another device have operands.  An operand on
    JAX's devices is let through if it is 0-dim (in PyTorch it must be on the CPU, too), a generator's key, an index of
    a sparse tensor, or an operand of `x[index]`.
    """
    found = elsewhere = None
    for number, a in enumerate(args):
        array = held_of(a)
        where = declared_of(array)
        if where is not None:
            if found is not None and found is not where:
                raise not_the_same(a.device, _device_of(args, found), op.name)
            found = where
        elif (
            isinstance(array, (jax.Array, Pending))
            and not isinstance(array, Tracer)
            and not _is_anywhere(op, number, array)
        ):
            # Not `a.ndim`: a subclass that overrides operators is asked about the attribute.
            elsewhere = a if len((array if a._storage is None else a._like()).shape) else elsewhere
    if found is not None and elsewhere is not None and op.name not in _INDICES_ANYWHERE:
        raise not_the_same(_device_of(args, found), elsewhere.device, op.name)
    return op if found is None else found.runtime.operator(op)


def held_of(a: Any) -> Any:
    """Return the array behind an argument; None of a number, and of a tensor that is made of other tensors."""
    return a._held() if isinstance(a, Tensor) and not a._sparse and a._level is None else None


def beside(like: Tensor, values: Any) -> Tensor:
    """Return a tensor of an array of the host; if `like` is on an `xgrad.Backend`, on that."""
    made = from_array(jax.numpy.asarray(values))
    return made if declared_of(held_of(like)) is None else made.to(like.device)


def _device_of(args: tuple[Any, ...], where: Any) -> Any:
    return next(a.device for a in args if isinstance(a, Tensor) and declared_of(a._held()) is where)


def _is_anywhere(op: Operator, number: int, array: Any) -> bool:
    """Return True for a generator's key, which is on the host (`vmap` makes it a batch), and for sparse indices."""
    name = op.parameters[number : number + 1]
    if array.dtype.name == "uint32":
        return array.size <= 4 or name in _KEYS
    return name in (("indices",), ("places",)) and op.name in _SPARSE
