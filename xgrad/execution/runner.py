"""runner: passes programs and writes to an `xgrad.Backend`, to the lazy queue or to XLA, whichever must run them.

The first of these that exists runs an operation; what an operator mode does is in dispatch/operator_modes.py:

    an operator mode      `state.operator_mode`              operators and views, before their arguments are read
    a declared backend    the runtime of `xgrad.Backend`     programs and writes that have an operand there
    a lazy queue          `state.queue`                      programs and writes of a thread that is lazy
    XLA                                                      everything else, at once

Invariant: `runner.plain` is True until a thread of the process first enters an operator mode or a lazy block, makes a
tensor without a value, or uses a declared backend; but it is False while a function is traced.  While it is True XLA
runs everything, and nothing else has to be asked.  Only paths that cost microseconds read this flag themselves, in
4 ns, and `runner.backends`; all other code asks by calls.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import jax
import numpy as np

from ..base.declared import DeclaredPlace
from ..base.devices import is_default
from ..base.jax_compat import Tracer
from ..base.limits import unseen
from ..base.platforms import start
from ..config import block, state
from .owned import valued
from .pending import Pending, declared_of, quietly, spread
from .queue import Queue
from .references import is_alone, is_deleted
from .rollback import put_into, replaces
from .separate import Separate


class Runner:
    """Decides who runs a program or a write, and passes it on.  There is one object, `runner`."""

    __slots__ = ("_asks", "_lock", "always_lazy", "backends", "plain", "separate", "views")

    def __init__(self) -> None:
        lazy = os.environ.get("XGRAD_LAZY", "")
        self.always_lazy: bool = lazy not in ("", "0")  # True if every thread is lazy,
        self.separate: bool = lazy == "separate"  # and each operation a program of its own
        self.plain: bool = not self.always_lazy
        self._asks: bool = self.always_lazy  # True once `plain` stays False
        self._lock = threading.RLock()  # a signal handler may change them too
        self.backends: bool = False  # True once a declared backend is in use,
        self.views: bool = False  # and one that has rules of views

    def expect_backends(self, views: bool = False) -> None:
        """From now on look for declared backends among operands, and for rules of views if one has some."""
        self.views |= views
        self.backends = True  # in this order: other threads run
        self.ask()

    def ask(self) -> None:
        """From now on ask for each call who runs it."""
        with self._lock:
            self._asks, self.plain = True, False

    def trace(self, traces: bool) -> None:
        """Ask for each call while functions are traced: the trace need not see the frames of our own programs."""
        with self._lock:
            self.plain = not (traces or self._asks)

    def queue(self) -> Queue | None:
        """Return the queue of this thread if it is lazy, else None."""
        if self.plain:
            return None
        queue = state.queue
        if queue is None and self.always_lazy and state.lazy is not False:
            queue = state.queue = Separate() if self.separate else Queue()
        return queue

    def at_once(self) -> bool:
        """Return True if XLA runs this thread's programs at once, and no operator mode looks on."""
        return self.plain or (self.queue() is None and state.operator_mode is None and not self.backends)

    def on_backend(self, arrays: Iterable[Any]) -> bool:
        """Return True if a declared backend has one of the arrays."""
        return self.backends and any(map(declared_of, arrays))

    def pads(self, array: Any) -> bool:
        """Return True if a declared backend has the array, and programs at few sizes."""
        return self.backends and (where := declared_of(array)) is not None and where.runtime.padding is not None

    def run(self, program: Any, operands: Any, owners: Any = None) -> Any:
        """Run a program on operands, which may be pending; in a lazy thread note it, and return a Pending.

        `owners`: the tensors whose arrays the operands are.
        """
        if self.backends and (where := place_among(program, operands)) is not None:
            return where.runtime.run(program, operands)
        queue = state.queue or self.queue()
        if queue is not None and program.lazy:
            return queue.note(program, operands, owners)
        for x in operands if program.reads else ():
            if x.__class__ is Pending or x.__class__ is tuple:
                operands = [*map(quietly, operands)]
                break
        if state.trace is None or not program.own:
            return program.run(*operands)
        with unseen():
            return program.run(*operands)

    def write(self, out: list, box: list, holder: Any, program_of: Any, operands: tuple, owner: Any) -> bool:
        """Do the work of `views.storage.write_root` on a declared backend, or note it; return False if XLA writes now.

        What is noted has the array in `box` as a Pending, whose memory the queue may reuse; a copy's memory if our
        kernels did not make the array.  If XLA writes, `box` has no Pending, and `operands` none without a value.
        """
        if self.plain:
            return False
        try:
            if self.backends and (where := declared_of(box[0])) is not None:
                where.runtime.write(out, box, holder._owned and is_alone(box), program_of, operands, holder)
            else:
                if (queue := self.queue()) is None:
                    box[0] = quietly(box[0])
                    if not any(map(_waits, operands)):
                        return False
                elif spread(box[0]) or any(map(spread, operands)):
                    return False
                elif isinstance(box[0], jax.Array) and not isinstance(box[0], Tracer) and not is_deleted(box[0]):
                    box[0] = valued(box[0], holder._owned)
                program = program_of(False) if queue is None else queue.writing(program_of)
                out.append(program(box[0], *operands))
        except Exception:
            put_into(box, holder)
            raise
        replaces(out[0], box[0], holder, owner)
        return True

    def values(self, operands: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return operands of a program that runs now, with arrays in place of what lazy blocks left pending."""
        return operands if self.plain else tuple(map(quietly, operands))

    def evaluate(self, *lists: list[Any], holders: Iterable[Any] = ()) -> None:
        """Put arrays in place of what lazy blocks left pending, in lists and in `holders`, tensors and storages."""
        if not self.plain:
            for arrays in lists:
                arrays[:] = map(quietly, arrays)
            for holder in holders:
                evaluate_held(holder)


def _waits(operand: Any) -> bool:
    """Return True for an operand that has no value of JAX's yet."""
    return operand.__class__ is Pending and (operand.value is None or declared_of(operand) is not None)


runner = Runner()


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


@block
def suspended(reason: str) -> Iterator[None]:
    """Within the block this thread runs programs at once.  Evaluates what is pending first, for `reason`."""
    queue, lazy = runner.queue(), state.lazy
    if queue is not None:
        queue.evaluate(reason)
    state.queue, state.lazy = None, False
    try:
        yield
    finally:
        state.queue, state.lazy = queue, lazy


@block
def together(reason: str) -> Iterator[None]:
    """Within the block this thread's eager declared backends note programs; they run at its end, also after an error.

    `reason` says in the metrics why they run then.  In a block within a block nothing changes.  `xgrad.compile` and a
    compiled backward are such blocks there: what a backend lacks still ends the program, or is refused at its line.
    """
    outer, state.together = state.together, True
    try:
        yield
    finally:
        state.together = outer
        for place, queue in list((state.queues or {}).items()) if not outer else ():
            if not place.runtime.lazy:
                queue.evaluate(reason)


def evaluate_held(holder: Any) -> Any:
    """Return the array of a tensor or a storage, which holds no Pending any more but on a declared backend."""
    array = holder._array
    if array.__class__ is Pending and declared_of(array) is None:
        array = holder._array = quietly(array)
    return array
