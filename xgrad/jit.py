"""xgrad.jit: torch.jit's decorators (`script`, `trace`, ...), which return the function as it is, for PyTorch code.

Code that is written for TorchScript is Python too, and runs as such: `script` and `trace` return what they are
given, and the marks (`ignore`, `unused`, `export`, `Final`) mark nothing.  Saved TorchScript files cannot be read.
(PyTorch: torch/jit/__init__.py.)
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from .base.missing import close_namespace as _close_namespace
from .nn.module import Module

__all__ = [
    "Attribute", "Final", "ScriptFunction", "ScriptModule", "annotate", "export", "fork", "freeze", "ignore",
    "interface", "is_scripting", "is_tracing", "isinstance", "onednn_fusion_enabled", "optimize_for_inference",
    "optimized_execution", "script", "script_if_tracing", "script_method", "strict_fusion", "trace", "trace_module",
    "unused", "wait",
]  # fmt: skip

_isinstance = isinstance


class ScriptFunction:
    """The class of scripted functions, for `isinstance`: there are none."""


class ScriptModule(Module):
    """A Module, for old code that inherits from it, and for `isinstance`: no other module is one."""


def script(obj: Any, *args: Any, **options: Any) -> Any:
    """Return a function, class or module as it is.

    >>> import xgrad
    >>> @xgrad.jit.script
    ... def swish(x):
    ...     return x * x.sigmoid()
    >>> swish(xgrad.zeros(2))
    tensor([0., 0.])
    """
    return obj


def trace(func: Any, example_inputs: Any = None, *args: Any, **options: Any) -> Any:
    """Return a function or module as it is: its branches stay branches, where PyTorch would fix the example's branches.

    >>> import xgrad
    >>> xgrad.jit.trace(xgrad.relu, (xgrad.ones(2),)) is xgrad.relu
    True
    """
    return func


def ignore(drop: Any = False, **options: Any) -> Any:
    """Return the function as it is; with `drop=`, a decorator that does."""
    return drop if callable(drop) else script


def annotate(the_type: Any, the_value: Any) -> Any:
    """Return the value."""
    return the_value


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a function at once, and return its result: JAX works in the background anyway."""
    return func(*args, **kwargs)


def is_scripting() -> bool:
    """Return False: this is Python."""
    return False


def isinstance(obj: Any, target_type: Any) -> bool:
    """Return Python's `isinstance`."""
    return _isinstance(obj, target_type)


def optimized_execution(should_optimize: bool) -> contextlib.AbstractContextManager[None]:
    """Return a block that does nothing."""
    return contextlib.nullcontext()


@contextlib.contextmanager
def strict_fusion() -> Iterator[None]:
    """Do nothing: XLA decides what it fuses."""
    yield


script_method = script_if_tracing = export = unused = freeze = optimize_for_inference = interface = wait = script
trace_module = trace
is_tracing = onednn_fusion_enabled = is_scripting
Attribute: Callable[..., Any] = lambda value, type: value  # noqa: E731

_close_namespace(__name__)
