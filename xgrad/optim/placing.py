"""Makes the tensors of an optimizer's state on the parameter's device, small ones without compiling a program.

`zeros_like` would compile one for each shape, 20 ms each, before the first step.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ..config import block, state
from ..dispatch.tables import FUNCTIONS
from ..execution.donation import copied, sent
from ..execution.pending import declared_of, only_shape, quietly
from ..execution.shapes_only import array_of
from ..tensor import Tensor, from_array
from ..views.storage import Tracer

# Bytes: more is not sent from the host, but made on the device.  To a CPU it is copied, and compiling takes longer.
_SMALL, _SMALL_ON_CPU = 1 << 20, 1 << 24


@block
def outside_of_trace() -> Iterator[None]:
    """Context manager: tensors are as they are outside of the compiled function that is traced, and programs run."""
    trace, overlay, state.trace, state.overlay = state.trace, state.overlay, None, None
    try:
        with jax.ensure_compile_time_eval():
            yield
    finally:
        state.trace, state.overlay = trace, overlay


def filled(param: Tensor, value: complex, shape: Any = None, dtype: Any = None) -> Tensor:
    """Return a tensor of one value: like the parameter, or of another shape or dtype, and on its devices."""
    shape = tuple(param.shape) if shape is None else tuple(shape)
    dtype = param.dtype if dtype is None else np.dtype(dtype)
    held = _held(param)
    if only_shape(held):
        return from_array(array_of(shape, dtype))
    here = not isinstance(held, Tracer) and declared_of(held) is None and param._interpreter is None
    if not here or int(np.prod(shape)) * dtype.itemsize > (_SMALL_ON_CPU if _on_cpu(held) else _SMALL):
        if here and shape == tuple(param.shape) and _several(held):
            made = jax.jit(lambda: jax.numpy.full(shape, value, dtype), out_shardings=_place(param, shape))()
            return from_array(made)
        if here and not _several(held):
            # At once, also in a lazy block, whose program is then the same as in the second step.
            return from_array(jax.numpy.full(shape, value, dtype, device=_place(param, shape)))
        return FUNCTIONS[""]["full"](shape, value, dtype=dtype, device=param.device)
    return from_array(_sent(np.full(shape, value, dtype), param))


def shapes_ahead(param: Tensor, shapes: list[Any]) -> list[Any]:
    """Return `jax.ShapeDtypeStruct`s of a parameter and of new state, of these shapes, beside it; none if not known."""
    held = _held(param)
    if param.__class__ is not Tensor or isinstance(held, Tracer) or declared_of(held) is not None or _several(held):
        return []
    place = held.sharding if held.committed else None
    return [jax.ShapeDtypeStruct(tuple(shape), held.dtype, sharding=place) for shape in (param.shape, *shapes)]


def copy_for(param: Tensor, value: Any, keep_dtype: bool = False) -> Tensor:
    """Return a copy of a state's tensor or array, in the parameter's dtype, if that is floating-point, and on its
    devices.

    keep_dtype: for counts of steps.
    """
    dtype = None if keep_dtype or param.dtype.kind not in "fV" else param.dtype
    if isinstance(value, Tensor):
        if declared_of(_held(param)) is not None or value._interpreter is not None or value._sparse:
            return value.detach().to(device=param.device, dtype=dtype or value.dtype, copy=True)
        if dtype is not None and value.dtype != dtype:
            value = value.detach().to(dtype)
        return from_array(_sent(quietly(value._read()), param))
    array = host_array(value)
    return from_array(_sent(array if dtype is None else array.astype(dtype), param))


def is_foreign(value: Any) -> bool:
    """Return True for an array or tensor of another library."""
    return not isinstance(value, (Tensor, np.generic)) and hasattr(value, "__array__") and hasattr(value, "shape")


def host_array(value: Any) -> np.ndarray:
    """Return an array or tensor of another library as NumPy's, narrowed if 64-bit types are off."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except TypeError:  # NumPy has no bfloat16 of PyTorch's
        array = np.asarray(jax.dlpack.from_dlpack(value))
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype))


def _sent(array: Any, param: Tensor) -> Any:
    """Return a copy of an array at the parameter's place."""
    place = _place(param, array.shape)
    if isinstance(array, np.ndarray):
        return sent(array, place)
    if place is None:
        return jax.device_put(array, may_alias=False)
    if isinstance(array, jax.Array) and array.sharding == place:
        return copied([array])[0]
    return jax.device_put(array, place, may_alias=False)


def _held(param: Tensor) -> Any:
    return param._held()


def _several(held: Any) -> bool:
    return len(held.sharding.device_set) > 1


def _on_cpu(held: Any) -> bool:
    return next(iter(held.sharding.device_set)).platform == "cpu"


def _place(param: Tensor, shape: Any) -> Any:
    """Return the sharding for a state of this shape; None for JAX's default device."""
    held = _held(param)
    if isinstance(held, Tracer) or not held.committed:
        return None
    place = held.sharding
    if isinstance(place, NamedSharding) and tuple(shape) != tuple(held.shape):
        return NamedSharding(place.mesh, PartitionSpec(), memory_kind=place.memory_kind)
    return place
