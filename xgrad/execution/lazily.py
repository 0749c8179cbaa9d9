"""xgrad.lazy: a block that queues operations, and runs them together as XLA programs; xgrad.sync runs what waits."""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..base.decorators import in_block, in_blocks
from ..config import Generated, state
from .fused import programs
from .metrics import Metrics, recorder
from .queue import Queue
from .runner import runner
from .separate import Separate


class lazy(Generated):
    """Within the block operators are queued, and run together as one XLA program.

    The Python program runs line by line as ever: hooks, branches and prints where they stand.  What is pending is
    evaluated at the end of the block, by `xgrad.sync()`, where a value is read (`item()`, `bool()`, `print`, NumPy, a
    function of JAX's), after 2,000 operations, and if another thread reads a value.  The same sequence of operators on
    the same shapes compiles once.  Weights that are written in place keep their memory.

    fuse: False if each operator stays the program that it is in eager mode, so that the values are the same to the last
    bit, and later eager steps compile nothing.  Programs that are new compile in parallel before the first of them
    runs: for a first step on a host with many cores.  A backward, which compiles its own in parallel, runs at once.
    Within another lazy block, that block's choice holds.

    It is also a decorator (of a generator function: each step is a block), may be nested, and holds for one thread.
    Blocks of tasks or generators that take turns may end in any order.  XGRAD_LAZY=1 in the environment makes all
    threads lazy (XGRAD_LAZY=separate: with `fuse=False`), XGRAD_LOG=lazy logs each evaluation.  If the block ends by an
    exception, what it queued stays pending.

    >>> import xgrad
    >>> x = xgrad.ones(3, requires_grad=True)
    >>> with xgrad.lazy():
    ...     y = (x * 2).tanh().sum()
    ...     y.backward()
    >>> x.grad.shape
    xgrad.Size([3])

    Source: Suhan et al., LazyTensor: combining eager execution with domain-specific compilers, 2021.
    """

    def __init__(self, *, fuse: bool = True) -> None:
        self._fuse: bool = fuse

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function):
            return in_blocks(function, self._again)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waiting(*args: Any, **kwargs: Any) -> Any:
                with self._again():
                    return await function(*args, **kwargs)

            return waiting

        return in_block(function, self._again)

    def _again(self) -> "lazy":
        return type(self)(fuse=self._fuse)

    def _block(self) -> Iterator["lazy"]:
        runner.ask()
        error = before = None
        outside, queue = sys.exception(), state.queue or (Queue() if self._fuse else Separate())
        blocks = (*state.lazy_blocks, (self, state.queue, state.lazy))
        state.lazy_blocks, state.queue, state.lazy = blocks, queue, True
        try:
            yield self
        except GeneratorExit as end:
            error, queue, blocks = end.__context__, state.queue, state.lazy_blocks
            if blocks and blocks[-1][0] is self:  # without a call, which could be interrupted
                _, before, lazily = blocks[-1]
                state.lazy_blocks, state.queue, state.lazy = blocks[:-1], before, lazily
            else:  # a task or a generator is still in a later block: that restores what was before this one
                place = next((i for i in reversed(range(len(blocks))) if blocks[i][0] is self), None)
                if place is None:  # it was entered in another thread
                    return
                _, before, lazily = blocks[place]
                later = (blocks[place + 1][0], before, lazily)
                state.lazy_blocks = (*blocks[:place], later, *blocks[place + 2 :])
        ended = error is None or error is outside or isinstance(error, StopIteration)  # the last step of a generator
        if queue is not None and before is None and ended:
            queue.evaluate("the end of the block")

    @staticmethod
    def metrics() -> Metrics:
        """Return the counts of all threads since the last `reset`: operations, launches, programs, evaluations, advice.

        >>> import xgrad
        >>> xgrad.lazy.reset()
        >>> with xgrad.lazy():
        ...     y = xgrad.ones(2) * 3
        >>> xgrad.lazy.metrics().launches
        1
        """
        return recorder.metrics()

    @staticmethod
    def reset() -> None:
        """Set the counts to zero.  Compiled programs stay."""
        recorder.reset()

    @staticmethod
    def pending() -> str:
        """Return what this thread has queued and not run, a line for each operation, with the line that queued it.

        In lazy blocks, and on lazy backends.

        >>> import xgrad
        >>> with xgrad.lazy():
        ...     y = xgrad.ones(2).mul(3)
        ...     "mul" in xgrad.lazy.pending()
        True
        """
        return "\n".join([queue.as_text() for queue in queues() if queue.entries])

    @staticmethod
    def as_text(dialect: str = "stablehlo") -> str:
        """Return the program that was run last, as StableHLO, or with `"hlo"` as XLA has optimized it.

        Raises `RuntimeError` if none has run, `ValueError` for another dialect.
        """
        if dialect not in ("stablehlo", "hlo"):
            raise ValueError(f'lazy.as_text(): the dialect is "stablehlo" or "hlo", not {dialect!r}')
        fused = programs.latest
        if fused is None:
            raise RuntimeError("lazy.as_text(): no lazy program has run yet")
        return fused.lowered().as_text() if dialect == "stablehlo" else fused.lowered().compile().as_text()

    @staticmethod
    def compiled_for(target: Any) -> Any:
        """Compile the program that was run last for a chip that need not be here, and return a report.

        `target`: such as `"tpu:v5e"`, or what `xgrad.target` returns.  Raises `RuntimeError` if none has run.
        """
        chips = importlib.import_module("xgrad.chips")  # at the call: few ask for it, and it imports this package
        return chips.target(target).compile(lazy)


def sync() -> None:
    """Run all that is pending in this thread, in a lazy block or on a lazy backend.

    >>> import xgrad
    >>> with xgrad.lazy():
    ...     y = xgrad.ones(2) * 3
    ...     xgrad.sync()
    ...     xgrad.lazy.pending()
    ''
    """
    for queue in queues():
        queue.evaluate("sync()")


def queues() -> list[Any]:
    """Return this thread's queues: the one of its lazy block, then one for each lazy backend, the newest last."""
    return [queue for queue in (runner.queue(), *(state.queues or {}).values()) if queue is not None]
