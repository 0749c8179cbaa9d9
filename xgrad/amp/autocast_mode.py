"""autocast: a `with` block that runs operators in mixed precision, for users (PyTorch: torch/amp/autocast_mode.py).

Invariant: a block leaves this thread's settings as they were before it, by an exception too; casts of weights live
no longer than the outermost block.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.dtype_object import of
from ..base.dtypes import FLOATS, as_dtype
from ..config import Block, state
from . import settings
from .settings import is_autocast_available as is_autocast_available
from .settings import kind_of


class autocast(Block):
    """A block, or a decorated function, in which operators run in mixed precision on one type of devices.

    device_type: "cpu", "cuda" (or "gpu"), "tpu", or "xla" for JAX's default platform: the tensors there are cast.
    dtype: the lower precision; default: float16 on GPUs, bfloat16 on all others (see `get_autocast_dtype`).
    enabled: False switches it off within an outer block.
    cache_enabled: cast a weight once for all its uses in the outermost block.

    Products, convolutions and attention run in the lower precision; losses, norms, exponentials and the like in
    float32; the lists are PyTorch's, one for CPUs and one for all other devices.  Other operators run in the dtype of
    their arguments.  Casts are recorded: a float32 weight gets a float32 gradient.  float64, in-place operations and
    calls with `out=` are not cast.

    Backward runs in the dtypes that forward chose, within a block or outside; a custom Function has `custom_fwd` and
    `custom_bwd`.  Blocks nest, belong to their thread, also work under `no_grad`, vmap, forward mode and in
    checkpoints, and a compiled function depends on them.  A weight that is written within the block is cast again.

    Warns, and does nothing, for a device that JAX does not have and a dtype that the device has no autocast for.
    Raises `RuntimeError` for an unknown device type, `ValueError` for one that is not a string, `TypeError` for a dtype
    that is not floating and an `enabled` that is not a bool.

    Source: PyTorch's `torch.autocast`.

    >>> import xgrad
    >>> x, w = xgrad.ones(2, 3), xgrad.ones(3, 2, requires_grad=True)
    >>> with xgrad.autocast("cpu", dtype=xgrad.bfloat16):
    ...     y = x @ w
    ...     loss = xgrad.nn.functional.mse_loss(y, xgrad.zeros(2, 2))
    >>> y.dtype.name, loss.dtype.name
    ('bfloat16', 'float32')
    >>> loss.backward()
    >>> w.grad.dtype.name
    'float32'
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        kind = kind_of(device_type, "autocast")
        if not is_autocast_available(kind):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        if not isinstance(enabled, (bool, np.bool_)):
            raise TypeError(f"autocast(): argument 'enabled' must be bool, not {type(enabled).__name__}")
        self.device = kind
        self.fast_dtype = settings.get_autocast_dtype(kind) if dtype is None else of(as_dtype(dtype))
        if self.fast_dtype not in FLOATS:
            raise TypeError(f"autocast(): argument 'dtype' must be a floating-point dtype, not {self.fast_dtype.name}")
        self._enabled = bool(enabled)
        self._cache_enabled = settings.is_autocast_cache_enabled() if cache_enabled is None else bool(cache_enabled)
        if enabled and not settings.present(kind):
            self._disable(f"JAX has no device of type '{kind}'. Disabling autocast.")
        elif enabled and kind != "cuda" and self.fast_dtype not in settings.LOW:
            self._disable(
                f"In {kind.upper()} autocast, but the target dtype {self.fast_dtype.name} is not supported. Disabling "
                f"autocast. {kind.upper()} Autocast only supports dtypes of "
                f"{', '.join(d.name for d in settings.LOW)} currently."
            )

    def _disable(self, why: str) -> None:
        warnings.warn(why, stacklevel=3)
        self._enabled = False

    def __enter__(self) -> "autocast":
        here = settings.changed(self.device, self._enabled, as_dtype(self.fast_dtype), self._cache_enabled)
        self._will_restore("autocast", "autocast_nesting")
        if not state.autocast_nesting:  # no cast outlives the outermost block: its weight may change then, unseen
            self._before[-1]["autocast_casts"] = None
        state.autocast, state.autocast_nesting = here, state.autocast_nesting + 1
        return self

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(function):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(function).__name__}. Did you mean to use autocast"
                " as a context manager? For example:\n"
                "    with xgrad.autocast(device_type=...):\n"
                "        output = model(input)"
            )
        return autocast_decorator(self, function)

    def clone(self) -> "autocast":
        """Return another one like it, for each call of a function that it decorates."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, _before=[])
        return twin


def autocast_decorator(autocast_instance: autocast, func: Callable[..., Any]) -> Callable[..., Any]:
    """Return `func`, running in a block of its own like `autocast_instance` at each call.

    >>> import xgrad
    >>> cast = xgrad.amp.autocast_decorator(xgrad.autocast("cpu"), xgrad.mm)
    >>> cast(xgrad.ones(1, 1), xgrad.ones(1, 1))
    tensor([[1.]], dtype=xgrad.bfloat16)
    """

    @functools.wraps(func)
    def decorate_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance.clone():
            return func(*args, **kwargs)

    return decorate_autocast
