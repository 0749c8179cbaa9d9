"""The update of parameters as one program, with the steps before and after it.

    parameters ─┐ taken out of their        ┌─► parameters ─► put back, versions rise
    gradients  ─┤ holders: donated          ├─► state      ─► put back
    state      ─┴─► tx.update of each group ┘

Invariant: a parameter's buffer is donated only if one of our kernels made it and only its holder refers to it; else
it is copied first.  Parameters that are views, or share a storage with another one, are not donated: the program
returns their updates, which are added one after the other, as PyTorch's in-place operators would do.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import is_
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ..base.limits import checked
from ..config import settings
from ..execution.donation import SPARE, besides, copied, has_room, lost, surely, through_jax
from ..execution.execute import queue_now, settle
from ..execution.pending import quietly
from ..execution.references import all_alone, deleted, each_alone, is_deleted
from ..tensor import Tensor
from ..views.storage import no_value, writing
from ._optax_lazy import note_step
from ._optax_program import Program
from ._optax_state import GroupState, Layout, owned_copy

_MOST = 64  # programs of one `Update`
_added = jax.jit(checked(optax.apply_updates))


class Part(NamedTuple):
    """One group's share of a step: its parameters that have a gradient.  Refers to no values."""

    layout: Layout
    number: int  # the group's
    present: tuple[bool, ...]
    size: int  # the number of parameters
    tree: Any  # the structure of the state for these parameters,
    places: list[int]  # and the places of its leaves among all leaves

    def spread(self, values: Sequence[Any]) -> Any:
        """Return values of the parameters that take part, in the structure that optax sees."""
        given = iter(values)
        return self.layout.nested([next(given) if here else optax.MaskedNode() for here in self.present])

    def collected(self, tree: Any) -> list[Any]:
        """Undo `spread`."""
        return [value for value, here in zip(self.layout.flat(tree), self.present, strict=True) if here]

    def update(self, params: list, grads: list, leaves: list, extra: dict[str, Any]) -> tuple[list, list]:
        """Return the parameters' updates, and all leaves of the state.  Raises `RuntimeError` if shapes differ."""
        shapes = [shape for shape, here in zip(self.layout.shapes, self.present, strict=True) if here]
        for i, (param, grad, shape) in enumerate(zip(params, grads, shapes, strict=True)):
            if param.shape != shape or grad.shape != shape:
                raise RuntimeError(
                    f"parameter {i} of group {self.number} has the shape {param.shape} and a gradient of {grad.shape}, "
                    f"but the optimizer's state was made for {shape}: make a new optimizer for changed parameters"
                )
        gradients = self.spread(grads)
        extra = dict(extra)
        value_of = extra.pop("value_of", None)
        if value_of is not None or "value_fn" in extra:
            extra.setdefault("grad", gradients)
        if value_of is not None:
            extra.setdefault("value_fn", lambda tree: value_of(self, self.collected(tree)))
        state = jax.tree.unflatten(self.tree, [leaves[i] for i in self.places])
        updates, new = self.layout.tx.update(gradients, state, self.spread(params), **extra)
        result = list(leaves)
        for i, leaf in zip(self.places, self.tree.flatten_up_to(new), strict=True):
            result[i] = jnp.asarray(leaf)
        return self.collected(updates), result


def updated(parts: list[Part], direct: list[bool], params: list, grads: list, leaves: list, extra: dict) -> tuple:
    """Return the new values of parameters that are `direct`, the updates of the others, the leaves of the states."""
    values, others, states = [], [], []
    start = place = 0
    for part in parts:
        stop, end = start + part.size, place + len(part.layout.paths)
        own = params[start:stop]
        updates, new = part.update(own, grads[start:stop], leaves[place:end], extra)
        for param, update, mine in zip(own, updates, direct[start:stop], strict=True):
            if mine:
                values.append(optax.apply_updates(param, update))
            else:
                others.append(update)
        states += new
        start, place = stop, end
    return values, others, states


def direct_of(params: Sequence[Tensor]) -> list[bool]:
    """Return for each parameter True if it is a whole storage that no other one of them has."""
    owners = [id(p if p._storage is None else p._storage) for p in params]
    shared = {owner for owner in owners if owners.count(owner) > 1} if len(set(owners)) < len(owners) else ()
    return [owner not in shared and (p._storage is None or p._chain.is_root) for p, owner in zip(params, owners)]


class Update:
    """A step of certain parameters: valid as long as only their values change."""

    def __init__(self, parts: list[Part], states: list[GroupState], params: list[Tensor]) -> None:
        for param in params:
            param._bump(0)  # it has a counter now; raises for a tensor that may not be written
        self.parts, self.states, self.params = parts, states, params
        self.storages = [p._storage for p in params]
        self.chains = [p._chain for p in params]
        self.direct = direct_of(params)
        self.tensors = [tensor for state in states for tensor in state.tensors]
        self.others = [p for p, direct in zip(params, self.direct) if not direct]
        own = [p for p, direct in zip(params, self.direct) if direct]
        self.own: Any = own
        self.bare = [p for p in own if p._storage is None]
        self.stored: list[Any] = [p._storage for p in own if p._storage is not None]
        # An array is taken out of its holder, and the new one put there.
        self.holders: list[Any] = [p if p._storage is None else p._storage for p in own]
        self.programs: dict[Any, Program] = {}
        self.lazy_programs: dict[Any, Any] = {}  # for a queue, by the structure of further arguments

    def holds(self) -> bool:
        """Return True if the parameters still have the same storages and chains."""
        params = self.params
        return all(map(is_, [p._storage for p in params], self.storages)) and (
            not (self.stored or self.others) or all(map(is_, [p._chain for p in params], self.chains))
        )

    def run(self, grads: list, extra: dict[str, Any], functions: dict[str, Callable]) -> None:
        """Do the step."""
        for state in self.states:
            if state.lent:
                state.take_back()
        queue = queue_now() if settings.special else None
        if queue is not None and not functions and note_step(self, queue, grads, extra):
            return
        others = [p._read() for p in self.others]
        if settings.special:  # a lazy block may have left Pendings
            for holder in (*self.holders, *self.tensors):
                settle(holder)
            grads, others = [*map(quietly, grads)], [*map(quietly, others)]
        call, program = self._program(others, grads, extra, functions)
        arrays: list = []
        results: list = []
        numbers: list[tuple] = []
        with writing:
            leaves = [t._array for t in self.tensors]
            try:
                arrays += [h._array for h in self.holders]
                if any(map(is_, arrays, repeat(None))):
                    raise no_value()
                self.number(numbers)
                for holder in self.holders:
                    holder._array = None
                taken, given = arrays if self._alone(arrays) else self._copied(arrays), leaves
                if not program.ran or functions or program.need > SPARE:
                    taken, given = self._put_aside(program, bool(functions), taken, given)
                # C code calls the program and stores its results: Python looks for signals after both.
                results.extend(map(call, [taken], [others], [grads], [given], [extra]))
                self.settle(arrays, leaves, numbers, results)
                if not program.ran and not functions:
                    del taken, given
                    self._note(program, others, grads, extra)
            except BaseException as error:
                try:
                    surely(self.settle, arrays, leaves, numbers, results)
                except BaseException:
                    surely(self.settle, arrays, leaves, numbers, results)
                if through_jax(error):
                    self.programs.clear()  # JAX would run it through Python from now on
                gone = [] if results else deleted((*arrays, *leaves))
                if gone and isinstance(error, Exception):
                    raise lost(gone, "an optimizer's step", "Leave more memory free (a smaller batch)") from error
                raise

    def number(self, numbers: list) -> None:
        """Compute the new versions and generations: as numbers to be set, so that setting may be repeated."""
        numbers += [(storage, "generation", storage.generation + 1) for storage in self.stored]
        rises: dict[int, Any] = {}
        for param in (*self.own, *self.others):
            counter: Any = param._version_counter
            number = rises[id(counter)] = rises.get(id(counter), counter.value) + 1
            numbers.append((counter, "value", number))

    def settle(self, arrays: list, leaves: list, numbers: list, results: list) -> None:
        """Put the new values into their holders, or the old ones back.  May be repeated."""
        if not results:
            for holder, array in zip(self.holders, arrays):
                if not is_deleted(array):
                    holder._array = array
            for tensor, array in zip(self.tensors, leaves):
                tensor._array = None if is_deleted(array) else array
            return
        values, updates, states = results[0]
        for holder, array in zip(self.holders, values):
            holder._array = array
        for storage in self.stored:
            storage.owned = True
        for param in self.bare:
            param._owned = True
        count = len(numbers) - len(self.others)
        for what, name, number in numbers[:count]:
            setattr(what, name, number)
        for tensor, array in zip(self.tensors, states):
            tensor._array = array
        for param, update, (counter, _, number) in zip(self.others, updates, numbers[count:]):
            if counter.value < number:
                param._write(_added(param._read(), update))

    def _put_aside(self, program: Program, always: bool, taken: list, leaves: list) -> tuple[list, list]:
        """Return copies to donate, if the program may fail or JAX goes through Python, and there is room for them."""
        size = sum(a.nbytes for a in (*taken, *leaves))
        sharding = next((a.sharding for a in (*taken, *leaves)), None)
        if sharding is None:
            return taken, leaves
        first = always or not program.ran
        if not has_room(program.need + size * first, sharding):
            if has_room(program.need, sharding):
                return taken, leaves
        elif not first:
            return taken, leaves
        return copied(taken), copied(leaves)

    def _note(self, program: Program, others: list, grads: list, extra: dict) -> None:
        """Record, after a program's first call, the memory that it needs besides."""
        arrays = [h._array for h in self.holders]
        program.need = besides(
            program.jitted.lower(arrays, others, grads, [t._array for t in self.tensors], extra).compile()
        )
        program.ran = True

    def _alone(self, arrays: list) -> bool:
        """Return True if all arrays, which only this list should refer to, may be donated."""
        return (
            False not in [s.owned for s in self.stored]
            and False not in [p._owned for p in self.bare]
            and all_alone(arrays)
        )

    def _copied(self, arrays: list) -> list:
        """Return the arrays, and copies of those that may not be donated."""
        alone = each_alone(arrays)
        owned = [h._owned if isinstance(h, Tensor) else h.owned for h in self.holders]
        return [array if mine and one else owned_copy(array) for array, mine, one in zip(arrays, owned, alone)]

    def _program(self, others: list, grads: list, extra: dict, functions: dict) -> tuple[Callable, Program]:
        """Return the function to be called with the values, and its program."""
        key = (*extra, None, *functions)
        program = self.programs.get(key)
        if program is None or functions:
            arrays = [h._array for h in self.holders]
            values = arrays, others, grads, [t._array for t in self.tensors], extra
            if program is None:
                if len(self.programs) >= _MOST:
                    self.programs.clear()
                program = self.programs[key] = self._made(values, functions)
            if functions:
                return program.with_functions(values, functions), program
        return program.jitted, program

    def _made(self, values: tuple, functions: dict) -> Program:
        while True:
            arrays, others, grads, leaves, extra = values
            program = Program(self.whole(), self._out_shardings(arrays, others, leaves))
            if self.settled(program.shapes(values, functions)):
                return program
            values = arrays, others, grads, [t._array for t in self.tensors], extra

    def settled(self, avals: list) -> bool:
        """Give the states the dtypes that a step gives them; return True if they had them."""
        return settled(self.states, self.parts, avals)

    def whole(self) -> Callable:
        """Return the function to be compiled.  It refers to no parameter, directly or indirectly."""
        parts, direct = self.parts, self.direct

        def whole(own: list, others: list, grads: list, leaves: list, extra: dict) -> tuple:
            mine, theirs = iter(own), iter(others)
            params = [next(mine if is_direct else theirs) for is_direct in direct]
            return updated(parts, direct, params, grads, leaves, extra)

        return whole

    def _out_shardings(self, arrays: list, others: list, leaves: list) -> Any:
        """Return the results' shardings, as parameters and state have them, unless all are on one device.

        It holds as long as the `Update`: an in-place write keeps a storage's sharding, and `.data =` sets another one.
        """
        placed = [_shardings(values) for values in (arrays, others, leaves)]
        several = any(len(place.device_set) > 1 for places in placed for place in places)
        return tuple(placed) if several else None


def settled(states: list[GroupState], parts: list[Part], avals: list) -> bool:
    """Give each group's state the dtypes of a step's; return True if all had them."""
    place, same = 0, True
    for state, part in zip(states, parts, strict=True):
        end = place + len(state.tensors)
        same &= state.settle(avals[place:end], part.number)
        place = end
    return same


def _shardings(arrays: list) -> list[Any]:
    try:
        return [array.sharding for array in arrays]
    except (AttributeError, jax.errors.ConcretizationTypeError):  # tracers
        return []
