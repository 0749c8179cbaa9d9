"""compile_ahead: compiles several XLA programs in parallel before they are called, for backward and `xgrad.lazy`.

XLA compiles without Python's lock.  A call of a program that is compiled here finds it in JAX's own cache.
"""

import os
import sys
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax

from ...base.jax_compat import COMPILED
from ..source import outside
from .compiles import recorder


class _Compiled:
    count = 0  # the number of programs that the process has compiled, or loaded from the compile cache


compiled = _Compiled()

# Optimizers that have not stepped yet: `programs_ahead(ids of leaves)` gives what they will run after a backward.
# By their ids: a class of the user's may not be hashable, and other threads may add one while these are listed.
expected: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _count(event: str, duration_secs: float, **_: Any) -> None:
    if event == COMPILED:
        compiled.count += 1


jax.monitoring.register_event_duration_secs_listener(_count)


def compile_ahead(calls: Iterable[tuple[Any, list[Any]]], others: Iterable[Any] = ()) -> None:
    """Compile programs for operands: arrays, numbers, or the `jax.ShapeDtypeStruct` of arrays.

    others: objects with a method `lower()`.  One program alone is not compiled here: its call does that.
    A call that fails is left out: it fails again where it is made, and there the error has its place.
    """
    different: dict[Any, Callable[[], Any]] = {}
    for program, operands in calls:
        kind = program, kind_of(tuple(operands))
        different.setdefault(kind, partial(program.lower, *operands))
    lowerings = [*(other.lower for other in others), *different.values()]  # the others are larger: they begin first
    if len(lowerings) < 2:
        return
    pool = ThreadPoolExecutor(min(len(lowerings), os.cpu_count() or 1), "xgrad compile")
    place = outside(sys._getframe(1))
    recorder.batch = recorder.counts["programs"], len(lowerings)
    try:
        compiling = []
        for lower in lowerings:
            try:
                lowered = lower()  # in this thread, whose modes belong to it
                compiling.append(pool.submit(_compile, lowered, place))
            except Exception:
                continue
        for future in compiling:
            future.exception()
    finally:
        pool.shutdown(cancel_futures=True)
        recorder.batch = None


def _compile(lowered: Any, place: Any) -> None:
    """Compile in a thread of the pool, by a call of xgrad's: the compile cache stores no other programs."""
    recorder.thread.place = place
    lowered.compile()


def kind_of(operand: Any) -> Any:
    """Return the operand's part in the choice of a compiled program."""
    if operand.__class__ is tuple:
        return tuple(map(kind_of, operand))
    if not hasattr(operand, "dtype"):
        return type(operand)
    where = getattr(operand, "sharding", None)  # NumPy's arrays have none
    return operand.shape, operand.dtype, getattr(operand, "weak_type", False), where
