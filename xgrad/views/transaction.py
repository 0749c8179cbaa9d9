"""Transaction: runs a program that writes several tensors in place; if it fails, puts back old values that are left.

    holders ──take──► arrays ──put_aside──► the program ──► results ──settle──► holders

A *holder* has an array: a tensor without a storage, or a storage.  Invariants, as for the write of one root
(storage.py): an array is donated only if one of our kernels made it and only its holder refers to it, else a copy of it
is; an array that a failed program took is reported as lost, with all the others.  `settle` may be repeated, because a
signal may arrive at each of its calls: it sets numbers that were computed before the program ran.

Used by writes of many tensors (dispatch/multi_write.py), with them by optimizers and optax's step, and by compiled
functions (compiler/compiled_program.py).  A queue of lazy programs has no holders: see its `done`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from ..execution.donation import SPARE, await_results, complete, copied, has_room, lost, through_jax
from ..execution.references import all_alone, deleted, each_alone, is_deleted
from .chain import ViewChain
from .storage import Storage, no_value, writing


class DonatingProgram(Protocol):
    """A program that takes the memory of what it writes."""

    name: str  # for the error that says what is lost
    instead: str  # what the user may do about it

    def needs(self, arrays: list[Any]) -> tuple[int, bool]:
        """Return the bytes that it needs besides its operands, and True if it ran with such arrays before."""
        ...

    def call(self, given: list[Any], operands: list[Any], results: list[Any]) -> None:
        """Append what the program returns to `results`, in C: Python looks for signals after both."""
        ...

    def has_run(self, written: Any, operands: list[Any]) -> None:
        """Note that it ran with such arrays, for the first time."""
        ...

    def renew(self) -> None:
        """Compile it again: JAX runs a program whose first call was interrupted through Python ever after."""
        ...


class Transaction:
    """One write of certain holders.

    `storages`: those holders that are storages; `counters`: of the versions that rise, each by one, or as `rises` says;
    `taken`: the first holders, whose arrays are donated; None: all.
    """

    versions: Sequence[int] = ()  # the new ones
    _generations: Sequence[int] = ()
    _owned: bool = False  # True if each holder owned its array, alone

    def __init__(
        self,
        holders: Sequence[Any],
        storages: Sequence[Storage],
        counters: Sequence[Any],
        rises: Sequence[int] | None = None,
        taken: Sequence[Any] | None = None,
    ) -> None:
        self.holders, self._storages, self.counters, self._rises = holders, storages, counters, rises
        self._taken = holders if taken is None else taken
        self.arrays: list[Any] = []  # that were taken, or copies of them: what a failure puts back
        self.results: list[Any] = []  # [what the program has returned], until it is settled,
        self.done: list[Any] = []  # and from then on

    def run(self, program: DonatingProgram, operands: list[Any]) -> Any:
        """Run the program on the holders' arrays and on `operands`; return what it has returned."""
        with writing:
            try:
                given = self.take()
                need, ran = program.needs(self.arrays)
                kept = (not ran or need > SPARE) and self.put_aside(given, need, ran)
                program.call(given, operands, self.results)
                if kept:
                    await_results(self.results)
                self.settle()
                if not ran:
                    del given
                    program.has_run(self.values(self.done[0]), operands)
            except BaseException as error:
                try:
                    complete(self.settle)
                except BaseException:
                    complete(self.settle)
                if through_jax(error):
                    program.renew()
                gone = [] if self.results or self.done else deleted(self.arrays)
                if gone and isinstance(error, Exception):
                    raise lost(gone, program.name, program.instead) from error
                raise
        return self.done[0]

    def number(self) -> None:
        """Compute the new versions and generations."""
        rises = self._rises
        if rises is None:
            self.versions = [counter.value + 1 for counter in self.counters]
        else:
            self.versions = [counter.value + rise for counter, rise in zip(self.counters, rises)]
        if self._storages:
            self._generations = [storage.generation + 1 for storage in self._storages]

    def take(self) -> list[Any]:
        """Take the arrays out of their holders; return them, with copies in place of those that may not be donated."""
        self.number()
        arrays, all_owned = self.arrays, True
        for holder in self._taken:
            array = holder._array
            if array is None:
                raise no_value()
            arrays.append(array)
            holder._array = array = None  # the name would be one more reference
            if not holder._owned:
                all_owned = False
        if all_owned and all_alone(arrays):
            self._owned = self._taken is self.holders
            return arrays
        alone = [here and holder._owned for here, holder in zip(each_alone(arrays), self._taken)]
        copies = iter(copied([array for array, own in zip(arrays, alone) if not own]))
        return [array if own else next(copies) for array, own in zip(arrays, alone)]

    def put_aside(self, given: list[Any], need: int, ran: bool) -> bool:
        """Copy the arrays to be donated if the program may fail or JAX goes through Python, and there is room for it.

        `settle` puts the copies back.  Where memory is too short for the program itself, they fail before it does.
        Returns True if all old values are kept.
        """
        own = [i for i, (array, old) in enumerate(zip(given, self.arrays)) if array is old]
        if not given:
            return False
        where, size = given[0].sharding, 0 if ran else sum(given[i].nbytes for i in own)
        if has_room(need + size, where):
            if ran:
                return False
        elif has_room(need, where):
            return False  # enough for the program, and not for copies
        kept = [*self.arrays]
        for i, copy in zip(own, copied([given[i] for i in own])):
            kept[i] = copy
        self.arrays = kept
        return True

    def settle(self) -> None:
        """Put the new values into their holders, or the old ones back.  May be repeated."""
        if self.done:
            return
        if not self.results:
            for holder, array in zip(self._taken, self.arrays):
                if not is_deleted(array):
                    holder._array = array
                elif holder.__class__ is not Storage:
                    holder._chain = ViewChain.of(array)  # the shape of the lost value
            return
        out = self.results[-1]
        for holder, array in zip(self.holders, self.values(out)):
            holder._array = array
        if not self._owned:
            for holder in self.holders:
                holder._owned = True
        for storage, generation in zip(self._storages, self._generations):
            storage.generation = generation
        for counter, version in zip(self.counters, self.versions):
            counter.value = version
        self.done.append(out)  # all holders have their values
        self.results.clear()

    def values(self, out: Any) -> Sequence[Any]:
        """Return the holders' new values, the first ones of what the program has returned."""
        return out
