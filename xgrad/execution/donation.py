"""Runs in-place operations as XLA programs whose result takes the memory of the first operand, which is donated.

Invariant: however a call ends, the old array or the result is there, unless XLA fails after it took the memory.

    box ──► [root] ──► program ──► [result] ──► out      by C code, which no interrupt can divide

`box` and `out` are lists: `run_writing` takes the array (root) from `box`, and puts the result into `out`.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from ..base.jax_compat import COMPILED
from ..base.limits import checked
from ..base.platforms import default_platform, start
from ..errors import LostValueError
from .programs.ahead import compiled
from .references import is_deleted

SPARE = 1 << 20  # bytes that a program may need besides its operands: without so much memory, nothing runs at all


class _Call(threading.local):
    box: list[Any] | None = None  # the box of the write that this thread is about to make


_call = _Call()


class _NoRoomError(Exception):
    """Memory does not suffice for a copy."""


class Writing:
    """A jitted function of arrays whose result is in the first one's memory; for `run_writing`.

    Where JAX has to trace the function, the call goes through Python, and an interrupt or a failure would lose the
    array.  The function itself, whose Python code runs only in a trace, makes a copy then, and so does `_compiling`.

    Calling the object is for arrays that may be lost: the gradients of a running backward.
    """

    __slots__ = ("_facts", "_function", "_where", "jitted", "lower", "needs")

    def __init__(self, function: Callable[..., Any], facts: Any = (), where: Any = None) -> None:
        self._function, self._facts, self._where = function, facts, where
        self.needs: dict[tuple[Any, ...], int] = {}  # {kind of the arguments: bytes}, if it needs much memory besides
        self.renew()

    def renew(self) -> None:
        """Jit the function again.  JAX runs a program whose first call was interrupted through Python ever after."""
        function = self._function

        def writing(*values: Any) -> Any:
            box = _call.box
            if box is not None:
                _put_aside(box)
            return function(*values)

        writing.__name__ = getattr(function, "__name__", "writing")  # compiler/program.py knows some by name
        # It runs on the first operand's devices, also if it does not read it (zero_).
        self.jitted: Any = jax.jit(
            checked(writing, self._facts), donate_argnums=(0,), out_shardings=self._where, keep_unused=True
        )
        self.lower: Any = self.jitted.lower

    def __call__(self, *values: Any) -> Any:
        return self.jitted(*values)

    def through(self, change: Callable[..., Any]) -> "Writing":
        """Return the program of what `change` makes of the function."""
        return Writing(change(self._function), self._facts, self._where)


def _put_aside(box: list) -> None:
    """Append a copy of the array to `box`, in case this call is interrupted or fails."""
    if len(box) == 1:
        with jax.ensure_compile_time_eval():
            try:
                box += copied(box)
            except Exception as error:
                raise _NoRoomError from error


def _compiling(event: str, duration_secs: float, **_: Any) -> None:
    """Make a copy when JAX compiles a write, and so goes through Python: maybe a traced one, for another sharding."""
    box = _call.box
    if box is not None and event == COMPILED:
        _call.box = None  # the copy may be compiled too
        try:
            _put_aside(box)
        finally:
            _call.box = box


jax.monitoring.register_event_duration_secs_listener(_compiling)


def run_writing(program: Writing, out: list[Any], box: list[Any], operands: tuple[Any, ...]) -> None:
    """Put `program(box[0], *operands)` into `out`; only `box` refers to the array, whose memory the result has.

    If this raises, the value is in `out` if that has an item, else still in `box`.  Should XLA fail after it took the
    memory, `box` is None, followed by the deleted array, and the error a `LostValueError`.
    """
    _call.box = box
    try:
        if program.needs or not compiled.count:
            _look_for_room(program, box, operands)
        # C code calls the program and stores its result: Python looks for signals after both.
        out.extend(map(program.jitted, box[:1], *zip(operands)))
        if len(box) > 1:
            await_results(out)
            _note_need(program, out, operands)
        return None
    except BaseException as error:
        _call.box = None
        failure = error
        if not out and box[1:]:
            box[:] = box[1:]
        _look(program, out, box, error)
        if out or not (isinstance(error, _NoRoomError) or "RESOURCE_EXHAUSTED" in str(error)):
            raise
    finally:
        _call.box = None
    # The first call failed for want of memory: without the copy there may be enough.
    need = besides(program.lower(box[0], *operands).compile())
    if need and not has_room(need, box[0].sharding):
        raise (failure.__cause__ if isinstance(failure, _NoRoomError) else failure) or failure
    for error in (failure, failure.__cause__, failure.__context__):
        if error is not None:
            error.__traceback__ = None  # it refers to this frame, and the result with it
    failure = error = None
    try:
        out.extend(map(program.jitted, box[:1], *zip(operands)))
    except BaseException as error:
        _look(program, out, box, error)
        raise


def _look(program: Writing, out: list, box: list, error: BaseException) -> None:
    """Raise `LostValueError` after a failure if the array is deleted and the program gave no result."""
    if through_jax(error):
        program.renew()
    if not out and is_deleted(box[0]):
        array, box[:] = box[0], [None, box[0]]
        if isinstance(error, Exception):
            raise lost([array], "an in-place write", "Write out of place (x = x + y) where memory is short") from error


def through_jax(error: BaseException) -> bool:
    """Return True if Python code of JAX's ran in a call that was broken off: a compiled program runs in C."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("jax."):
            return True
        trace = trace.tb_next
    return False


def _note_need(program: Writing, out: list, operands: tuple) -> None:
    """Record, after a program's first call for such arguments, the memory that it needs besides, if it is much."""
    if sum(getattr(array, "nbytes", 0) for array in (out[0], *operands)) > SPARE:  # else it is little
        need = besides(program.lower(out[0], *operands).compile())
        if need > SPARE:
            program.needs[_kind(out, operands)] = need


def _look_for_room(program: Writing, box: list, operands: tuple) -> None:
    """Make a copy, or raise, before a program that needs more memory than there is.

    JAX has said that it compiles before, or does not: then a copy has to be there before each call.
    """
    if not compiled.count or not has_room(program.needs.get(_kind(box, operands), 0), box[0].sharding):
        _put_aside(box)


def _kind(box: list, operands: tuple) -> tuple:
    return tuple([(getattr(a, "shape", None), getattr(a, "dtype", a.__class__)) for a in (box[0], *operands)])


def besides(executable: Any) -> int:
    """Return the bytes that an executable needs besides its arguments: temporaries, and results in new memory."""
    memory = executable.memory_analysis()
    if memory is None:
        return 0
    return memory.temp_size_in_bytes + max(memory.output_size_in_bytes - memory.alias_size_in_bytes, 0)


def has_room(need: int, sharding: Any) -> bool:
    """Return True if each of the devices has so many bytes left, as far as it can be known."""
    if need <= SPARE:
        return True
    devices = list(sharding.addressable_devices)
    stats = [device.memory_stats() for device in devices]
    if all(stats):
        return all(need <= s.get("bytes_limit", 1 << 63) - s.get("bytes_in_use", 0) for s in stats)
    try:  # the CPU's memory is this process's; untouched pages cost nothing
        np.empty(need * len(devices) + SPARE, np.uint8)
    except MemoryError:
        return False
    return True


def await_results(out: list[Any]) -> None:
    """Wait for a program's results, where copies of what it took can be put back; an error empties `out`.

    A CPU's program whose operands are on their way runs after its call, and what it fails with is in its results.
    """
    try:
        jax.block_until_ready(out)
    except BaseException:
        out.clear()
        raise


def complete(finish: Callable[..., Any], *arguments: Any) -> None:
    """Call `finish`, which may be repeated, until it gets through, for the handler of an interrupt: more may follow.

    The call itself may be interrupted too, before it is in the block: make it in a `try` of your own.
    """
    try:
        finish(*arguments)
    except BaseException:
        try:
            finish(*arguments)
        except BaseException:
            with suppress(BaseException):
                finish(*arguments)


def copied(arrays: list[Any]) -> list[Any]:
    """Return arrays of the same values, to be donated in place of these.  A CPU waits for them: see `await_results`."""
    if all(a.is_fully_addressable for a in arrays):
        copies = jax.device_put([*arrays], may_alias=False)  # a call for each array would take three times as long
    else:
        copies = [jax.device_put(a, may_alias=False) if a.is_fully_addressable else _copy(a) for a in arrays]
    return jax.block_until_ready(copies) if default_platform() == "cpu" else copies


def sent(values: np.ndarray, placement: Any = None) -> Any:
    """Return an array with a copy of the host's values, in memory of XLA's own, which a program may take.

    On a CPU JAX uses the memory of a NumPy array that begins at a multiple of 64 bytes, even with `may_alias=False`,
    and a program that is given such an array copies it: so the values are sent from elsewhere.
    """
    start()
    memory = np.empty(values.nbytes + 128, np.uint8)
    first = 64 - memory.ctypes.data % 64 + 32  # a multiple of each dtype's size
    apart = memory[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    apart[...] = values
    return jax.device_put(apart, placement, may_alias=False)


_copy = jax.jit(lambda array: array.copy())  # for an array of several processes, which `device_put` refuses


def lost(arrays: list[Any], what: str, instead: str) -> LostValueError:
    """Return the error for arrays whose memory a program took without a result."""
    shown = ", ".join(f"{list(a.shape)} {a.dtype.name}" for a in arrays[:8]) + ", ..." * (len(arrays) > 8)
    return LostValueError(
        f"{what} failed after it had taken the memory of what it was to write: the values of {len(arrays)} tensors are "
        f"lost ({shown}). Give them new ones (x.data = ..., or load a checkpoint). {instead}."
    )
