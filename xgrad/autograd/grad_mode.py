"""no_grad, enable_grad, set_grad_enabled, inference_mode: context managers and decorators, per thread."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..config import state


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
        self.previous = state.grad_enabled
        state.grad_enabled = self.enabled

    def __exit__(self, *error: Any) -> None:
        state.grad_enabled = self.previous


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
        self.previous = state.grad_enabled
        self.mode = state.grad_enabled = bool(mode)

    def __call__(self, function: Callable) -> Callable:
        state.grad_enabled = self.previous
        return super().__call__(function)

    def __enter__(self) -> None:
        state.grad_enabled = self.mode

    def __exit__(self, *error: Any) -> None:
        state.grad_enabled = self.previous

    def clone(self) -> "set_grad_enabled":
        """Another one like it, for each call of a function that it decorates."""
        return set_grad_enabled(self.mode)


def is_grad_enabled() -> bool:
    """Whether operations are recorded in this thread."""
    return state.grad_enabled


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
