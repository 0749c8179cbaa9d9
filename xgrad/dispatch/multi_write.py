"""Together: new values for many tensors by one program, which writes all of them in place.

    tensors  ─┐ taken out of their holders: donated     ┌─► the same tensors, versions risen
              ├─► function(written, read) ──────────────┘
    operands ─┘

What optimizers and `_foreach_` functions are made of.  Invariants, as for the write of one tensor (views/storage.py):
a buffer is donated only if one of our kernels made it and only its holder refers to it, else it is copied first; a
call that fails or is interrupted leaves each tensor its old value or its new one, with the version that belongs to it.
Tensors that are views, that share a storage or are not plain ones are read, and written one after the other (`apart`).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from ..base.jax_compat import Tracer
from ..base.limits import checked
from ..config import settings, state
from ..execution.donation import SPARE, besides, copied, has_room, lost, surely, through_jax
from ..execution.execute import execute, queue_now, runs_plainly, settle, spread
from ..execution.owned import lent
from ..execution.pending import Pending, declared_of, quietly
from ..execution.programs.programs import Program, jit_checked
from ..execution.queue import Queue
from ..execution.references import all_alone, deleted, each_alone, is_deleted
from ..execution.rollback import replaces
from ..execution.shapes import MOST_RESULTS
from ..tensor import Tensor
from ..views.storage import VersionCounter, no_value, writing

# A loop in C takes 20 to 60 ns for each tensor, one in Python five times that; XLA's launch takes 1 µs for each.
_ARRAY, _AVAL, _COUNTER, _OWNED, _SHARDING, _STORAGE, _VALUE = map(
    attrgetter, ("_array", "aval", "_version_counter", "_owned", "sharding", "_storage", "value")
)
_NOTHING, _PLAIN, _COUNTERS, _ONE_DEVICE = {type(None)}, {Tensor}, {VersionCounter}, {SingleDeviceSharding}
_NUMBERS, _UNUSUAL = {bool, int, float}, (Tracer, Pending, type(None))


def _kinds(of: Iterable[Any]) -> set[type[Any]]:
    return {*map(type, of)}


class Together:
    """The programs of `function(written, read)`: two lists of arrays; it returns new values for those in `written`."""

    name: str

    def __init__(self, function: Callable[[list[Any], list[Any]], Sequence[Any]], name: str) -> None:
        self._function, self.name = function, name
        self._placed: dict[Any, _Donating] = {}  # by the shardings of what is written; None for one device
        self._flat: dict[int, Program] = {}  # over flat operands, by the number of tensors
        self._usual: Any = None  # the program for one device, once there is one

    def __call__(self, tensors: Sequence[Tensor], operands: Sequence[Any]) -> None:
        """Write the tensors; `operands` are arrays, numbers, or tensors, which are read."""
        given = [a if not isinstance(a, Tensor) else a._read() if a._array is None else a._array for a in operands]
        if state.trace is None and runs_plainly() and self._is_usual(tensors, given):
            _Write(self.name, tensors).run(self._usual, given)
            return
        if state.trace is not None or not direct(tensors) or _traced(map(_held, tensors)) or _traced(given):
            self.apart(tensors, given)
            return
        if settings.special:
            if settings.declared and any(declared_of(_held(t)) is not None for t in tensors):
                self.apart(tensors, given)
                return
            queue = queue_now()
            if queue is not None and self._note(queue, tensors, given):
                return
            for t in tensors:  # a lazy block may have left Pendings
                settle(t if t._storage is None else t._storage)
            given = [*map(quietly, given)]
        _Write(self.name, tensors).run(self._donating(tensors), given)

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
        new = execute(self._program(len(tensors)), [*[t._read() for t in tensors], *operands])
        for t, value in zip(tensors, new, strict=True):
            t._write(value)

    def _program(self, count: int) -> Program:
        program = self._flat.get(count)
        if program is None:
            function = self._function

            def flat(*values: Any) -> tuple[Any, ...]:
                return tuple(function(list(values[:count]), list(values[count:])))

            flat.__name__ = self.name
            program = self._flat[count] = jit_checked(flat)
        return program

    def _donating(self, tensors: Sequence[Tensor]) -> "_Donating":
        where = [*map(_SHARDING, map(_held, tensors))]
        return self._on(None if _kinds(where) == _ONE_DEVICE else where)

    def _on(self, where: list[Any] | None) -> "_Donating":
        key = None if where is None else tuple(where)
        found = self._placed.get(key)
        if found is None:
            found = self._placed[key] = _Donating(self._function, self.name, where)
            self._usual = self._placed.get(None)
        return found

    def lower(self, written: list[Any], read: list[Any]) -> Any:
        """Lower the program (as `jax.jit`'s `lower`) for arrays or `jax.ShapeDtypeStruct`s, each on one device."""
        return self._on(None).jitted.lower(written, read)

    def _note(self, queue: Queue, tensors: Sequence[Tensor], operands: list[Any]) -> bool:
        """Note the call in a lazy block's queue; False, and nothing, if it has to run at once."""
        if len(tensors) > MOST_RESULTS:
            return False
        write = _Write(self.name, tensors)
        arrays = [h._array for h in write.holders]
        if any(a is None or isinstance(a, Tracer) or spread(a) for a in (*arrays, *operands)):
            return False
        # As the queue has them, so that `replaces` refers to no array: it could not be donated.
        arrays = [a if a.__class__ is Pending else lent(a, t) for a, t in zip(arrays, tensors)]
        program, results = self._program(len(tensors)), []
        with writing:
            write.number()
            try:
                new = queue.note(program, [*arrays, *operands], [*tensors, *[None] * len(operands)])
                results.append(new)
                write.settle(arrays, results)
                for value, before, holder, owner in zip(new, arrays, write.holders, tensors):
                    replaces(value, before, holder, owner)
            except BaseException:
                if results:
                    surely(write.settle, arrays, results)
                raise
        return True


class _Donating:
    """The program that takes the memory of what it writes."""

    def __init__(self, function: Callable[[list[Any], list[Any]], Sequence[Any]], name: str, where: Any) -> None:
        def whole(written: list[Any], read: list[Any]) -> list[Any]:
            return list(function(written, read))

        whole.__name__ = name
        self._whole, self._where = whole, where
        self.renew()

    def renew(self) -> None:
        """Jit the function again.  JAX runs a program whose first call was interrupted through Python ever after."""
        placed = {} if self._where is None else {"out_shardings": self._where}
        self.jitted: Any = jax.jit(checked(self._whole), donate_argnums=(0,), **placed)
        self.needs: dict[Any, int] = {}  # bytes that it needs besides its operands, for each set of operands
        self._last: tuple[list[Any], int] = [], 0  # the avals of its last arrays, and what it needs for them

    def need(self, arrays: list[Any]) -> int | None:
        """Return what it needs for arrays like these besides its operands; None if it never ran with such."""
        avals, need = self._last
        if len(avals) == len(arrays) and all(map(is_, map(_AVAL, arrays), avals)):
            return need
        found = self.needs.get(_kind(arrays))
        if found is not None:
            self._last = [*map(_AVAL, arrays)], found
        return found


class _Write:
    """One write of certain tensors."""

    def __init__(self, name: str, tensors: Sequence[Tensor]) -> None:
        self._name, self._tensors = name, tensors
        # An array is taken out of its holder, and the new one put there.
        storages = [*map(_STORAGE, tensors)]
        self._bare = _kinds(storages) <= _NOTHING  # True: each tensor is its array's holder
        self.holders: Sequence[Any] = tensors if self._bare else _owners(tensors, storages)
        counters = [*map(_COUNTER, tensors)]
        if not _kinds(counters) <= _COUNTERS:
            for t in tensors:
                if t._version_counter is None or t._inference:
                    t._bump(0)  # it has a counter now; raises for a tensor that may not be written
            counters = [t._version_counter for t in tensors if not t._inference]
        self._counters: list[Any] = counters
        self._owned = False  # True if each holder owns its array
        # What is set once the new values are there: as numbers, so that setting may be repeated.
        self._versions: list[int] = []
        self._generations: list[int] = []

    def run(self, program: _Donating, operands: list[Any]) -> None:
        holders = self.holders
        arrays: list[Any] = []
        results: list[Any] = []
        with writing:
            try:
                arrays += map(_ARRAY, holders)
                if any(map(is_, arrays, repeat(None))):
                    raise no_value()
                need = program.need(arrays)
                self.number()
                for h in holders:
                    h._array = None
                taken = self._alone(arrays)
                if need is None or need > SPARE:
                    taken = _put_aside(need, taken)
                # C code calls the program and stores its results: Python looks for signals after both.
                results.extend(map(program.jitted, [taken], [operands]))
                self.settle(arrays, results)
                if need is None:
                    del taken
                    lowered = program.jitted.lower(results[0], operands)
                    program.needs[_kind(arrays)] = besides(lowered.compile())
            except BaseException as error:
                try:
                    surely(self.settle, arrays, results)
                except BaseException:
                    surely(self.settle, arrays, results)
                if through_jax(error):
                    program.renew()
                gone = [] if results else deleted(arrays)
                if gone and isinstance(error, Exception):
                    raise lost(gone, self._name, "Leave more memory free (a smaller batch)") from error
                raise

    def number(self) -> None:
        """Compute the new versions and generations."""
        self._versions = [value + 1 for value in map(_VALUE, self._counters)]
        if not self._bare:
            self._generations = [0 if h is t else h.generation + 1 for h, t in zip(self.holders, self._tensors)]

    def settle(self, arrays: list[Any], results: list[Any]) -> None:
        """Put the new values into their holders, or the old ones back.  May be repeated."""
        if not results:
            for holder, array in zip(self.holders, arrays):
                if not is_deleted(array):
                    holder._array = array
            return
        for holder, array in zip(self.holders, results[0]):
            holder._array = array
        if not self._owned:
            for holder, tensor in zip(self.holders, self._tensors):
                if holder is tensor:
                    holder._owned = True
                else:
                    holder.owned = True
        for holder, tensor, generation in zip(self.holders, self._tensors, self._generations):
            if holder is not tensor:
                holder.generation = generation
        for counter, version in zip(self._counters, self._versions):
            counter.value = version

    def _alone(self, arrays: list[Any]) -> list[Any]:
        """Return the arrays, with copies in place of those that may not be donated."""
        if self._bare:
            owned = [*map(_OWNED, self._tensors)]
        else:
            owned = [h._owned if h is t else h.owned for h, t in zip(self.holders, self._tensors)]
        self._owned = False not in owned
        if self._owned and all_alone(arrays):
            return arrays
        alone = each_alone(arrays)
        return [array if a and b else copied([array])[0] for array, a, b in zip(arrays, owned, alone)]


def _put_aside(need: int | None, arrays: list[Any]) -> list[Any]:
    """Return copies to donate, if the program may fail or JAX goes through Python, and there is room for them."""
    size = sum(a.nbytes for a in arrays)
    if not arrays:
        return arrays
    where = arrays[0].sharding
    if need is not None and has_room(need, where):
        return arrays
    return copied(arrays) if has_room((need or 0) + size, where) else arrays


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
