"""Programs that have a name: `jax.jit`, of which the compile cache keeps executables for the next process (kept.py).

And programs that write: their result takes the memory of the array that they are given, which is then gone.  What they
promise: when a call is over, in whatever way, there is the array or the result.

    box ──► [root] ──► program ──► [result] ──► out      put there by C: Python sees neither half of the way
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import jax
import numpy as np

from .errors import LostValueError
from .limits import checked

# Gives what is called in place of (the jitted function, its name, the `Results` that get what it gives or None); None
# while the compile cache is off.
keep: Callable[[Any, Any, Any], Callable] | None = None

SPARE = 1 << 20  # bytes that a program may need besides: without so much, nothing runs at all


def jit_named(
    function: Callable, name: Any, *, donate: bool = False, keep_unused: bool = False, converts: bool = False
) -> Callable:
    """`jax.jit(function)`; with `donate` the result takes the first argument's memory.

    `name`: what no other function of xgrad has, in any process; see `kept.told`.  While the compile cache is off only a
    trace looks at it, and no call is slower.  `converts`: see `limits.checked`, through which all programs pass.
    """
    function = checked(function, name, converts=converts)
    jitted = jax.jit(function, donate_argnums=(0,) if donate else (), keep_unused=keep_unused)
    return jitted if keep is None else keep(jitted, (name, donate), None)


def jit_placed(function: Callable, where: Any) -> Callable:
    """`jax.jit(function)` whose result is sharded as `where` says, and that runs where its first argument is.

    It has no name: the compile cache keeps programs of one device.
    """
    return jax.jit(checked(function), out_shardings=where, keep_unused=True)


# ---------------------------------------------------------------- programs that write


class _Call(threading.local):
    box: list | None = None  # of the write that this thread is about to make


_call = _Call()


class _NoRoomError(Exception):
    """There is no memory to put a copy aside."""


class Writing:
    """A jitted function of arrays whose result takes the first one's memory; for `run_writing`.

    Where JAX has to trace the function, the call goes through Python, and an interrupt or a failure would lose the
    array.  The function itself, which runs in a trace alone, puts a copy aside then, and so does `_compiling`.

    While the compile cache is on, each call goes through Python.  The program's result is a pytree then, `results`,
    into which C puts the value before it returns to Python.  They belong to one call at a time: `views.storage.writing`
    is held.  Calling the object is for arrays that may get lost: those of a backward that is running.
    """

    __slots__ = ("_function", "_name", "_where", "bare", "jitted", "lower", "needs", "results")

    def __init__(self, function: Callable, name: Any, where: Any = None) -> None:
        self._function, self._name, self._where = function, name, where
        self.needs: dict[tuple, int] = {}  # {kind of the arguments: bytes}, where it needs much memory besides
        self.renew()

    def renew(self) -> None:
        """Begin again.  JAX runs a program whose first call was interrupted through Python ever after."""
        function, where = self._function, self._where

        def writing(*values: Any) -> Any:
            box = _call.box
            if box is not None:
                _put_aside(box)
            return function(*values)

        writing.__name__ = getattr(function, "__name__", "writing")  # compiler/program.py knows some of them by it
        whole = checked(writing, self._name if where is None else ())
        # It runs where its first argument is, also if it does not read it (zero_).
        self.jitted: Any = jax.jit(whole, donate_argnums=(0,), out_shardings=where, keep_unused=True)
        self.lower = self.jitted.lower
        self.bare = self.jitted
        self.results: Results | None = None
        if keep is not None and where is None:
            results = Results()

            def held(*values: Any) -> Any:
                return results.holding(whole(*values))

            held.__name__ = writing.__name__
            jitted = jax.jit(held, donate_argnums=(0,), keep_unused=True)
            kept = keep(jitted, (self._name, True), results)
            if kept is not jitted:
                self.jitted, self.results = kept, results
                self.bare = keep(self.bare, (self._name, "bare"), None)

    def __call__(self, *values: Any) -> Any:
        return self.bare(*values)


def _put_aside(box: list) -> None:
    """A copy behind the array, in case that this call is interrupted or fails."""
    if len(box) == 1:
        with jax.ensure_compile_time_eval():
            try:
                box.append(jax.device_put(box[0], may_alias=False))
            except Exception as error:
                raise _NoRoomError from error


def _compiling(event: str, duration_secs: float, **_: Any) -> None:
    """JAX compiles a write, and so goes through Python: maybe of what it has traced before, for another sharding."""
    box = _call.box
    if box is not None and event == _COMPILED:
        _call.box = None  # the copy may be compiled too
        try:
            _put_aside(box)
        finally:
            _call.box = box


_COMPILED = "/jax/core/compile/backend_compile_duration"
jax.monitoring.register_event_duration_secs_listener(_compiling)


def run_writing(program: Writing, out: list, box: list, operands: tuple) -> None:
    """Put `program(box[0], *operands)` into `out`; `box` alone holds the array, whose memory the result takes.

    If this raises, the value is in `out` if there is something, else still in `box`.  Should XLA fail after it took the
    memory, that is None, with what is left of the array behind it, and the error a `LostValueError`.
    """
    _call.box = box
    try:
        if program.needs:
            _run_with_room(program, out, box, operands)
        elif program.results is not None:
            _run_kept(program, out, box, operands)
        else:
            # C calls the program and stores what it gives: Python looks for signals when all of it is over.
            out.extend(map(program.jitted, box[:1], *zip(operands)))
        if len(box) > 1:
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
            error.__traceback__ = None  # which would hold this frame, and the result with it
    failure = error = None
    try:
        _run(program, out, box, operands)
    except BaseException as error:
        _look(program, out, box, error)
        raise


def _look(program: Writing, out: list, box: list, error: BaseException) -> None:
    """After a failure: raise `LostValueError` if the array is gone, and nothing has come of it."""
    if through_jax(error):
        program.renew()
    if not out and box[0].is_deleted():
        array, box[:] = box[0], [None, box[0]]
        if isinstance(error, Exception):
            raise lost([array], "an in-place write", "Write out of place (x = x + y) where memory is short") from error


def through_jax(error: BaseException) -> bool:
    """Whether Python code of JAX's has run in a call that was broken off: a program that is compiled runs in C."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("jax."):
            return True
        trace = trace.tb_next
    return False


def _note_need(program: Writing, out: list, operands: tuple) -> None:
    """After a program's first call for such arguments: note what memory it needs besides, if it is much."""
    if sum(getattr(array, "nbytes", 0) for array in (out[0], *operands)) > SPARE:  # else it is little
        need = besides(program.lower(out[0], *operands).compile())
        if need > SPARE:
            program.needs[_kind(out, operands)] = need


def _run_with_room(program: Writing, out: list, box: list, operands: tuple) -> None:
    """Run a program that needs memory besides: where there is not enough, a copy is put aside, or it is not run."""
    if not has_room(program.needs.get(_kind(box, operands), 0), box[0].sharding):
        _put_aside(box)
    _run(program, out, box, operands)


def _run(program: Writing, out: list, box: list, operands: tuple) -> None:
    if program.results is not None:
        _run_kept(program, out, box, operands)
    else:
        out.extend(map(program.jitted, box[:1], *zip(operands)))


def _run_kept(program: Writing, out: list, box: list, operands: tuple) -> None:
    """Run a program of the compile cache, which goes through Python behind C: its value is in `results` by then."""
    results = program.results
    assert results is not None
    results.clear()
    try:
        program.jitted(box[0], *operands)
    finally:  # no call in it
        if results and results[-1].__class__ is box[0].__class__:  # and no tracer
            out += results[-1:]
        del results[:]


def _kind(box: list, operands: tuple) -> tuple:
    return tuple([(getattr(a, "shape", None), getattr(a, "dtype", a.__class__)) for a in (box[0], *operands)])


def besides(executable: Any) -> int:
    """The bytes that an executable needs besides its arguments: temporaries, and results that take no argument's."""
    memory = executable.memory_analysis()
    if memory is None:
        return 0
    return memory.temp_size_in_bytes + max(memory.output_size_in_bytes - memory.alias_size_in_bytes, 0)


def has_room(need: int, sharding: Any) -> bool:
    """Whether each of the devices has so many bytes left, as far as can be told."""
    if need <= SPARE:
        return True
    devices = list(sharding.addressable_devices)
    stats = [device.memory_stats() for device in devices]
    if all(stats):
        return all(need <= s.get("bytes_limit", 1 << 63) - s.get("bytes_in_use", 0) for s in stats)
    try:  # the CPU's memory is this process's; what is not touched costs nothing
        np.empty(need * len(devices) + SPARE, np.uint8)
    except MemoryError:
        return False
    return True


class Results(list):
    """Where C puts what a program gives, before the call returns to Python: the last item is the list of its results.

    The program gives it as a pytree that is this very object; to make the tree is to add to it.  So nothing is lost of
    what `jax.stages.Compiled` gives either, whose call is a Python function.
    """

    __slots__ = ()
    __hash__: Any = object.__hash__  # JAX asks these of a pytree's metadata
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def holding(self, values: list) -> "Results":
        """The pytree of these values."""
        self[:] = [values]
        return self


def _last(results: Results) -> tuple[list, Results]:
    return results[-1:], results


jax.tree_util.register_pytree_node(
    Results,
    cast("Any", _last),
    cast("Any", list.__iadd__),  # of (metadata, children); it gives the metadata back
)


def surely(finish: Callable, *arguments: Any) -> None:
    """Call what may be called again, until it gets through: for the handler of an interrupt, which more may follow.

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


def copied(arrays: list) -> list:
    """Arrays of the same values, to be used up in place of these."""
    return [jax.device_put(a, may_alias=False) if a.is_fully_addressable else _copy(a) for a in arrays]


_copy = jax.jit(lambda array: array.copy())  # of an array of several processes, which `device_put` refuses


def lost(arrays: list, what: str, instead: str) -> LostValueError:
    """The error for arrays whose memory a program took, and gave no result."""
    shown = ", ".join(f"{list(a.shape)} {a.dtype.name}" for a in arrays[:8]) + ", ..." * (len(arrays) > 8)
    return LostValueError(
        f"{what} failed after it had taken the memory of what it was to write: the values of {len(arrays)} tensors are "
        f"lost ({shown}). Give them new ones (x.data = ..., or load a checkpoint). {instead}."
    )
