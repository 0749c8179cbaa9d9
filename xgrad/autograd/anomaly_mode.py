"""detect_anomaly, set_detect_anomaly: switch anomaly mode, which finds the operation behind an error in backward.

The mode belongs to the thread that switches it on, as all modes here do, and to the threads on which the engine goes on
from it.  (PyTorch's belongs to the process: torch/autograd/anomaly_mode.py.)
"""

import warnings
from typing import Any

from ..config import Block, state
from ..engine.anomaly import modes, set_enabled

__all__ = ["detect_anomaly", "set_detect_anomaly"]


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Switch anomaly mode on or off in this thread, for good.  Raises `TypeError` if an argument is not a bool."""
    for i, (name, value) in enumerate((("enabled", enabled), ("check_nan", check_nan))):
        if not isinstance(value, bool):
            raise TypeError(
                f"set_anomaly_enabled(): argument '{name}' (position {i + 1}) must be bool, not {type(value).__name__}"
            )
    set_enabled(enabled, check_nan)


def is_anomaly_enabled() -> bool:
    """Return True if anomaly mode is on in this thread."""
    return state.anomaly


def is_anomaly_check_nan_enabled() -> bool:
    """Return True if anomaly mode, when it is on, looks for NaN."""
    return state.anomaly_check_nan


class detect_anomaly(Block):
    """Within the block, find the operation behind an error in backward; slow, for debugging.

    Forward in the block: each node stores the stack at which it was made.  Backward in the block: when a node fails,
    that stack is shown as a warning before the error, and, for a node that a backward made, the stacks of the nodes
    that led to it.  With `check_nan`, a node that computes a NaN fails with a `RuntimeError`; under `jax.jit`, where
    values do not exist yet, NaN is not looked for.  A backward reads the mode when it begins.

    Source: PyTorch's `torch.autograd.detect_anomaly`.

    >>> import warnings, xgrad
    >>> x = xgrad.zeros(2, requires_grad=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     with xgrad.autograd.detect_anomaly():
    ...         y = xgrad.sqrt(x) * 0
    ...         y.sum().backward()
    Traceback (most recent call last):
        ...
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self.previous: tuple[bool, bool] = state.anomaly, state.anomaly_check_nan
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._before.append(modes(*self.previous))
        set_anomaly_enabled(True, self.check_nan)


class set_detect_anomaly(Block):
    """Switch anomaly mode on or off, at once or for a `with` block; arguments as of `set_anomaly_enabled`.

    >>> import xgrad
    >>> with xgrad.autograd.set_detect_anomaly(True):
    ...     y = xgrad.ones(2, requires_grad=True) * 2
    >>> print(*y.grad_fn.metadata)
    traceback_
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.previous: tuple[bool, bool] = state.anomaly, state.anomaly_check_nan
        set_anomaly_enabled(mode, check_nan)

    def __enter__(self) -> None:
        self._before.append(modes(*self.previous))


def _current_autograd_node() -> Any:
    """Return the node that this thread's backward is evaluating, None outside (PyTorch: `torch._C`)."""
    return state.current_node
