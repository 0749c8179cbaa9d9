"""Storage: the one owner of a root array; version counters; and the proof that a buffer may be donated.

Invariant: a write donates the root's buffer to XLA only if nobody else can see it (`exclusive`): the array came from
one of our own kernels, its reference count is that of an array held by one attribute, and it is no tracer.  Anything
else is copied by the write, and owned from then on.

    before the first view            after it
    Tensor._array ──► jax.Array      Tensor._storage ──► Storage.array ──► jax.Array
                                     view._storage   ──┘    (every reader goes through it)

A tensor without views has no Storage: it *is* its array.  `Tensor._storage` makes one when somebody shares it.
"""

import itertools
import sys
from typing import Any

import jax

_ids = itertools.count(1)
Tracer = jax.core.Tracer


class VersionCounter:
    """How often the values behind a tensor were changed in place; shared by its views and `detach()`ed aliases."""

    __slots__ = ("value",)

    def __init__(self, value: int = 0) -> None:
        self.value = value


class Storage:
    """One root `jax.Array` (or tracer), and a generation that each write raises."""

    __slots__ = ("__weakref__", "array", "generation", "id", "owned")

    def __init__(self, array: Any, owned: bool) -> None:
        self.array = array
        self.owned = owned
        self.generation = 0
        self.id = next(_ids)

    def replace(self, array: Any) -> None:
        """The root after a write by one of our kernels."""
        self.array = array
        self.owned = True
        self.generation += 1


class _Probe:
    __slots__ = ("array",)


def _calibrate() -> int:
    """The reference count that an object held by one attribute alone shows to `sys.getrefcount(holder.array)`."""
    probe = _Probe()
    probe.array = object()
    return sys.getrefcount(probe.array)


ALONE = _calibrate()
# Without a global lock, a count read here may be old when the donation happens.
DONATION = getattr(sys, "_is_gil_enabled", lambda: True)()


def exclusive(holder: Any, slot: str = "array") -> bool:
    """Whether `holder` (a Storage, or a Tensor without one) may donate its array: owned, referenced once, no tracer.

    The caller must not hold the array in a variable of its own.
    """
    if slot == "array":
        return (
            DONATION
            and holder.owned
            and sys.getrefcount(holder.array) <= ALONE
            and not isinstance(holder.array, Tracer)
        )
    return (
        DONATION
        and holder._owned
        and sys.getrefcount(holder._array) <= ALONE
        and not isinstance(holder._array, Tracer)
    )


def sole(values: list, index: int) -> bool:
    """Whether `values[index]` is referenced by that list alone, so that the engine may donate it.

    Only for arrays that our own kernels made: foreign ones are copied when they enter the engine.
    """
    return DONATION and sys.getrefcount(values[index]) <= ALONE and not isinstance(values[index], Tracer)
