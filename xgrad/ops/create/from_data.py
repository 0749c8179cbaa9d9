"""tensor, as_tensor, from_numpy, ...: make tensors from numbers, nested lists, NumPy and JAX arrays, other tensors.

Invariants: the dtype is the one that PyTorch infers, or, of 64 bits without x64, the one that `dtypes.as_dtype` puts in
its place (an integer that does not fit is an `OverflowError`); the user's memory is never donated, and only a JAX
array's may be shared (`as_tensor`, `asarray`).
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from ...base import dtypes
from ...base.declared import DeclaredPlace
from ...base.devices import (
    Devices,
    is_default,
    is_left_to_jax,
    kept,
    require_here,
    same_placement,
    settled,
    sharding_of,
)
from ...base.jax_compat import Tracer
from ...config import state
from ...dispatch.argument_kinds import require_no_grad
from ...dispatch.call import call
from ...dispatch.declare import composite, internal
from ...dispatch.operands import plain_number
from ...dispatch.promotion import cast
from ...dispatch.samples import COMPLEX, real, sample, whole
from ...execution.pending import declared_of
from ...execution.runner import transferred
from ...tensor import Tensor, from_foreign
from .scalars import all_fit, fill_value, number

_BUILTINS = {bool, int, float, complex}


@internal(
    differentiable=False,
    samples=(sample(real(2, 3), dtype=dtypes.complex128), sample(whole(-3, 4, 2, 3), dtype=dtypes.float64)) + COMPLEX,
)
def _converted(self, *, dtype):
    """A copy in `dtype`, which xgrad owns."""
    return cast(self, dtype)


_converted.operator.converts = True


def place(x: Any, placement: Sharding | Devices | None) -> Any:
    """Within a kernel, compute `x` at `placement`.  Raises `PlacementError` for a shape that does not fit."""
    where = settled(placement, x.shape)
    return x if where is None or where.__class__ is DeclaredPlace else jax.lax.with_sharding_constraint(x, where)


@internal(
    differentiable=False,
    samples=(
        sample(real(), size=(2, 3), dtype=dtypes.float64, placement=None),
        sample(1.5, size=(0, 3), dtype=dtypes.float64, placement=None),
    )
    + COMPLEX,
)
def filled(self, *, size, dtype, placement):
    """A tensor filled with one value, which is an argument of the program."""
    return place(jnp.full(size, cast(self, dtype), dtype), placement)


def named_place(device: Any) -> Sharding | Devices | None:
    """Convert a device specification to a sharding; None: this thread's default device."""
    where = state.place if device is None else sharding_of(device)
    if state.trace is not None:
        state.trace.allow(where)
    return where


def placement(device: Any) -> Sharding | Devices | None:
    """Return the sharding of a new tensor, a static argument of kernels; None for JAX's default device."""
    where = named_place(device)
    return None if where is None or is_default(where) or is_left_to_jax(device) else where


def finish(out: Tensor, requires_grad: bool) -> Tensor:
    """Mark a new tensor as requiring grad if it shall, and return it."""
    if requires_grad is not True:
        if requires_grad is not False:
            raise TypeError(f"argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
        return out
    if out.dtype not in dtypes.INEXACT:
        raise RuntimeError(
            "Only Tensors of floating point and complex dtype can require gradients, not one of "
            f"{dtypes.torch_name(out._dtype)}"
        )
    return out.requires_grad_()


def _leaf_types(data: Any) -> set[type]:
    """The types of all leaves of nested lists; one pass in C for each innermost list."""
    if not isinstance(data, (list, tuple)):
        return {type(data)}
    types = set(map(type, data))
    if any(issubclass(t, (list, tuple)) for t in types):
        return set().union(*map(_leaf_types, data))
    return types


def _host(leaf: Any) -> np.ndarray:
    """Convert a leaf that is not a Python number to a NumPy array."""
    if isinstance(leaf, Tensor):
        array = leaf.detach()._read()
        if not isinstance(array, Tracer):  # NumPy raises the error for a tracer
            require_here(array, "making a tensor of lists of tensors")
        return np.asarray(array)
    if isinstance(leaf, range):
        return np.asarray(leaf, dtypes.int64)
    if not hasattr(leaf, "__array__") and not hasattr(leaf, "__jax_array__"):
        if isinstance(leaf, str):
            raise ValueError("too many dimensions 'str': a tensor is made of numbers")
        raise RuntimeError(f"Could not infer dtype of {type(leaf).__name__}: expected numbers, lists of them or arrays")
    return np.asarray(leaf)


def is_sequence(data: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether PyTorch reads an object like a list: deques, arrays of the module `array`, classes with
    `__getitem__`."""
    if isinstance(data, (str, bytes, Mapping, Tensor, np.ndarray, np.generic, range)):
        return False
    kind = type(data)
    # The instance too: a class shows its metaclass's methods, which an enumeration's members do not have.
    methods = all(hasattr(has, name) for has in (kind, data) for name in ("__len__", "__getitem__"))
    return methods and not hasattr(kind, "__array__")


def _leaves_to_host(data: Any) -> Any:
    if isinstance(data, (list, tuple)) or is_sequence(data):
        return [_leaves_to_host(d) for d in data]
    data = plain_number(data)
    return data if type(data) in _BUILTINS else _host(data)


def _leaf_dtypes(data: Any) -> set[np.dtype]:
    if isinstance(data, (list, tuple)):
        return set().union(*map(_leaf_dtypes, data))
    return {number_dtype(data) if type(data) in _BUILTINS else data.dtype}


def number_dtype(value: Any) -> np.dtype:
    """The dtype that PyTorch infers for a Python number."""
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, (float, complex)):
        default = dtypes.get_default_dtype()
        return default if isinstance(value, float) else dtypes.complex_of(default)
    return dtypes.default_integer()


def _inferred(types: set[type]) -> np.dtype:
    """The dtype of lists whose leaves are Python numbers of these types; the default dtype for empty lists."""
    highest = next((kind for kind in (complex, float, int, bool) if kind in types), float)
    return number_dtype(highest())


def _from_lists(data: Any, dtype: np.dtype | None) -> np.ndarray:
    types = _leaf_types(data)
    if not types <= _BUILTINS:
        data = _leaves_to_host(data)
        types = _leaf_types(data)
    if types <= _BUILTINS and (dtype is None or dtype not in (dtypes.float64, dtypes.complex128)):
        dtype = None if dtype is None else dtypes.as_dtype(dtype)  # the error of a number that does not fit names it
    else:
        if dtype is None:
            found = _leaf_dtypes(data)
            dtype = found.pop()
            for other in found:
                dtype = dtypes.promote_types(dtype, other)
        if dtype in dtypes.WIDE and not dtypes.x64_enabled():
            return dtypes.narrowed(_array(data, dtype))
    return _array(data, _inferred(types) if dtype is None else dtype, dtype in dtypes.INTEGERS and float in types)


def _array(data: Any, dtype: np.dtype, fractions: bool = False) -> np.ndarray:
    try:
        if fractions and not all_fit(np.array(data, np.float64), dtype):
            return _leaf_by_leaf(data, dtype)
        with np.errstate(over="ignore"):  # numbers too large for a float become infinite
            return np.array(data, dtype=dtype)
    except (OverflowError, ValueError) as error:
        if "inhomogeneous" in str(error) or "sequence" in str(error):
            raise ValueError(f"expected sequence of equal lengths at every level of a nested list: {error}") from None
        if dtype not in dtypes.INTEGERS:
            raise
        return _leaf_by_leaf(data, dtype)
    except TypeError as error:
        raise TypeError(f"value cannot be converted to {dtype.name}: {error}") from None


def _leaf_by_leaf(data: Any, dtype: np.dtype) -> np.ndarray:
    """Convert each leaf by itself: NumPy refuses negative numbers that PyTorch wraps, and its error names no number."""
    leaves = np.array(data, dtype=object)
    return np.array([fill_value(leaf, dtype) for leaf in leaves.flat], dtype).reshape(leaves.shape)


def _scalar(value: Any, dtype: np.dtype) -> Any:
    """Convert a number to the value of a tensor; one too large for a float becomes infinite."""
    if dtype not in dtypes.INEXACT:
        if isinstance(value, complex) and dtype != dtypes.bool:
            raise TypeError(f"'complex' object cannot be interpreted as an integer ({dtype.name})")
        return fill_value(value, dtype)
    if isinstance(value, complex) and dtype not in dtypes.COMPLEX:
        raise TypeError(f"must be real number, not complex ({dtype.name})")
    return number(value, dtype)


def constant_array(array: np.ndarray, device: Any) -> Any:
    """Put host data into an array that stays concrete under a trace, so that an index or a mask can be read."""
    where = settled(placement(device), array.shape)
    out = transferred(array, where)
    if isinstance(out, Tracer):
        with jax.ensure_compile_time_eval():
            out = transferred(array, where)
    return out


def _convert(data: Any, dtype: Any, device: Any, copy: bool) -> Tensor:
    """Convert a leaf of the data to a tensor; `copy=False` allows to share JAX arrays, which are immutable."""
    asked = None if dtype is None else dtypes.named_dtype(dtype)
    dtype = None if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(data, Tensor):
        data = data.detach()._read()
        device = declared_of(data) if device is None else device
    elif not isinstance(data, (jax.Array, np.ndarray, np.generic)) and hasattr(data, "__jax_array__"):
        data = data.__jax_array__()
    if isinstance(data, jax.Array) or declared_of(data) is not None:
        held: Any = data
        wanted, where = dtype or data.dtype, settled(named_place(device), data.shape)
        where = where if isinstance(data, Tracer) else kept(held.sharding, where)
        moves = (
            where is not None and not isinstance(data, Tracer) and not same_placement(where, held.sharding, data.ndim)
        )
        if moves:
            data = transferred(data, where)
        if copy or wanted != data.dtype:
            return call(_converted.operator, (from_foreign(data),), (np.dtype(wanted),))
        return from_foreign(data)
    data = plain_number(data)
    if type(data) in _BUILTINS:
        dtype = number_dtype(data) if dtype is None else dtype
        if asked is not None and asked != dtype and asked in dtypes.INEXACT:
            dtypes.narrowed(np.asarray(data, asked))  # raises for a number that does not fit
        out = call(filled.operator, (_scalar(data, dtype),), ((), dtype, placement(device)))
        if not isinstance(out._array, Tracer):
            return out
        array = np.asarray(data, dtype)
    elif isinstance(data, (list, tuple)):
        array = _from_lists(data, asked)
    elif is_sequence(data):
        array = _from_lists(list(data), asked)
    else:
        array = np.array(_host(data))  # a copy: device_put may share the memory of its argument
        array = dtypes.narrowed(array if asked is None else array.astype(asked))
    return from_foreign(constant_array(array, device))


@composite(method=False)
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new leaf with the given data: numbers, nested lists of them, NumPy or JAX arrays, tensors.

    Floats get the default dtype, integers int64, arrays keep theirs.  While JAX's 64-bit mode is off, integers of 64
    bits become int32 and arrays of float64 float32 (`xgrad.config.narrow`); a number that does not fit is an
    `OverflowError`.

    >>> import xgrad
    >>> xgrad.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    tensor([[1., 2.],
            [3., 4.]], requires_grad=True)
    """
    if isinstance(data, Tensor):
        _warn_of_copy("xgrad.tensor(sourceTensor)")
    return finish(_convert(data, dtype, device, True), requires_grad)


def _warn_of_copy(call: str) -> None:
    warnings.warn(
        "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
        f"sourceTensor.detach().clone().requires_grad_(True), rather than {call}.",
        stacklevel=4,
    )


@composite(method=False)
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """`data` as a tensor: a tensor itself or, to another dtype or device, by a recorded `to`; other data are copied.

    A JAX array's memory may be shared.
    """
    if not isinstance(data, Tensor):
        return _convert(data, dtype, device, False)
    if dtype is not None and dtypes.as_dtype(dtype) != data.dtype:
        data = data.to(dtypes.as_dtype(dtype))
    return data if device is None else data.to(device)


@composite(method=False)
def asarray(
    obj: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """`obj` as a tensor; `copy=True` always makes a new one, `copy=False` raises `ValueError` if it must."""
    if isinstance(obj, Tensor):
        out = as_tensor(obj, dtype, device)
        if copy is False and out is not obj:
            raise ValueError("can't alias a tensor while changing its dtype or device: leave copy out")
        out = out.clone() if copy and out is obj else out
        return out if requires_grad or not out.requires_grad else out.detach()
    if copy is False and not isinstance(obj, jax.Array):
        raise ValueError("can't alias data that is not a tensor or jax.Array: JAX copies it; leave copy out")
    return finish(_convert(obj, dtype, device, bool(copy)), requires_grad)


@composite(method=False)
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """Copy a NumPy array to a tensor.  PyTorch shares the memory; JAX arrays are immutable."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return _convert(ndarray, None, None, True)


@composite(method=False)
def frombuffer(
    buffer: object, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:  # fmt: skip
    """Copy `count` elements (all, if it is negative) of a bytes-like object, from the byte `offset`, to a tensor.

    PyTorch shares the memory; JAX arrays are immutable.  Raises `ValueError` for a part that the buffer does not have.

    >>> import xgrad
    >>> xgrad.frombuffer(bytearray([1, 0, 2, 0]), dtype=xgrad.int16)
    tensor([1, 2], dtype=xgrad.int16)
    """
    kind = np.dtype(dtypes.named_dtype(dtype))
    try:
        data = memoryview(buffer)  # pyright: ignore[reportArgumentType] - a Buffer, from Python 3.12 on
    except TypeError:
        raise ValueError(f"object does not implement Python buffer protocol: {type(buffer).__name__}") from None
    if not data.c_contiguous:
        raise RuntimeError("could not retrieve buffer from object: its bytes do not lie one after the other")
    size = data.nbytes
    if not size or not count:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1"
        )
    if count < 0 and (size - offset) % kind.itemsize:
        raise ValueError(
            f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a multiple of element size "
            f"({kind.itemsize})"
        )
    if count > 0 and offset + count * kind.itemsize > size:
        raise ValueError(
            f"requested buffer length ({count} * {kind.itemsize} bytes) after offset ({offset} bytes) must not be "
            f"greater than actual buffer length ({size} bytes)"
        )
    truth = kind == dtypes.bool
    array = np.frombuffer(data, np.uint8 if truth else kind, max(count, -1), offset)
    return finish(from_numpy(array != 0 if truth else array), requires_grad)


@composite(method=False)
def scalar_tensor(
    s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Make a 0-dim tensor of a number, of the default dtype unless another is given."""
    require_no_grad("scalar_tensor", s=s)
    return finish(_convert(s, dtypes.get_default_dtype() if dtype is None else dtype, device, True), requires_grad)


@composite(function=False)
def new_tensor(
    input: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    layout: Any = None, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A new leaf with the given data, of this tensor's dtype and device unless others are given."""
    if isinstance(data, Tensor):
        _warn_of_copy("tensor.new_tensor(sourceTensor)")
    made = _convert(data, input.dtype if dtype is None else dtype, device or input.device, True)
    return finish(made, requires_grad)
