"""execute: run a program, note it where the thread is lazy, or pass it to the declared backend of its operands."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from ..base.declared import DeclaredPlace
from ..base.devices import is_default
from ..base.jax_compat import Tracer
from ..base.platforms import start
from ..config import block, settings, state
from .owned import valued
from .pending import Pending, declared_of, quietly, spread
from .queue import Queue
from .references import is_deleted


def execute(program: Any, operands: Any, owners: Any = None) -> Any:
    """Run a program on operands, which may be pending; in a lazy block note it, and return a Pending.

    `owners`: the tensors whose arrays the operands are.
    """
    if settings.declared and (where := place_among(program, operands)) is not None:
        return where.runtime.run(program, operands)
    queue = state.queue or queue_now()
    if queue is not None and program.lazy:
        return queue.note(program, operands, owners)
    for x in operands if program.reads else ():
        if x.__class__ is Pending or x.__class__ is tuple:
            operands = [*map(quietly, operands)]
            break
    return program.run(*operands)


def place_among(program: Any, operands: Any) -> DeclaredPlace | None:
    """Return the declared place that a program runs at: its own, or the place of its operands; None for JAX's devices.

    Raises `RuntimeError` for operands of two declared backends.
    """
    found = program.place and program.place.home
    for x in operands:
        where = declared_of(x)
        if where is not None and where is not found:
            if found is not None:
                raise not_the_same(found, where, program.name)
            found = where
    return found


def not_the_same(one: Any, other: Any, name: str) -> RuntimeError:
    """Return PyTorch's error for operands on two devices."""
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}! (when "
        f"checking the arguments of {name}()).{_differing(one, other)} Move one of them there, x.to(device); a number "
        "or a 0-dim tensor on the CPU may stay where it is."
    )


def _differing(one: Any, other: Any) -> str:
    """Return what two declared backends of one name differ in, as a sentence; "" for other devices."""
    places = [getattr(device, "placement", device) for device in (one, other)]
    if not all(isinstance(place, DeclaredPlace) for place in places) or places[0].name != places[1].name:
        return ""
    a, b = (place.runtime.backend for place in places)
    names = [f.name for f in fields(a) if f.compare and getattr(a, f.name) != getattr(b, f.name)]
    differ = f"differ in {', '.join(names)}" if names else "are declared alike"
    return f" They are two backends of one name, which {differ}: each declaration, and each replace(), is a device."


def transferred(array: Any, where: Any) -> Any:
    """`jax.device_put`, to a declared backend and away from one too."""
    start()
    here = declared_of(array)
    if here is not None:
        if where.__class__ is DeclaredPlace and where.home is here:
            return here.runtime.laid_out(array, where.layout)
        array = array.read("a transfer")  # with one device of the CPU, the result is this array
    if where.__class__ is DeclaredPlace:
        return where.runtime.received(quietly(array), where.layout)
    if where is not None and is_default(where) and not isinstance(array, Tracer):
        if isinstance(array, jax.Array) and not array.committed and array.sharding.device_set == {*jax.local_devices()}:
            return array
        return jax.device_put(np.asarray(array))
    return jax.device_put(array, where)


def queue_now() -> Queue | None:
    """Return the queue of this thread if it is lazy, else None."""
    queue = state.queue
    if queue is None and settings.lazy and state.lazy is not False:
        queue = state.queue = Queue()
    return queue


def runs_plainly() -> bool:
    """Return True if this thread runs programs at once, on JAX's devices, and no operator mode looks on."""
    return not settings.special or (queue_now() is None and state.operator_mode is None and not settings.declared)


def deferred(box: list[Any], operands: Any, owned: bool) -> bool:
    """Return True if a write of the array in `box` is noted, and not run: its thread is lazy.

    `box` has it as a Pending then, whose memory the queue may reuse; a copy's if our kernels did not make it (`owned`).
    If the thread is not lazy, the array in `box` is not a Pending.
    """
    if queue_now() is not None:
        array = box[0]
        if spread(array) or any(map(spread, operands)):
            return False
        if isinstance(array, jax.Array) and not isinstance(array, Tracer) and not is_deleted(array):
            box[0] = valued(array, owned)
        return True
    if box[0].__class__ is Pending:
        box[0] = quietly(box[0])
    return any(x.__class__ is Pending for x in operands)


@block
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


def evaluate_held(holder: Any) -> Any:
    """Return the array of a tensor or a storage, which holds no Pending any more but on a declared backend."""
    array = holder._array
    if array.__class__ is Pending and declared_of(array) is None:
        array = holder._array = quietly(array)
    return array
