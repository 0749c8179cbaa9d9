"""Module.to, Module.float, Module.half, ...: move or cast a module in place (PyTorch: `Module._apply`, `Module.to`).

Invariant: parameters and their gradients stay the same objects, whose `data` becomes another; buffers are replaced.
"""

from collections.abc import Callable
from typing import Any

from ..base import dtypes
from ..base.devices import placement_of, settled
from ..dispatch.tables import FUNCTIONS
from ..tensor import Tensor


def apply(self: Any, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
    """Replace the values of parameters, gradients and buffers by `fn` of them."""
    for module in self.children() if recurse else ():
        module._apply(fn)
    for parameter in self._parameters.values():
        if parameter is not None:
            grad = parameter.grad
            parameter.data = fn(parameter.data)
            if grad is not None:
                grad.data = fn(grad.data)
    for name, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[name] = fn(buffer)
    return self


def parsed(args: tuple[Any, ...], device: Any = None, dtype: Any = None) -> tuple[Any, Any]:
    """Return the device and the dtype that arguments of `to` ask for, None for what they do not name."""
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif value is None or isinstance(value, bool):
            continue
        else:
            try:
                dtype = dtypes.named_dtype(value)
            except (TypeError, ValueError, AttributeError):
                device = value
    return device, None if dtype is None else dtypes.as_dtype(dtype)


def to(
    self: Any, *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Any:
    """Move and cast all parameters and buffers, in place: `to(device)`, `to(dtype)`, both, or like a tensor.

    `non_blocking` and `memory_format` change nothing: copies do not block, and XLA chooses the layout.
    Only floating-point and complex ones are cast.  Raises `TypeError` for another dtype, `PlacementError` for a
    sharding that does not fit one of them.
    """
    device, dtype = parsed(args, device, dtype)
    if dtype is not None and dtype not in dtypes.INEXACT:
        raise TypeError(
            f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype.name}"
        )
    if device is not None:
        where = placement_of(device)
        for tensor in (*self.parameters(), *self.buffers()):
            settled(where, tensor.shape)  # all are checked before one is moved

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device=device, dtype=dtype if tensor.dtype in dtypes.INEXACT else None)

    return self._apply(moved)


def as_type(self: Any, dst_type: Any) -> Any:
    """Cast all parameters and buffers to a dtype."""
    return self._apply(lambda tensor: tensor.to(dst_type))


def _floats_as(self: Any, dtype: Any) -> Any:
    """Cast the floating-point parameters and buffers; complex ones stay, unlike in `to`."""
    return self._apply(lambda tensor: tensor.to(dtype) if tensor.dtype in dtypes.FLOATS else tensor)


def as_float(self: Any) -> Any:
    """Cast the floating-point parameters and buffers to float32."""
    return _floats_as(self, dtypes.float32)


def as_double(self: Any) -> Any:
    """Cast the floating-point parameters and buffers to float64."""
    return _floats_as(self, dtypes.float64)


def as_half(self: Any) -> Any:
    """Cast the floating-point parameters and buffers to float16."""
    return _floats_as(self, dtypes.float16)


def as_bfloat16(self: Any) -> Any:
    """Cast the floating-point parameters and buffers to bfloat16."""
    return _floats_as(self, dtypes.bfloat16)


def on_cpu(self: Any) -> Any:
    """`to("cpu")`."""
    return self.to("cpu")


def on_cuda(self: Any, device: Any = None) -> Any:
    """`to("cuda")`, or to the GPU with that number."""
    return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


def to_empty(self: Any, *, device: Any, recurse: bool = True) -> Any:
    """Replace parameters and buffers by new ones on a device, whose values are undefined."""
    empty_like = FUNCTIONS[""]["empty_like"]
    return self._apply(lambda tensor: empty_like(tensor, device=device), recurse)


def share_memory(self: Any) -> Any:
    """Raise `NotImplementedError`: processes cannot share XLA's arrays."""
    raise NotImplementedError(
        "XLA's arrays cannot be shared with other processes: send them the state_dict(), or use threads, which share "
        "the module as it is"
    )
