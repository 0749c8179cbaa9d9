"""execute: run a program, or note it where the thread is lazy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from ..config import settings, state
from .pending import Pending, quietly
from .queue import Queue, valued


def execute(program: Any, operands: Any, owners: Any = None) -> Any:
    """Run a program on operands, which may be pending; in a lazy block note it, and return a Pending.

    `owners`: the tensors whose arrays the operands are.
    """
    queue = state.queue or queue_now()
    if queue is not None and program.lazy:
        return queue.note(program, operands, owners)
    for x in operands if program.reads else ():
        if x.__class__ is Pending or x.__class__ is tuple:
            operands = [*map(quietly, operands)]
            break
    return program.run(*operands)


def queue_now() -> Queue | None:
    """Return the queue of this thread if it is lazy, else None."""
    queue = state.queue
    if queue is None and settings.lazy and state.lazy is not False:
        queue = state.queue = Queue()
    return queue


def deferred(box: list[Any], operands: Any, owned: bool) -> bool:
    """Return True if a write of the array in `box` is noted, and not run: its thread is lazy.

    If our kernels made it (`owned`), `box` has it as a Pending then, whose memory the queue may reuse.  If the thread
    is not lazy, the array in `box` is no Pending.
    """
    if queue_now() is not None:
        array = box[0]
        if spread(array) or any(map(spread, operands)):
            return False
        if owned and isinstance(array, jax.Array) and not isinstance(array, Tracer) and not array.is_deleted():
            box[0] = valued(array, True)
        return True
    if box[0].__class__ is Pending:
        box[0] = quietly(box[0])
    return any(x.__class__ is Pending for x in operands)


def spread(x: Any) -> bool:
    """Return True for an array on several devices: its programs run at once."""
    return isinstance(x, jax.Array) and not isinstance(x, Tracer) and x.sharding.__class__ is not SingleDeviceSharding


@contextmanager
def suspended(reason: str) -> Iterator[None]:
    """Within the block this thread runs programs at once.  Evaluates what is pending first, for `reason`."""
    queue, lazy = queue_now(), state.lazy
    if queue is not None:
        queue.evaluate(reason)
    state.queue, state.lazy = None, False
    try:
        yield
    finally:
        state.queue, state.lazy = queue, lazy


def settle(holder: Any) -> Any:
    """Return the array of a tensor or a storage, which holds no Pending any more."""
    array = holder._array
    if array.__class__ is Pending:
        array = holder._array = quietly(array)
    return array
