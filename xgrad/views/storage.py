"""Storage: owns the array that a base tensor and its views share, and replaces it at in-place writes.

`VersionCounter` counts the writes, for autograd's check of saved tensors.

Invariants: a write donates this array (the *root*) to XLA only if nothing else can see it (`write_root`): the array
came from one of our own kernels, its reference count is the count of an array with one reference, and neither it nor an
operand is a tracer (JAX may store arrays that it meets together with one).  Any other array is copied by the write, and
the copy is owned from then on.

However a write ends, by Ctrl-C or for want of memory too, the storage has the old value or the new one (or none, if XLA
fails after it took the memory), and root, generation and version belong together (`donation.run_writing`).  A signal
interrupts CPython only at calls: so the lines that put a root back, or in, call nothing.

    before the first view            after it
    Tensor._array ──► jax.Array      Tensor._storage ──► Storage.array ──► jax.Array
                                     view._storage   ──┘    (every reader goes through it)

A tensor without views has no Storage: it *is* its array.  `Tensor._share` makes one when it is first needed.
"""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

from ..base.jax_compat import Tracer, in_trace
from ..config import state
from ..errors import InferenceTensorError, LostValueError, TracedValueError
from ..execution.donation import Writing, copied, run_writing
from ..execution.pending import Pending
from ..execution.references import is_alone
from ..execution.runner import runner, transferred

_ids = itertools.count(1)

# Locked while an array is taken out of its owner to be donated: a reader who finds no array waits for it.  No user code
# runs under it.
writing: Any = threading.RLock()


class VersionCounter:
    """The number of in-place changes of a tensor's values; shared by its views and `detach()`ed aliases."""

    # Defaults in the class: each result that is saved gets a counter.
    value: int = 0
    exported: bool = False  # True if other code has the array: saved values of it must not be donated


class Untracked(VersionCounter):
    """The counter of an inference tensor: nothing is counted, and nothing may rely on it.

    Saving for backward reads `value`, which raises; writes and the user's `_version` call `count` and `told`.
    """

    value: int = property(lambda self: _refuse_to_save())  # pyright: ignore[reportAssignmentType] - it has none

    def told(self) -> int:
        """Return the version for the user."""
        raise InferenceTensorError("Inference tensors do not track version counter.")

    def count(self, by: int) -> None:
        """Record a write."""
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

    __slots__ = ("__weakref__", "_array", "_owned", "counter", "generation", "id")

    def __init__(self, array: Any, owned: bool, counter: VersionCounter | None = None) -> None:
        self._array = array
        self._owned: bool = owned  # True if one of our kernels made the array, and no other code has it
        self.counter: VersionCounter | None = counter  # of the tensor whose array it was
        self.generation: int = 0
        self.id: int = next(_ids)

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


def traced() -> bool:
    """Return True where a program of known arrays gives tracers, as inside of `jax.jit`, and not of `jax.vmap`.

    For code that has no tracer to look at.  The comparison takes 2 µs, the program 15.
    """
    return in_trace() and isinstance(jax.lax.neg(_ONE), Tracer)


_ONE = np.int32(1)


def of_ended_trace(array: Any) -> Exception | None:
    """Return JAX's error for a tracer that outlived its trace, which names the place of its making; else None."""
    try:
        jax.lax.expand_dims(array, (0,))
    except jax.errors.UnexpectedTracerError as error:
        return error
    return None


def value_needed(array: Any, text: str, kind: type[Exception] = TracedValueError) -> Exception:
    """Return the error to raise where code needs a tracer's value; store it for `xgrad.compile`: it may be caught."""
    error = of_ended_trace(array) or kind(text)
    if state.trace is not None:
        state.trace.refused = error
    return error


def no_value() -> LostValueError:
    """Return the error of a read that finds no value."""
    return LostValueError(
        "the value of this tensor was lost: a program that was to write it in place failed after it had taken its "
        "memory (the error then said why). Give it another one: x.data = ..., or load a checkpoint."
    )


def may_donate(values: list[Any], index: int) -> bool:
    """Return True if only that list refers to `values[index]`, so that the engine may donate it.

    Only for arrays that our own kernels made: foreign ones are copied when they enter the engine.
    """
    return is_alone(values, index) and not isinstance(values[index], (Tracer, Pending))


def write_root(
    out: list[Any],
    box: list[Any],
    holder: Any,
    program_of: Callable[..., Any],
    operands: tuple[Any, ...],
    owner: Any,
) -> None:
    """Put `program_of(donate)(box[0], *operands)` into `out`: a new value for `holder`, which has lent its array.

    Donates the array if only `box` refers to it and no operand is a tracer; a copy of it if our kernels did not make
    it, so that its first write runs the same program as the next ones.  For an array on a mesh: `program_of(donate,
    sharding)`, whose result gets the array's sharding.  `owner`: the tensor that gets the history of the write.
    """
    if box[0] is None:
        raise no_value()
    if runner.write(out, box, holder, program_of, operands, owner):
        return
    operands = runner.values(operands)
    traced = isinstance(box[0], Tracer)
    where = None if traced else box[0].sharding  # a tracer's costs 10 ms: an error that shows where it comes from
    donate = is_alone(box) and not traced
    if donate:
        for operand in operands:
            if isinstance(operand, Tracer):
                donate = False
        if donate and not holder._owned:
            copy = copied(box)
            donate = not isinstance(copy[0], Tracer)  # as it is in a trace of JAX's
            if donate:
                box[:] = copy
            del copy
    usual = where is None or where.__class__ is SingleDeviceSharding
    program = program_of(donate) if usual else program_of(donate, where)
    if program.__class__ is Writing:
        run_writing(program, out, box, operands)
    else:
        out.append(program(box[0], *operands))


def place_of(array: Any) -> Any:
    """Return an array's sharding if it is committed, for `jnp.zeros(..., device=)`; None if it is not."""
    return None if isinstance(array, Tracer) or not array.committed else array.sharding


def placed_like(new: Any, old: Any) -> Any:
    """Return `new`, which replaces `old` in a write, with the sharding of `old` if that is on a mesh."""
    if isinstance(old, Tracer) or isinstance(new, Tracer):
        return new
    where = old.sharding
    if where.__class__ is SingleDeviceSharding or where.is_equivalent_to(new.sharding, new.ndim):
        return new
    return transferred(new, where)
