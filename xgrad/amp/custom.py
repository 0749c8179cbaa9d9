"""custom_fwd, custom_bwd: decorate methods of an `autograd.Function` for use under autocast (PyTorch: torch/amp)."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..base.dtypes import FLOATS, float64
from ..tensor import Tensor
from .autocast_mode import autocast
from .settings import get_autocast_dtype, is_autocast_enabled, kind_of


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorate `forward` of a custom Function that is to run under autocast, beneath `@staticmethod`.

    cast_inputs: with a dtype, `forward` gets its floating-point tensors (but float64) in that dtype when autocast is on
    for `device_type`, and runs with autocast off; without, it runs as any code in the block.  Outside of autocast
    nothing changes.

    Raises `ValueError` for a device type that is not a string.

    >>> import xgrad
    >>> class Square(xgrad.autograd.Function):
    ...     @staticmethod
    ...     @xgrad.amp.custom_fwd(device_type="cpu", cast_inputs=xgrad.float32)
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x @ x
    ...     @staticmethod
    ...     @xgrad.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return grad @ x.t() + x.t() @ grad
    >>> with xgrad.autocast("cpu"):
    ...     Square.apply(xgrad.ones(2, 2, dtype=xgrad.bfloat16)).dtype.name
    'float32'
    """
    _check(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        ctx._dtype = get_autocast_dtype(device_type)
        on = is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        kind = kind_of(device_type, "custom_fwd")
        with autocast(device_type, enabled=False):
            return fwd(*cast_tensors(args, kind, cast_inputs), **cast_tensors(kwargs, kind, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """Decorate `backward` of a custom Function with a `custom_fwd`: it runs with the autocast that forward ran with.

    Raises `ValueError` for a device type that is not a string.
    """
    _check(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args: Any, **kwargs: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, enabled=ctx._fwd_used_autocast, dtype=ctx._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd


def _check(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def cast_tensors(value: Any, kind: str, dtype: Any) -> Any:
    """Return `value` with its floating-point tensors as `dtype`, in containers too."""
    if isinstance(value, Tensor):
        cast = value.dtype in FLOATS and value.dtype != float64 and value.device.type == kind
        return value.to(dtype) if cast else value
    if isinstance(value, (str, bytes, np.ndarray)):
        return value
    if isinstance(value, Mapping):
        return {cast_tensors(k, kind, dtype): cast_tensors(v, kind, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(cast_tensors(v, kind, dtype) for v in value)
    if isinstance(value, Iterable):
        return (cast_tensors(v, kind, dtype) for v in value)
    return value
