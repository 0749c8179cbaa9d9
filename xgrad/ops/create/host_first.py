"""is_early: tells `zeros`, `randn`, ... to make the first few results of a shape by NumPy, without compiling a program.

A program of one constant takes 20 ms to compile, one of random numbers 100 ms and more.  A model has such a program for
each shape of its weights, and most of them run once.  So the first results of each shape come from NumPy.
"""

from math import prod
from typing import Any

from jax.sharding import SingleDeviceSharding

from ...base.jax_compat import in_trace
from ...config import state
from ...execution.runner import runner

_RESULTS = 8  # of a kind
_NUMBERS = 1 << 20  # of a kind in all: 20 ms of random numbers
_KINDS = 4096
_made: dict[Any, int] = {}  # {kind: the number of its results so far}


def is_early(kind: Any, shape: tuple[int, ...], placement: Any) -> bool:
    """Return True if the host should compute the next result of a kind, and count it.

    kind: a hashable value that identifies the program and the shape.  placement: the result's, None or a sharding.
    False inside of traces and of vmap, and in a lazy block, which notes the same programs each time that it runs.
    """
    made = _made.get(kind, 0)
    if made == _RESULTS or state.trace is not None or state.vmap_levels or not runner.at_once():
        return False
    if (made + 1) * prod([n or 1 for n in shape]) > _NUMBERS or not _is_simple(placement) or in_trace():
        return False
    if len(_made) >= _KINDS:
        _made.pop(next(iter(_made)), None)
    _made[kind] = made + 1
    return True


def _is_simple(placement: Any) -> bool:
    return placement is None or isinstance(placement, SingleDeviceSharding)
