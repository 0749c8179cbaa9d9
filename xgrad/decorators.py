"""in_blocks: decorate generator functions with a context manager that is on in their code, not in their caller's."""

import functools
from collections.abc import Callable
from typing import Any


def in_blocks(function: Callable[..., Any], block: Callable[[], Any]) -> Callable[..., Any]:
    """Return a generator function like `function`, each step of which runs in a `block()` of its own."""

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
