"""no_grad, enable_grad, inference_mode, ...: context managers and decorators that switch autograd's recording.

Invariant: each belongs to its thread, and is as it was before when the block or the decorated function ends, by an
exception too (PyTorch: torch/autograd/grad_mode.py, torch/utils/_contextlib.py).
"""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.decorators import in_block, in_blocks
from ..config import INFERENCE_LEVEL, Block, state
from ..tensor import Tensor


class _Mode(Block):
    """A context manager and decorator; a generator function is wrapped so that each step runs in the mode."""

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function):
            return in_blocks(function, self.clone)
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions: the mode is on while an "
                "instance is made, and the result is not a class. Decorate the functions or methods that are meant.",
                FutureWarning,
                stacklevel=2,
            )
        return in_block(function, self.clone)

    def clone(self) -> Any:
        """Return another one like it, for each call of a function that it decorates."""
        return type(self)()

    def __enter__(self) -> Any:
        raise NotImplementedError


class _GradMode(_Mode):
    enabled: bool

    def __new__(cls, function: Any = None) -> Any:
        made = object.__new__(cls)
        made._before = []
        return made if function is None else made(function)

    def __enter__(self) -> None:
        if state.inference:  # nothing is recorded in either case
            self._before.append({"grad_in_inference": state.grad_in_inference})
            state.grad_in_inference = self.enabled
        else:
            self._before.append({"grad_enabled": state.grad_enabled})
            state.grad_enabled = self.enabled


class no_grad(_GradMode):
    """Record nothing: in a `with` block, or as a decorator with or without parentheses.

    >>> import xgrad
    >>> x = xgrad.ones(1, requires_grad=True)
    >>> with xgrad.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    enabled = False


class enable_grad(_GradMode):
    """Record again inside of `no_grad`."""

    enabled = True


class _Setting(_Mode):
    """A mode that is switched at once, and back at the end of a `with` block or of a decorated function."""

    _mode_name: str

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, (bool, np.bool_)):
            raise TypeError(
                f"{type(self).__name__}(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}"
            )
        self.previous: Any = self._get()
        self.mode: bool = bool(mode)
        self._set(self.mode)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self._set(self.previous)
        return super().__call__(function)

    def __enter__(self) -> None:
        self._before.append({self._mode_name: self.previous})
        self._set(self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}(mode={self.mode})"

    def clone(self) -> Any:
        """Return another one like it, for each call of a function that it decorates."""
        return type(self)(self.mode)

    def _get(self) -> Any:
        return getattr(state, self._mode_name)

    def _set(self, mode: Any) -> None:
        setattr(state, self._mode_name, mode)


class set_grad_enabled(_Setting):
    """Switch recording on or off, at once or for a `with` block; also a decorator.

    Raises `TypeError` if the argument is not a bool.

    >>> import xgrad
    >>> x = xgrad.ones(1, requires_grad=True)
    >>> with xgrad.set_grad_enabled(False):
    ...     (x * 2).requires_grad
    False
    """

    @property
    def _mode_name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "grad_in_inference" if state.inference else "grad_enabled"


def is_grad_enabled() -> bool:
    """Return True if grad mode is on in this thread: operations are recorded, except in inference mode."""
    return state.grad_in_inference if state.inference else state.grad_enabled


class inference_mode(_Mode):
    """Record nothing, and make tensors that may never be recorded; in a `with` block, or as a decorator.

    Beyond `no_grad`: forward-mode AD is off; the results of operators and factories are *inference tensors*
    (`is_inference()`), without a version counter; a view of a normal tensor is normal, but may not be written outside
    if the write would be recorded.  `mode=False` switches normal mode on, with recording, within inference mode.

    Outside of the mode an inference tensor raises `InferenceTensorError`, a `RuntimeError`, when it is to be saved for
    backward and when it is changed in place; `clone()` gives a normal tensor.  A PyTorch program gains time by the
    mode; here it is not faster than `no_grad`, and exists for the errors that it raises.

    Source: PyTorch's `torch.inference_mode`.

    >>> import xgrad
    >>> x = xgrad.ones(2, requires_grad=True)
    >>> with xgrad.inference_mode():
    ...     y = x * 2
    >>> y.requires_grad, y.is_inference()
    (False, True)
    >>> x * y.clone()
    tensor([2., 2.], grad_fn=<MulBackward0>)
    """

    def __new__(cls, mode: Any = True) -> Any:
        if isinstance(mode, bool):
            return super().__new__(cls)
        if not callable(mode):
            raise TypeError(f"inference_mode expects a bool, or a function to decorate, but got {type(mode).__name__}")
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self._will_restore("inference", "grad_enabled", "grad_in_inference", "forward_level", "outer_forward_levels")
        if self.mode:
            state.forward_level, state.outer_forward_levels = INFERENCE_LEVEL, ()
        elif state.inference:
            state.forward_level = state.dual_level if state.suspended is None else -1
        state.inference, state.grad_in_inference = self.mode, False
        state.grad_enabled = not self.mode

    def clone(self) -> "inference_mode":
        """Return another one like it, for each call of a function that it decorates."""
        return type(self)(self.mode)


def is_inference_mode_enabled() -> bool:
    """Return True if inference mode is on in this thread."""
    return state.inference


def is_inference(input: Tensor) -> bool:
    """Return True if a tensor was made in inference mode: `input.is_inference()`."""
    if not isinstance(input, Tensor):
        raise TypeError(f"is_inference(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return input.is_inference()


def _enter_inference_mode(mode: bool) -> inference_mode:
    """Enter `inference_mode(mode)` and return it, for `_exit_inference_mode`."""
    entered = inference_mode(mode)
    entered.__enter__()
    return entered


def _exit_inference_mode(mode: inference_mode) -> None:
    mode.__exit__(None, None, None)


class set_multithreading_enabled(_Setting):
    """Accepted as in PyTorch, without effect: one thread drives a backward here; the devices work on their own.

    >>> import xgrad
    >>> x = xgrad.ones(1, requires_grad=True)
    >>> with xgrad.autograd.set_multithreading_enabled(False):
    ...     (x * 2).backward()
    """

    _mode_name = "multithreading"


def is_multithreading_enabled() -> bool:
    """Return the last value of `set_multithreading_enabled` in this thread; it has no effect: one thread drives here.

    >>> import xgrad
    >>> xgrad.autograd.is_multithreading_enabled()
    True
    """
    return state.multithreading


class enforce_grad_layout_policy(_Setting):
    """Store a gradient where its variable is (True, the default) or not (False), at once or for a `with` block.

    Layout is placement here (PyTorch's is strides).  With False, the first gradient stays on the devices on which it
    arrives, later ones go to the devices of the first, and no warning is given.

    >>> import xgrad
    >>> x = xgrad.ones(1, requires_grad=True)
    >>> with xgrad.autograd.enforce_grad_layout_policy(False):
    ...     (x * 2).backward()
    """

    def __init__(self, enable: bool = True) -> None:
        super().__init__(enable)

    _mode_name = "grad_layout"


class _force_original_view_tracking(_Setting):
    """PyTorch's name for `xgrad.views.tracking`: True is "replay", False "geometry"; at once or for a `with` block.

    With False, PyTorch goes back to `as_strided` on devices that have it; that is the geometry path here.

    >>> import xgrad
    >>> base = xgrad.ones(2, 3, requires_grad=True).clone()
    >>> with xgrad.autograd._force_original_view_tracking(False):
    ...     row = base[0]
    >>> _ = row.mul_(2)
    >>> row.grad_fn.name()
    'AsStridedBackward0'
    """

    _mode_name = "tracking"

    def _set(self, mode: bool | str | None) -> None:
        state.tracking = {True: "replay", False: "geometry"}[mode] if isinstance(mode, bool) else mode


def is_view_replay_enabled() -> bool:
    """Return True after `_force_original_view_tracking(True)` or `xgrad.views.tracking("replay")`.

    False does not mean that views are not replayed: on a device without strides they are, unless geometry is asked for.

    >>> import xgrad
    >>> with xgrad.autograd._force_original_view_tracking(True):
    ...     xgrad.autograd.is_view_replay_enabled()
    True
    """
    return state.tracking == "replay"
