"""Tensor.to, type, cpu, cuda, float, half, ...: change a tensor's dtype or device; also fill, fill_ and zero_.

Both conversions are recorded as ToCopyBackward0: the gradient returns to the source's dtype, and to its device.
A transfer is `jax.device_put`, outside of programs, so its node is not an operator's; within a trace it is a constraint
on the sharding (PyTorch: _to_copy).
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec, Sharding, SingleDeviceSharding

from ...base import dtypes
from ...base.declared import DeclaredPlace
from ...base.devices import Devices, device, kept, placement_of, same_placement, settled
from ...base.dtypes import as_dtype
from ...config import forward_levels, state
from ...dispatch.argument_kinds import require_format
from ...dispatch.declare import composite, internal, linear, operator
from ...dispatch.inplace import call_inplace
from ...dispatch.promotion import cast
from ...dispatch.recorded_views import record_linear
from ...dispatch.ruled_views import aliased
from ...dispatch.samples import COMPLEX, HERE, REAL, real, sample, whole
from ...dispatch.tables import METHODS
from ...dispatch.view import view
from ...engine.arithmetic import Arithmetic
from ...engine.edges import gradient_edge
from ...engine.node import Node, wire
from ...engine.placement import put
from ...tensor import Tensor, from_foreign
from ...views.meta import check_inplace
from ..pointwise.arithmetic import zero
from .constructors import tensortype
from .scalars import fill_value

# -- dtype ------------------------------------------------------------------------------------------------------------


_CASTS = (
    sample(real(2, 3), dtype=dtypes.complex128),
    sample(real(), dtype=dtypes.complex128),
    sample(whole(-3, 4, 2, 3), dtype=dtypes.float64),
)


@internal("_to_dtype", node="ToCopyBackward0", samples=_CASTS + COMPLEX)
def _to_dtype(self, *, dtype):
    """A copy with another dtype."""
    return cast(self, dtype)


_to_dtype.derivative(self=lambda grad: grad)
_to_dtype.operator.converts = True


def _convert(self: Tensor, dtype: np.dtype, copy: bool = False) -> Tensor:
    if self._dtype == dtype and not copy:
        return self
    if self._dtype in dtypes.COMPLEX and dtype not in dtypes.COMPLEX and dtype != dtypes.bool:
        warnings.warn("Casting complex values to real discards the imaginary part", stacklevel=3)
    return _to_dtype.function(self, dtype)


# -- device -----------------------------------------------------------------------------------------------------------


class ToCopyBackward0(Node):
    """The backward of a transfer: the gradient goes back to the source's device or sharding."""

    def __init__(self, moved: Tensor, source: Any) -> None:
        self.source = source
        wire(self, (gradient_edge(moved),), (jax.ShapeDtypeStruct(moved.shape, moved.dtype),))

    def apply(self, grads: list[Any], needs: int, arithmetic: Arithmetic) -> Any:
        grad = grads[0]
        if grad is None:
            return (None,)
        return (arithmetic.move(grad, self.source),)


def move(self: Tensor, placement: Any, copy: bool = False, committed: bool = True) -> Tensor:
    """The tensor on another device, recorded; the tensor itself if it is there.  `committed`: see `put`.

    Raises `PlacementError` if a sharding does not fit its shape.
    """
    if state.trace is not None:
        state.trace.allow(placement)
    source = self._placed()
    if source is None:
        return _constrained(self, placement)
    anywhere = isinstance(placement, Devices)
    if anywhere and (placement.sharding is None or source.device_set == placement.sharding.device_set):
        return self.clone() if copy else self
    placement = settled(placement, self.shape)
    if len(source.device_set) > 1:
        source = self._read().sharding  # a view's own sharding, not its root's
    if same_placement(source, placement, self.ndim):
        return self.clone() if copy else self
    # Not ours to donate: device_put may return another array over the same buffer.
    moved = from_foreign(put(self._read(), placement, committed))
    return record_linear(moved, (self,), lambda: ToCopyBackward0(self, source), lambda t: move(t, placement))


@internal("_constrain", node="ToCopyBackward0", samples=(sample(real(2, 3), placement=HERE),) + COMPLEX)
def _constrain(self, *, placement):
    """The tensor with a constraint on its sharding: a transfer within a trace."""
    return jax.lax.with_sharding_constraint(self, placement)


_constrain.derivative(self=linear)


def _constrained(self: Tensor, placement: Any) -> Tensor:
    """Constrain a traced tensor to a placement on several devices; the device of a single one is the program's."""
    if placement.__class__ is DeclaredPlace:
        placement = placement.layout
    if not isinstance(placement, Sharding) or isinstance(placement, SingleDeviceSharding):
        return self
    return _constrain.function(self, settled(placement, self.shape))


# -- to ---------------------------------------------------------------------------------------------------------------


def _is_place(spec: Any) -> bool:
    kinds = (str, int, device, jax.Device, Sharding, PartitionSpec)
    return (isinstance(spec, kinds) and not isinstance(spec, bool)) or hasattr(spec, "__xgrad_place__")


def _check_once(args: tuple[Any, ...], dtype: Any, device: Any) -> None:
    """Raise `TypeError` for a dtype or a device that is given by place and by name."""
    placed = args[0] is None or _is_place(args[0])
    has_dtype = not placed or any(not isinstance(a, bool) for a in args[1:2])
    has_device = placed or isinstance(args[0], Tensor)
    for name, by_place, by_name in (("dtype", has_dtype, dtype), ("device", has_device, device)):
        if by_place and by_name is not None:
            raise TypeError(
                f"to() received an invalid combination of arguments: {args!r} and {name}={by_name!r} both give the "
                f"{name}"
            )


@composite(function=False)
def to(
    input: Tensor,
    *args: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """The tensor with another dtype, on another device, or both; itself if there is nothing to change.

    `to(dtype)`, `to(device)`, `to(device, dtype)` or `to(other)`, each followed by `non_blocking` and `copy` (True:
    always a copy).  A device is a string, a `jax.Device`, a `jax.sharding.Sharding` or, within `xgrad.mesh(...)`, a
    `PartitionSpec`.  Floating-point numbers beyond the range of an integer dtype give its nearest number, and NaN 0;
    PyTorch leaves them undefined.

    Without JAX's 64-bit mode a dtype of 32 bits takes the place of one of 64 (`xgrad.config.narrow`); integers that
    don't fit are not looked for.  Raises `TypeError` for a dtype or device that is given twice, `RuntimeError` for an
    absent device, `PlacementError` (one too) for a sharding that does not fit the shape.

    >>> import xgrad
    >>> xgrad.tensor([1.5, 2.5]).to(xgrad.int32)
    tensor([1, 2], dtype=xgrad.int32)
    """
    if args and (dtype is not None or device is not None):
        _check_once(args, dtype, device)
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        dtype, device = other.dtype, other.device if other._placed() is not None else None
    elif rest and (rest[0] is None or _is_place(rest[0])):
        device = rest.pop(0)
        if rest and not isinstance(rest[0], bool):
            dtype = rest.pop(0)
    elif rest:
        dtype = rest.pop(0)
    if rest:
        _, copy, *rest = (*rest, copy) if len(rest) == 1 else rest
    if rest:
        raise TypeError(f"to() takes at most a dtype, a device, non_blocking and copy, but got {args!r}")
    # Both are checked before anything is changed.
    # A tensor of 64 bits that was made under x64 stays itself without it.
    wanted = None if dtype is None or dtype is input.dtype else as_dtype(dtype)
    place = None if device is None else placement_of(f"cuda:{device}" if isinstance(device, int) else device)
    result = input if wanted is None else _convert(input, wanted)
    if place is not None:
        result = move(result, kept(input._placed(), place))
    return _convert(input, input._dtype, copy=True) if copy and result is input else result


@composite(function=False)
def cpu(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor on the CPU; itself if it is there."""
    return move(input, placement_of("cpu"))


@composite(function=False)
def cuda(input: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor on a GPU, the first unless `device` says which; itself if it is there."""
    return to(input, "cuda" if device is None else device)


@composite(function=False)
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """The tensor with the dtype of `other`, on its device."""
    return to(input, other)


@composite(function=False)
def type(input: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The tensor with another dtype; without one, the name of its type ('xgrad.FloatTensor', which is taken too).

    >>> import xgrad
    >>> xgrad.tensor([1.5]).type("xgrad.IntTensor"), xgrad.tensor([1.5]).type(xgrad.BoolTensor)
    (tensor([1], dtype=xgrad.int32), tensor([True]))
    """
    if dtype is None:
        return f"xgrad.{dtypes.torch_name(input._dtype)}Tensor"
    on_gpu = ".cuda." in dtype if isinstance(dtype, str) else isinstance(dtype, tensortype) and dtype.is_cuda
    if isinstance(dtype, str):
        dtype = next((d for d, name in dtypes.TORCH_NAMES.items() if dtype.endswith(f".{name}Tensor")), dtype)
    dtype = dtype.dtype if isinstance(dtype, tensortype) else dtype
    return to(input, "cuda", dtype) if on_gpu else to(input, dtype=dtype)


def _named(name: str, dtype: np.dtype) -> None:
    def convert(self: Tensor, memory_format: Any = None) -> Tensor:
        require_format(name, memory_format, self)
        return self if self._dtype is dtype else _convert(self, as_dtype(dtype))

    convert.__name__, convert.__doc__ = name, f"The tensor as {dtype.name}; itself if it is."
    METHODS[name] = convert


for _name, _dtype in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "byte": dtypes.uint8, "char": dtypes.int8, "short": dtypes.int16, "int": dtypes.int32, "long": dtypes.int64,
    "bool": dtypes.bool, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}.items():  # fmt: skip
    _named(_name, _dtype)


# -- fills ------------------------------------------------------------------------------------------------------------


def _fitting(args: tuple, statics: tuple) -> tuple:
    self, value = args  # a tensor's value is copied without a check
    return args if isinstance(value, Tensor) or not isinstance(self, Tensor) else (self, fill_value(value, self._dtype))


@operator(
    inplace=True,
    method=False,
    out=False,
    check=_fitting,
    samples=(sample(real(2, 3), real()), sample(real(2, 3), 1.5), sample(real(0, 3), 1.5)) + COMPLEX,
)
def fill(self, value):
    """A tensor like `input` whose elements are all `value`, a number or a 0-dim tensor.

    Raises `NumberOverflowError` for a number that does not fit.

    >>> import xgrad
    >>> x = xgrad.zeros(2, 2)
    >>> x[0].fill_(5.0), x
    (tensor([5., 5.]), tensor([[5., 5.],
            [0., 0.]]))
    """
    value = jnp.asarray(value)
    if value.ndim:
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
    return jnp.broadcast_to(cast(value, self.dtype), self.shape)


@internal("zero", inplace=True, samples=REAL + COMPLEX)
def _zero(self):
    return jnp.zeros_like(self)


fill.derivative(self=zero, value=lambda grad: grad)
_zero.derivative(self=zero)


# -- fills in place: one number is one value in all places, so views that overlap themselves may be filled -------------


def _overlaps(x: Tensor) -> bool:
    chain = x._chain
    return chain is not None and not chain.is_root and chain.overlaps


def _each_once(self: Tensor) -> Tensor:
    """A tensor that shows each element of `self` once; `self` if there is none, whose write raises an error."""
    chain = self._chain
    seen = chain.distinct
    if seen is None:
        return self
    key = ("as_strided", seen.sizes, seen.strides, seen.offset)
    if self._view is not None and self._view.chain is chain:
        return aliased(view, self, key, "AsStridedBackward0")
    if self.requires_grad:
        return self
    alias = self._alias()
    alias._chain, alias._cache, alias._cache_generation = chain.view(*key), None, -1
    return alias


def _fill_each_once(self: Tensor, *args: Any) -> Tensor:
    if state.grad_enabled and self.requires_grad:
        check_inplace(self)
    level = state.forward_level
    state.forward_level = -1
    try:
        written = _each_once(self)
        call_inplace((fill if args else _zero).operator, (written, *args), ())
    finally:
        state.forward_level = level
    for at in forward_levels():
        tangent = self._tangent_at(at)
        if tangent is not None:
            zero_(tangent)
    return self


_fill, _clear = METHODS["fill_"], METHODS["zero_"]


@composite("fill_")
def fill_(input: Tensor, value: Any) -> Tensor:
    """Write a number or a 0-dim tensor into every element, in place.

    A number may be written into a view that overlaps itself, as `expand` makes them; a tensor may not.

    >>> import xgrad
    >>> x = xgrad.zeros(2)
    >>> x.expand(3, 2).fill_(1), x
    (tensor([[1., 1.],
            [1., 1.],
            [1., 1.]]), tensor([1., 1.]))
    """
    if isinstance(value, Tensor) or not _overlaps(input):
        return _fill(input, value)
    return _fill_each_once(input, fill_value(value, input._dtype))


@composite("zero_")
def zero_(input: Tensor) -> Tensor:
    """Write 0 into every element, in place, of a view that overlaps itself too."""
    return _fill_each_once(input) if _overlaps(input) else _clear(input)
