"""no_grad, enable_grad, set_grad_enabled, inference_mode: context managers and decorators, per thread."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..config import INFERENCE_LEVEL, state


class _Mode:
    """A context manager that is a decorator too; a generator function is wrapped so that each step runs in the mode."""

    def __call__(self, function: Callable) -> Callable:
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def steps(*args: Any, **kwargs: Any) -> Any:
                with self.clone():
                    generator = function(*args, **kwargs)
                step, given = generator.send, (None,)
                try:
                    while True:
                        with self.clone():
                            value = step(*given)
                        try:
                            step, given = generator.send, ((yield value),)
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            step, given = generator.throw, (error,)
                except StopIteration as stop:
                    return stop.value
                finally:
                    with self.clone():
                        generator.close()

            return steps

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return wrapped

    def clone(self) -> Any:
        """Another one like it, for each call of a function that it decorates."""
        return type(self)()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *error: Any) -> None:
        raise NotImplementedError


class _GradMode(_Mode):
    enabled: bool

    def __new__(cls, function: Any = None) -> Any:
        made = super().__new__(cls)
        return made if function is None else made(function)

    def __enter__(self) -> None:
        self.previous = is_grad_enabled()
        _switch(self.enabled)

    def __exit__(self, *error: Any) -> None:
        _switch(self.previous)


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


class set_grad_enabled(_Mode):
    """Switch recording on or off, at once or for a `with` block."""

    def __init__(self, mode: bool) -> None:
        self.previous = is_grad_enabled()
        self.mode = bool(mode)
        _switch(self.mode)

    def __call__(self, function: Callable) -> Callable:
        _switch(self.previous)
        return super().__call__(function)

    def __enter__(self) -> None:
        _switch(self.mode)

    def __exit__(self, *error: Any) -> None:
        _switch(self.previous)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__qualname__}(mode={self.mode})"

    def clone(self) -> "set_grad_enabled":
        """Another one like it, for each call of a function that it decorates."""
        return set_grad_enabled(self.mode)


def _switch(enabled: bool) -> None:
    if state.inference:  # where nothing is recorded, whatever is switched
        state.grad_in_inference = enabled
    else:
        state.grad_enabled = enabled


def is_grad_enabled() -> bool:
    """Whether grad mode is on in this thread: whether operations are recorded, except in inference mode."""
    return state.grad_in_inference if state.inference else state.grad_enabled


_KEPT = ("inference", "grad_enabled", "grad_in_inference", "forward_level", "outer_forward_levels")


class inference_mode(_Mode):
    """Record nothing, and make tensors that may never be recorded; in a `with` block, or as a decorator.

    Beyond `no_grad`: forward-mode AD is off; what an operator or a factory makes is an *inference tensor*
    (`is_inference()`), without a version counter; a view of a normal tensor is normal, but may not be written outside
    where that would be recorded.  `mode=False` switches normal mode on, with recording, within inference mode.

    Outside of the mode an inference tensor raises `InferenceTensorError`, a `RuntimeError`, when it is to be saved for
    backward and when it is changed in place; `clone()` gives a normal tensor.  (Writes to memory that nobody counts are
    what PyTorch saves here; JAX arrays are immutable, so the mode costs and saves as much as `no_grad`.)

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
        self._previous: list[tuple] = []

    def __enter__(self) -> None:
        self._previous.append(tuple(getattr(state, name) for name in _KEPT))
        if self.mode:
            state.forward_level, state.outer_forward_levels = INFERENCE_LEVEL, ()
        elif state.inference or state.forward_level < 0:
            state.forward_level = state.dual_level
        state.inference, state.grad_in_inference = self.mode, False
        state.grad_enabled = not self.mode

    def __exit__(self, *error: Any) -> None:
        for name, value in zip(_KEPT, self._previous.pop(), strict=True):
            setattr(state, name, value)

    def clone(self) -> "inference_mode":
        """Another one like it, for each call of a function that it decorates."""
        return type(self)(self.mode)


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on in this thread."""
    return state.inference


class _force_original_view_tracking(_Mode):
    """PyTorch's name for `xgrad.views.tracking`: True is "replay", False "geometry"; at once or for a `with` block.

    PyTorch, told False, goes back to `as_strided` on devices that have it; that is the geometry path here.

    >>> import xgrad
    >>> base = xgrad.ones(2, 3, requires_grad=True).clone()
    >>> with xgrad.autograd._force_original_view_tracking(False):
    ...     row = base[0]
    >>> _ = row.mul_(2)
    >>> row.grad_fn.name()
    'AsStridedBackward0'
    """

    def __init__(self, mode: bool) -> None:
        self.previous = state.tracking
        self.mode = bool(mode)
        self._switch()

    def _switch(self) -> None:
        state.tracking = "replay" if self.mode else "geometry"

    def __call__(self, function: Callable) -> Callable:
        state.tracking = self.previous
        return super().__call__(function)

    def __enter__(self) -> None:
        self._switch()

    def __exit__(self, *error: Any) -> None:
        state.tracking = self.previous

    def clone(self) -> "_force_original_view_tracking":
        """Another one like it, for each call of a function that it decorates."""
        return _force_original_view_tracking(self.mode)
