"""Update: runs one step of an optax optimizer as one XLA program that writes parameters and state, for optax.py.

    parameters, state ─┐                        ┌─► parameters, state
                       ├─► tx.update of groups ─┤
    gradients, extra ──┘                        └─► updates of parameters that are views, or share a storage

Parameters that are views, or share a storage, are read, and their updates added one after the other, as PyTorch's
in-place operators would do.
"""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ..base.limits import checked
from ..execution.pending import Pending
from ..execution.runner import runner
from ..tensor import Tensor
from ..views.transaction import Transaction
from ._optax_program import Program
from ._optax_state import GroupState, Layout

_MOST = 64  # programs of one `Update`
_NO_EXTRA = jax.tree.structure({})
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
        self.others = [p for p, direct in zip(params, self.direct) if not direct]
        self.own = [p for p, direct in zip(params, self.direct) if direct]
        self.written = [*self.own, *[tensor for state in states for tensor in state.tensors]]
        self.holders: list[Any] = [t if t._storage is None else t._storage for t in self.written]
        self.stored: list[Any] = [t._storage for t in self.written if t._storage is not None]
        self.programs: dict[Any, Program] = {}

    def holds(self) -> bool:
        """Return True if the parameters still have the same storages and chains."""
        params = self.params
        return all(map(is_, [p._storage for p in params], self.storages)) and (
            not (self.stored or self.others) or all(map(is_, [p._chain for p in params], self.chains))
        )

    def run(self, grads: list, extra: dict[str, Any], functions: dict[str, Callable]) -> None:
        """Do the step."""
        further, tree = jax.tree.flatten(extra) if extra else ([], _NO_EXTRA)
        read = [*[p._read() for p in self.others], *grads, *further]
        program = self._program(tree, read, functions)
        if not (functions or self.others) and program.write.note(self.written, read):
            return
        runner.evaluate(read, holders=self.holders)
        donating: Any = program.donating or program.placed([*self._arrays(), *read[: len(self.others)]])
        if functions:
            donating = program.with_functions(donating, self._arrays(), read, functions)
        (_Apart if self.others else _Step)(self).run(donating, read)

    def _arrays(self) -> list[Any]:
        return [tensor._held() for tensor in self.written]

    def _program(self, tree: Any, read: list[Any], functions: dict[str, Callable]) -> Program:
        """Return the program of steps with such arguments."""
        key = tree, *functions
        program = self.programs.get(key)
        if program is None:
            if len(self.programs) >= _MOST:
                self.programs.clear()
            program = Program(self._step(tree))
            while True:
                avals = program.shapes([*map(_like, self._arrays())], [*map(_like, read)], functions)
                if settled(self.states, self.parts, avals[len(self.own) : len(self.written)]):
                    break
            self.programs[key] = program
        return program

    def _step(self, tree: Any) -> Callable[[list, list, dict], list]:
        """Return the function to be compiled.  It refers to no parameter, directly or indirectly."""
        parts, direct = self.parts, self.direct
        own, others, gradients = len(self.own), len(self.others), len(self.params)

        def step(written: list, read: list, functions: dict) -> list:
            mine, theirs = iter(written[:own]), iter(read[:others])
            params = [next(mine if is_direct else theirs) for is_direct in direct]
            extra = {**jax.tree.unflatten(tree, read[others + gradients :]), **functions}
            grads = read[others : others + gradients]
            values, updates, states = updated(parts, direct, params, grads, written[own:], extra)
            return [*values, *states, *updates]

        return step


class _Step(Transaction):
    """The write of one step: of parameters, whose versions rise, and of the state."""

    def __init__(self, update: Update) -> None:
        super().__init__(update.holders, update.stored, [p._version_counter for p in update.own])


class _Apart(_Step):
    """A step with parameters that get their updates added, once the others and the state are written."""

    def __init__(self, update: Update) -> None:
        super().__init__(update)
        self._others = update.others
        self._raised: list[int] = []  # the others' versions, once their updates are added

    def take(self) -> list[Any]:
        given = super().take()
        versions: dict[int, int] = dict(zip(map(id, self.counters), self.versions))
        for param in self._others:
            counter: Any = param._version_counter
            versions.setdefault(id(counter), counter.value)
            versions[id(counter)] += 1
            self._raised.append(versions[id(counter)])
        return given

    def values(self, out: list[Any]) -> list[Any]:
        return out[: len(self.holders)]

    def settle(self) -> None:
        super().settle()
        if self.done:
            for param, update, version in zip(self._others, self.done[0][len(self.holders) :], self._raised):
                if param._version_counter.value < version:  # pyright: ignore[reportOptionalMemberAccess]
                    param._write(_added(param._read(), update))


def _like(array: Any) -> Any:
    return array.aval.struct if array.__class__ is Pending else array


def settled(states: list[GroupState], parts: list[Part], avals: list) -> bool:
    """Give each group's state the dtypes of a step's; return True if all had them."""
    place, same = 0, True
    for state, part in zip(states, parts, strict=True):
        end = place + len(state.tensors)
        same &= state.settle(avals[place:end], part.number)
        place = end
    return same
