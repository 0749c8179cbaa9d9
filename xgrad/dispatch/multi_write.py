"""MultiWrite: writes new values into many tensors in place by one program, for optimizers and `_foreach_` functions.

    tensors  ─┐ taken out of their holders: donated     ┌─► the same tensors, versions risen
              ├─► function(written, read) ──────────────┘
    operands ─┘

Invariants, as for the write of one tensor (views/storage.py): a buffer is donated only if one of our kernels made it
and only its holder refers to it, else it is copied first; a call that fails or is interrupted leaves each tensor its
old value or its new one, with the version that belongs to it.  Tensors that are views, that share a storage or are not
plain ones are read, and written one after the other (`apart`).
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from ..base.jax_compat import Tracer, caches, in_trace
from ..base.limits import checked
from ..config import state
from ..execution.donation import besides, complete
from ..execution.owned import lend
from ..execution.pending import Pending, spread
from ..execution.programs.programs import Program, jit_checked
from ..execution.rollback import replaces
from ..execution.runner import runner
from ..execution.shapes import MOST_RESULTS
from ..tensor import Tensor
from ..views.storage import VersionCounter, writing
from ..views.transaction import Transaction

_ARRAY, _AVAL, _COUNTER, _SHARDING, _STORAGE = map(
    attrgetter, ("_array", "aval", "_version_counter", "sharding", "_storage")
)
_NOTHING, _PLAIN, _COUNTERS, _ONE_DEVICE = {type(None)}, {Tensor}, {VersionCounter}, {SingleDeviceSharding}
_NUMBERS, _UNUSUAL = {bool, int, float}, (Tracer, Pending, type(None))


def _kinds(of: Iterable[Any]) -> set[type[Any]]:
    return {*map(type, of)}


class MultiWrite:
    """The programs of `function(written, read)`: two lists of arrays; it returns new values for those in `written`.

    `own`: see `limits.checked`.
    """

    name: str

    def __init__(self, function: Callable[[list[Any], list[Any]], Sequence[Any]], name: str, own: bool = False) -> None:
        self._function, self.name, self._own = function, name, own
        self._placed: dict[Any, Donating] = {}  # by the shardings of what is written; None for one device
        self._flat: dict[int, Program] = {}  # over flat operands, by the number of tensors
        self._usual: Any = None  # the program for one device, once there is one

    def __call__(self, tensors: Sequence[Tensor], operands: Sequence[Any]) -> None:
        """Write the tensors; `operands` are arrays, numbers, or tensors, which are read."""
        given = [a if not isinstance(a, Tensor) else a._read() if a._array is None else a._array for a in operands]
        if state.trace is None and runner.at_once() and self._is_usual(tensors, given):
            Write(tensors).run(self._usual, given)
            return
        apart = state.trace is not None or in_trace() or not direct(tensors) or runner.on_backend(map(_held, tensors))
        if apart or _traced(map(_held, tensors)) or _traced(given):
            self.apart(tensors, given)
            return
        if self.note(tensors, given):
            return
        runner.evaluate(given, holders=(t if t._storage is None else t._storage for t in tensors))
        Write(tensors).run(self._donating(tensors), given)

    def _is_usual(self, tensors: Sequence[Tensor], given: list[Any]) -> bool:
        """Return True if all tensors are plain ones, each on one device, and the operands arrays or numbers.

        Most calls are so, and need no other question.
        """
        holders = holders_of(tensors)
        if self._usual is None or holders is None:
            return False
        arrays = [*map(_ARRAY, holders)]
        kinds = _kinds(arrays)
        return (
            len(kinds) == 1
            and not any(issubclass(kind, _UNUSUAL) for kind in kinds)
            and _kinds(given) - _NUMBERS <= kinds
            and len({*map(id, holders)}) == len(holders)
            and _kinds(map(_SHARDING, arrays)) == _ONE_DEVICE
        )

    def apart(self, tensors: Sequence[Tensor], operands: Sequence[Any]) -> None:
        """Compute the new values, then write one tensor after the other, each through its view chain."""
        for t in tensors:
            t._bump(0)  # raises for a tensor that may not be written
        new = runner.run(self._program(len(tensors)), [*[t._read() for t in tensors], *operands])
        for t, value in zip(tensors, new, strict=True):
            t._write(value)

    def _program(self, count: int) -> Program:
        program = self._flat.get(count)
        if program is None:
            function = self._function

            def flat(*values: Any) -> tuple[Any, ...]:
                return tuple(function(list(values[:count]), list(values[count:])))

            flat.__name__ = self.name
            program = self._flat[count] = jit_checked(flat, own=self._own)
        return program

    def _donating(self, tensors: Sequence[Tensor]) -> "Donating":
        where = [*map(_SHARDING, map(_held, tensors))]
        return self.on(None if _kinds(where) == _ONE_DEVICE else where)

    def on(self, where: list[Any] | None) -> "Donating":
        key = None if where is None else tuple(where)
        found = self._placed.get(key)
        if found is None:
            found = self._placed[key] = Donating(self._function, self.name, where)
            self._usual = self._placed.get(None)
        return found

    def lower(self, written: list[Any], read: list[Any]) -> Any:
        """Lower the program (as `jax.jit`'s `lower`) for arrays or `jax.ShapeDtypeStruct`s, each on one device."""
        return self.on(None).jitted.lower(written, read)

    def note(self, tensors: Sequence[Tensor], operands: list[Any]) -> bool:
        """Note the call in a lazy thread's queue; False, and nothing, if it has to run at once."""
        queue = runner.queue()
        if queue is None or not queue.fuse or len(tensors) > MOST_RESULTS:
            return False
        write = Write(tensors)
        arrays = [h._array for h in write.holders]
        if any(a is None or isinstance(a, Tracer) or spread(a) for a in (*arrays, *operands)):
            return False
        # As the queue has them, so that `replaces` refers to no array: it could not be donated.
        arrays = [a if a.__class__ is Pending else lend(a, t) for a, t in zip(arrays, tensors)]
        program = self._program(len(tensors))
        with writing:
            write.number()
            try:
                write.results.append(queue.note(program, [*arrays, *operands], [*tensors, *[None] * len(operands)]))
                write.settle()
                for value, before, holder, owner in zip(write.done[0], arrays, write.holders, tensors):
                    replaces(value, before, holder, owner)
            except BaseException:
                complete(write.settle)
                raise
        return True


class Donating:
    """The program of `function(written, read)` that takes the memory of what it writes."""

    instead = "Leave more memory free (a smaller batch)"

    def __init__(self, function: Callable[[list[Any], list[Any]], Sequence[Any]], name: str, where: Any) -> None:
        def whole(written: list[Any], read: list[Any]) -> list[Any]:
            return list(function(written, read))

        whole.__name__ = self.name = name
        self._whole, self.where = whole, where
        self.renew()

    def renew(self) -> None:
        placed = {} if self.where is None else {"out_shardings": self.where}
        self.jitted: Any = jax.jit(checked(self._whole), donate_argnums=(0,), **placed)
        self._needs: dict[Any, int] = {}  # bytes that it needs besides its operands, for each set of operands
        self._last: tuple[list[Any], int] = [], 0  # the avals of its last arrays, and what it needs for them
        self._caches: Any = None  # JAX's caches since which both are known

    def needs(self, arrays: list[Any]) -> tuple[int, bool]:
        known = caches()
        if known is not self._caches:
            self._needs, self._last, self._caches = {}, ([], 0), known
        avals = [*map(_AVAL, arrays)]
        last, need = self._last
        if avals != last:
            found = self._needs.get(_kind(arrays))
            if found is None:
                return 0, False
            self._last = avals, found
            return found, True
        return need, True

    def call(self, given: list[Any], operands: list[Any], results: list[Any]) -> None:
        results.extend(map(self.jitted, [given], [operands]))

    def has_run(self, written: Any, operands: list[Any]) -> None:
        self._needs[_kind(written)] = besides(self.jitted.lower(written, operands).compile())


class Write(Transaction):
    """One write of certain tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        storages = [*map(_STORAGE, tensors)]
        bare = _kinds(storages) <= _NOTHING  # True: each tensor is its array's holder
        counters = [*map(_COUNTER, tensors)]
        if not _kinds(counters) <= _COUNTERS:
            for t in tensors:
                if t._version_counter is None or t._inference:
                    t._bump(0)  # it has a counter now; raises for a tensor that may not be written
            counters = [t._version_counter for t in tensors if not t._inference]
        holders = tensors if bare else _owners(tensors, storages)
        super().__init__(holders, () if bare else [*filter(None, storages)], counters)


def holders_of(tensors: Sequence[Any]) -> Sequence[Any] | None:
    """Return the holder of each tensor's array, itself or its storage; None if one is a view or no plain tensor."""
    if _kinds(tensors) != _PLAIN:
        return None
    storages = [*map(_STORAGE, tensors)]
    if _kinds(storages) == _NOTHING:
        return tensors
    if False in [s is None or t._chain.is_root for t, s in zip(tensors, storages)]:
        return None
    return _owners(tensors, storages)


def _owners(tensors: Sequence[Any], storages: list[Any]) -> list[Any]:
    """Return the owner of each tensor's array: its storage, if it has one, or itself."""
    return [t if s is None else s for t, s in zip(tensors, storages)]


def _held(tensor: Tensor) -> Any:
    return tensor._array if tensor._storage is None else tensor._storage.array


def _kind(arrays: list[Any]) -> tuple[Any, ...]:
    """Return the choice of a compiled program that arrays make."""
    return tuple([(a.shape, a.dtype) for a in arrays])


def _traced(arrays: Iterable[Any]) -> bool:
    return any(issubclass(kind, Tracer) for kind in _kinds(arrays))


def direct(tensors: Sequence[Tensor]) -> bool:
    """Return True if each is a plain tensor with a whole storage that no other one of them has."""
    holders = holders_of(tensors)
    if holders is not None:
        return len({*map(id, holders)}) == len(holders)
    owners = set()
    for t in tensors:
        storage = t._storage
        if t._interpreter is not None or (storage is not None and not t._chain.is_root):
            return False
        owners.add(id(t if storage is None else storage))
    return len(owners) == len(tensors)
