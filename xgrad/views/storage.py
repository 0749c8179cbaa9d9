"""Storage: the one owner of a root array; version counters; and the proof that a buffer may be donated.

Invariants: a write donates the root's buffer to XLA only if nobody else can see it (`Storage.rewrite`): the array came
from one of our own kernels, its reference count is that of an array held by one attribute, and neither it nor an
operand is a tracer (JAX may keep what it meets together with one).  Anything else is copied by the write, and owned
from then on.

However a write ends, by Ctrl-C or for want of memory too, there is the old value or the new one, and root, generation
and version belong together (`donation.run_writing`).  What CPython does between two calls no signal interrupts: so the
lines that put a root back, or in, call nothing.

    before the first view            after it
    Tensor._array ──► jax.Array      Tensor._storage ──► Storage.array ──► jax.Array
                                     view._storage   ──┘    (every reader goes through it)

A tensor without views has no Storage: it *is* its array.  `Tensor._share` makes one when somebody asks for it.
"""

import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from ..config import state
from ..donation import Writing, run_writing
from ..errors import InferenceTensorError, LostValueError

_ids = itertools.count(1)

# Held while an array is taken out of its owner to be donated: a reader who finds no array waits for it.  No user code
# runs under it.
writing = threading.RLock()


class VersionCounter:
    """How often the values behind a tensor were changed in place; shared by its views and `detach()`ed aliases."""

    # Defaults in the class: one is made wherever a result is saved.
    value: int = 0
    exported: bool = False  # whether somebody was handed the array: what was saved of it is no longer ours to donate


class Untracked(VersionCounter):
    """In the place of the counter of an inference tensor: nothing is counted, and nothing may rely on it.

    `value` is what saving for backward reads, and so it refuses; counting and telling ask here instead.
    """

    value = property(lambda self: _refuse_to_save())  # pyright: ignore[reportAssignmentType] - it has none

    def told(self) -> int:
        """The version for a user who asks."""
        raise InferenceTensorError("Inference tensors do not track version counter.")

    def count(self, by: int) -> None:
        """Note a write."""
        if not state.inference:
            raise InferenceTensorError(
                "Inplace update to inference tensor outside InferenceMode is not allowed. Make a clone() to get a "
                "normal tensor before doing inplace update, or do it within inference_mode()."
            )


class Detached(Untracked):
    """The counter of a `detach()` or `.data` of an inference tensor, which may be written anywhere, as in PyTorch."""

    _told: int = 0

    def told(self) -> int:
        return self._told

    def count(self, by: int) -> None:
        self._told += by


def _refuse_to_save() -> int:
    raise InferenceTensorError(
        "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
        "computation tracked by autograd. To work around this, you can make a clone() to get a normal tensor and use "
        "it in autograd, or use no_grad() instead of inference_mode()."
    )


UNTRACKED = Untracked()


class Storage:
    """One root `jax.Array` (or tracer), and a generation that each write raises."""

    __slots__ = ("__weakref__", "_array", "counter", "generation", "id", "owned")

    def __init__(self, array: Any, owned: bool, counter: VersionCounter | None = None) -> None:
        self._array = array
        self.owned = owned
        self.counter = counter  # of the tensor whose array it was
        self.generation = 0
        self.id = next(_ids)

    @property
    def array(self) -> Any:
        """The root.  Raises `LostValueError` if a program took it and failed."""
        array = self._array
        if array is None:
            with writing:
                array = self._array
            if array is None:
                raise no_value()
        return array

    def replace(self, array: Any) -> None:
        """Another root, made by one of our kernels."""
        self._array = array
        self.owned = True
        self.generation += 1

    def rewrite(self, counter: VersionCounter | None, program_of: Callable, operands: tuple) -> None:
        """Run `program_of(donate)(root, *operands)` and make its result the root; see `rewritten`.

        The root is taken out of the storage first, so that from its reference count on nobody can get hold of it.
        `counter`: the version that rises with it.
        """
        with writing:
            box, out = [self._array], []
            self._array = None
            try:
                rewritten(out, box, self.owned, program_of, operands)
            finally:  # no call in it
                if out:
                    self._array, self.owned = out[0], True
                    self.generation += 1
                    if counter is not None:
                        counter.value += 1
                    del out[:]  # a traceback may hold it
                else:
                    self._array = box[0]


def trace_state() -> Any:
    """What tells the traces apart (of `jax.jit`, `vmap`, `lax.scan`, ...) within which this thread runs."""
    global _trace_state
    if _trace_state is None:
        try:
            from jax.extend.core import get_opaque_trace_state
        except ImportError:  # jax before 0.8
            from jax.core import get_opaque_trace_state
        _trace_state = get_opaque_trace_state
    return _trace_state(convention="nnx")


_trace_state: Any = None  # imported when it is asked for: jax.extend costs a part of a second


def of_ended_trace(array: Any) -> Exception | None:
    """JAX's error for a tracer that was kept past its trace, which says where it was made; None for one of a trace."""
    try:
        jax.lax.expand_dims(array, (0,))
    except jax.errors.UnexpectedTracerError as error:
        return error
    return None


def value_needed(array: Any, error: Exception) -> Exception:
    """The error to raise where a tracer is asked for its value.  `xgrad.compile` hears of it, should it be caught."""
    error = of_ended_trace(array) or error
    if state.trace is not None:
        state.trace.refused = error
    return error


def _references(values: list, index: int) -> int:
    return sys.getrefcount(values[index])


ALONE = _references([object()], 0)  # of what one list alone holds, asked for as `sole` does
# Without a global lock, a count read here may be old when the donation happens.
DONATION = getattr(sys, "_is_gil_enabled", lambda: True)()


def no_value() -> LostValueError:
    """The error of a read that finds no value."""
    return LostValueError(
        "the value of this tensor was lost: a program that was to write it in place failed after it had taken its "
        "memory (the error then told why). Give it another one: x.data = ..., or load a checkpoint."
    )


def sole(values: list, index: int) -> bool:
    """Whether `values[index]` is referenced by that list alone, so that the engine may donate it.

    Only for arrays that our own kernels made: foreign ones are copied when they enter the engine.
    """
    return DONATION and sys.getrefcount(values[index]) <= ALONE and not isinstance(values[index], Tracer)


def rewritten(out: list, box: list, owned: bool, program_of: Callable, operands: tuple) -> None:
    """Put `program_of(donate)(box[0], *operands)` into `out`.

    Donates an array that our kernels made and that `box` alone holds, where no operand is a tracer.  Of an array on a
    mesh: `program_of(donate, sharding)`, whose result is to have the sharding that the array has.
    """
    if box[0] is None:
        raise no_value()
    try:
        where = box[0].sharding
    except AttributeError:  # a tracer
        where = None
    donate = owned and sole(box, 0)
    if donate:
        for operand in operands:
            if isinstance(operand, Tracer):
                donate = False
    usual = where is None or where.__class__ is SingleDeviceSharding
    program = program_of(donate) if usual else program_of(donate, where)
    if program.__class__ is Writing:
        run_writing(program, out, box, operands)
    else:
        out.append(program(box[0], *operands))


def place_of(array: Any) -> Any:
    """Where an array was asked to be, for `jnp.zeros(..., device=)`: None of one that goes along with others."""
    return None if isinstance(array, Tracer) or not array.committed else array.sharding


def placed_like(new: Any, old: Any) -> Any:
    """`new` where `old` is, if that is on a mesh: what a write puts in the place of `old`."""
    if isinstance(old, Tracer) or isinstance(new, Tracer):
        return new
    where = old.sharding
    if where.__class__ is SingleDeviceSharding or where.is_equivalent_to(new.sharding, new.ndim):
        return new
    return jax.device_put(new, where)
