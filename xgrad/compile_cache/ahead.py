"""compile_ahead: compile programs in parallel before they are called, where it is known which ones will be.

XLA compiles without Python's lock.  A call of a program that is compiled here finds it in JAX's own cache.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

_EVENT = "/jax/core/compile/backend_compile_duration"


class _Compiled:
    count = 0  # the number of programs that the process has compiled, or loaded from the compile cache


compiled = _Compiled()


def _count(event: str, duration_secs: float, **_: Any) -> None:
    if event == _EVENT:
        compiled.count += 1


jax.monitoring.register_event_duration_secs_listener(_count)


def compile_ahead(calls: Iterable[tuple[Any, list[Any]]]) -> None:
    """Compile programs for operands: arrays, numbers, or the `jax.ShapeDtypeStruct` of arrays.

    A call that fails is left out: it fails again where it is made, which names its place.
    """
    lowered, seen = [], set()
    for program, operands in calls:
        kind = program, tuple([_kind(operand) for operand in operands])
        if kind in seen:
            continue
        seen.add(kind)
        try:
            lowered.append(program.lower(*operands))  # in this thread, whose modes belong to the program
        except Exception:
            continue
    if len(lowered) < 2:
        return
    pool = ThreadPoolExecutor(min(len(lowered), os.cpu_count() or 1), "xgrad compile")
    try:
        for future in [pool.submit(one.compile) for one in lowered]:
            future.exception()
    finally:
        pool.shutdown(cancel_futures=True)


def _kind(operand: Any) -> Any:
    """Return the operand's part in the choice of a compiled program."""
    dtype = getattr(operand, "dtype", None)
    if dtype is None:
        return type(operand)
    return operand.shape, dtype, getattr(operand, "weak_type", False), operand.sharding
