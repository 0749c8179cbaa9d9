"""call_out: runs an operator and writes the result into the tensor given as `out=`, which takes the result's shape."""

import warnings
from typing import Any

from ..base import dtypes
from ..config import state
from ..engine import placement
from ..tensor import Tensor
from ..views.storage import place_of
from .call import call
from .operator import Operator


def call_out(op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...], out: Any) -> Any:
    """The `out=` form: write the result into `out`, which takes the result's shape; several into a tuple of tensors.

    Raises `RuntimeError` if anything requires grad (as PyTorch does) and if the dtype cannot be cast.
    """
    outs = (out,) if op.outputs is None else out
    if not isinstance(outs, (tuple, list)) or not all(isinstance(o, Tensor) for o in outs):
        wanted = "Tensor" if op.outputs is None else f"tuple of {len(op.outputs._fields)} Tensors"
        raise TypeError(f"{op.name}(): argument 'out' must be {wanted}, not {type(out).__name__}")
    if state.grad_enabled and any(isinstance(a, Tensor) and a.requires_grad for a in (*args, *outs)):
        raise RuntimeError(
            f"{op.name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if state.forward_level >= 0 and any(isinstance(a, Tensor) and a._moves() for a in (*args, *outs)):
        raise NotImplementedError(
            f"Trying to use forward AD with {op.name}_out that does not support it because it is an out= function: "
            f"call {op.name}() without out, and copy_() its result."
        )
    result = call(op, args, statics)
    if op.outputs is None:
        return write_out(op.name, result, out)
    if len(outs) != len(result):
        raise TypeError(f"{op.name}(): argument 'out' must be a tuple of {len(result)} Tensors, but has {len(outs)}")
    return op.outputs(*[write_out(op.name, r, o) for r, o in zip(result, outs, strict=True)])


def write_out(name: str, result: Tensor, out: Tensor) -> Tensor:
    """Write `result` into `out`, resizing `out` if its shape differs, with a warning unless it was empty."""
    if dtypes.category(result._dtype) > dtypes.category(out._dtype):
        names = [dtypes.TORCH_NAMES.get(d, d.name) for d in (result.dtype, out.dtype)]
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]} ({name}, out=)")
    if out.shape != result.shape:
        if 0 not in out.shape and out.shape != (0,):
            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
                f"match the required output shape {list(result.shape)}. Pass an `out` of the right shape.",
                stacklevel=3,
            )
        out._array = placement.zeros(result.shape, out.dtype, _place_for(out, result))
        out._storage, out._owned = None, True
        out._chain = None  # pyright: ignore[reportAttributeAccessIssue] - as in the class: it goes with _storage
    return out.copy_(result)


def _place_for(out: Tensor, result: Tensor) -> Any:
    """The placement of an `out` that is resized: its own device; on a mesh, the result's sharding."""
    place = place_of(out._held())
    return place if place is None or len(place.device_set) == 1 else place_of(result._read())
