"""in_block, in_blocks: make each call of a function, or each step of a generator function, run in a new `with` block.

So `no_grad`, `lazy`, `device` and other blocks decorate functions.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def in_blocks(function: Callable[..., Any], block: Callable[[], Any]) -> Callable[..., Any]:
    """Return a generator function like `function`; each of its steps runs in a new `block()`, its caller in none."""

    @functools.wraps(function)
    def steps(*args: Any, **kwargs: Any) -> Any:
        with block():
            generator = function(*args, **kwargs)
        step, given = generator.send, (None,)
        try:
            while True:
                with block():
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
            with block():
                generator.close()

    return steps


def in_block(function: Callable[..., Any], block: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function like `function`; each call runs in a new `block()`, so it may be recursive, and in threads."""

    @functools.wraps(function, updated=() if inspect.isclass(function) else functools.WRAPPER_UPDATES)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with block():
            return function(*args, **kwargs)

    return wrapped
