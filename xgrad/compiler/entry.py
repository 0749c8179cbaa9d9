"""Entry: one program of a compiled function, and how it is run.

    match ──► tensors, roots ──► program ──► new roots ──► storages
                                         └─► results, .grad, keys of generators, values of containers

Invariant: a root whose buffer the program uses up is held by nobody else at that moment.  It is taken out of its
storage under the lock, its reference count is looked at, and it is copied if anybody could still read it.
"""

from contextlib import ExitStack
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..config import state
from ..engine.node import InputMetadata
from ..errors import PlacementError
from ..ops import pytrees
from ..random import default_generator
from ..tensor import Tensor, blank
from ..views.storage import VersionCounter, sole, writing
from .effects import Effects, Making, Recipe
from .history import CompiledFunctionBackward, Target
from .matching import Match
from .paths import locate
from .program import Program, one

_copy = jax.jit(jnp.copy)


class Traced(NamedTuple):
    """What a trace gave, with no tracer in it."""

    name: str
    match: Match
    inputs: list[tuple[str, Any]]  # ("tensor", its number), ("array", its place), ("key", a generator or None)
    program: Program
    recipes: list[Recipe]
    effects: Effects
    puts: list[tuple[int | None, tuple, Any, tuple]]  # (place of the argument, path, key, plan of the value)
    result: tuple
    metas: tuple[InputMetadata, ...]  # of the results with a history
    targets: tuple[Target, ...]  # where their gradients go
    failures: dict[int, Exception]  # what a backward of one of them is to raise
    places: tuple[tuple | None, list | None]  # how the program's operands and results are sharded


class Entry:
    """A program with what is around it."""

    def __init__(self, traced: Traced, donate: bool, options: dict | None) -> None:
        self.match = traced.match
        self.puts = bool(traced.puts)  # whether it puts tensors into containers
        self._traced = traced
        program, effects = traced.program, traced.effects
        used = {number: place for place, number in enumerate(program.inputs)}
        kept = () if program.backward is None else program.backward.inputs
        # (tensor, array that its storage gets, place of its root among the operands or None)
        self._writes = [
            (i, array, used.get(root) if donate and root not in kept else None) for i, array, root in effects.writes
        ]
        donated = tuple(sorted(place for _, _, place in self._writes if place is not None))
        self.jitted = program.jitted(donated, options, *traced.places)
        self._keys_alone: Any = None
        self._executable: Any = None  # compiled by the first call
        self._constants: list | None = None  # on a mesh, what the program takes behind its inputs
        self._simple = _simple(traced.recipes)
        self._generators = [which for kind, which in traced.inputs if kind == "key"]
        # Which tensors the operands are, where they are nothing else, and nothing is left to differentiate.
        only_tensors = all(kind == "tensor" for kind, _ in traced.inputs) and not traced.targets
        self._order = [traced.inputs[number][1] for number in program.inputs] if only_tensors else None
        self._affects = traced.puts or any(effects._replace(writes=[], keys=[], versions=[]))
        # Where what is returned is a list or tuple of all that is made, in order: which of them.
        kind, what = traced.result
        self._bare = {"list": list, "tuple": tuple}.get(kind)
        if self._bare is not None and what != [("made", i) for i in range(len(traced.recipes))]:
            self._bare = None

    def check_unwritten(self, tensors: list, copies: list) -> None:
        """Raise `PlacementError` if the function changes one of the tensors that are copies of what the caller gave."""
        effects, known = self._traced.effects, {id(copy) for copy in copies}
        changed = [i for i, *_ in (*effects.writes, *effects.grads, *effects.data, *effects.histories)]
        if any(id(tensors[i]) in known for i in changed):
            raise PlacementError(
                "xgrad.compile: the function changes an argument (or its .grad) that has no place yet, and that "
                "in_shardings puts on the mesh as a copy. Move it there before: x = x.to(...)."
            )

    # ------------------------------------------------------------ running

    def run(self, tensors: list, arrays: list, leaves: list) -> Any:
        """Run the program, and do what the function does."""
        traced = self._traced
        node = CompiledFunctionBackward(traced, tensors) if traced.metas else None
        if self._order is not None:
            operands = [arrays[which] for which in self._order]
            arrays.clear()  # what nobody else holds may be used up
            out = self._run_on(tensors, operands)
        else:
            differentiable = node if traced.targets else None
            if self._generators:
                out = self._run_drawing(tensors, arrays, leaves, differentiable)
            else:
                out = self._run(tensors, self._values(arrays, leaves, ()), differentiable)
        if self._simple is not None:
            made = []
            for number, edge, requires_grad in self._simple:
                tensor = blank(Tensor)
                tensor._array = out[number]
                if edge is not None:
                    tensor._grad_fn, tensor._output_nr, tensor._requires_grad = node, edge, True
                elif requires_grad:
                    tensor._requires_grad = True
                made.append(tensor)
        else:
            making = Making(out, tensors, node)
            for recipe in traced.recipes:
                making.make(recipe)
            made = making.made
        if self._affects:
            self._affect(tensors, made, out, node, leaves)
        if node is not None and traced.targets:
            node.keep(out, made)
        return self._bare(made) if self._bare is not None else built(traced.result, tensors, made, out)

    def _run_drawing(self, tensors: list, arrays: list, leaves: list, node: Any) -> Any:
        """Run with generators locked: their keys go in, and come out moved on."""
        with ExitStack() as locked:
            keys = []
            for which in self._generators:
                generator = (which or state.generator or default_generator)._here()
                locked.enter_context(generator._lock)
                keys.append(generator)
            values = self._values(arrays, leaves, keys)
            before = {i: values[i] for i, (kind, _) in enumerate(self._traced.inputs) if kind == "key"}
            out = self._run(tensors, values, node)
            moved_on = self._traced.effects.keys
            new = [out[number] for _, number in moved_on]
            if any(k.committed for k in new) and not any(k.committed for k in before.values()):
                new = self._uncommitted(before, new)
            for (which, _), key in zip(moved_on, new):
                keys[which]._key = key
        return out

    def _uncommitted(self, before: dict[int, Any], new: list) -> list:
        """Keys that no device was asked for: one of a mesh would take each later draw there."""
        if self._keys_alone is None:
            self._keys_alone = self._traced.program.alone([number for _, number in self._traced.effects.keys])
        if self._keys_alone is None or not before.keys() >= {*self._keys_alone[1]}:
            return [jax.device_put(np.asarray(key)) for key in new]  # seeded inside, from an array
        program, inputs = self._keys_alone
        return program(*[before[number] for number in inputs])

    def _values(self, arrays: list, leaves: list, keys: Any) -> list:
        """The inputs, by their numbers."""
        values, waiting = [], iter(keys)
        for kind, which in self._traced.inputs:
            if kind == "tensor":
                values.append(arrays[which])
            else:
                values.append(leaves[which] if kind == "array" else next(waiting)._started())
        arrays.clear()  # what nobody else holds may be used up
        return values

    def _run(self, tensors: list, values: list, node: Any) -> Any:
        if node is not None:
            node.take(values)
        operands = [values[number] for number in self._traced.program.inputs]
        values.clear()
        return self._run_on(tensors, operands)

    def _run_on(self, tensors: list, operands: list) -> Any:
        program = self._traced.program
        if program.with_one:
            operands.append(one())
        operands += program.arrays
        out = self._run_writing(tensors, operands) if self._writes else self._call(operands)
        versions = self._traced.effects.versions
        if versions:
            with writing:
                for i, rise in versions:
                    counter = tensors[i]._version_counter
                    if counter.__class__ is VersionCounter:
                        counter.value += rise
                    else:
                        tensors[i]._bump(rise)
        return out

    def _run_writing(self, tensors: list, operands: list) -> Any:
        """Run the program on operands of which it uses up those that it replaces."""
        taken = []
        with writing:
            try:
                for i, _, place in self._writes:
                    if place is None:
                        continue
                    holder = tensors[i]._storage
                    operands[place] = None
                    if holder is None:
                        holder = tensors[i]
                        owned = holder._owned
                    else:
                        owned = holder.owned
                    operands[place] = holder._array
                    holder._array = None
                    taken.append((holder, place))
                    if not (owned and sole(operands, place)):
                        taken[-1] = (holder, operands[place])
                        operands[place] = _copy(operands[place])
                out = self._call(operands)
            except BaseException:
                for holder, array in taken:
                    holder._array = operands[array] if array.__class__ is int else array
                raise
            del taken
            for i, array, _ in self._writes:
                storage = tensors[i]._storage
                if storage is None:
                    tensors[i]._array, tensors[i]._owned = out[array], True
                else:
                    storage.replace(out[array])
        return out

    def _affect(self, tensors: list, made: list, out: Any, node: Any, leaves: list) -> None:
        """What the function does to tensors from outside, but for their values."""
        effects = self._traced.effects
        for i, reference in effects.data:
            tensors[i].data = _get(reference, tensors, made)
        for i, reference in effects.grads:
            tensors[i]._grad = None if reference is None else _get(reference, tensors, made)
        for i, flag in effects.flags:
            tensors[i]._requires_grad = flag
        for i, edge in effects.histories:
            tensors[i]._grad_fn = None if edge is None else node
            tensors[i]._output_nr, tensors[i]._requires_grad = edge or 0, edge is not None
        for place, path, key, plan in self._traced.puts:
            match = self.match
            guard = match.function if place is None else dict(match.arguments)[place]
            root = guard.value if place is None else leaves[place]
            container, value = locate(guard, root, path)
            container.put(value, key, built(plan, tensors, made, out))

    def _operands(self, arrays: list, leaves: list) -> list:
        """What the program would be run on."""
        keys = [(which or state.generator or default_generator)._here() for which in self._generators]
        values = self._values(list(arrays), leaves, keys)
        program = self._traced.program
        return [*[values[n] for n in program.inputs], *([one()] if program.with_one else []), *program.arrays]

    def _call(self, operands: list) -> Any:
        """Run the program.  `jax.jit` would compile it again for operands that were put on their device by name."""
        executable = self._executable
        if executable is None:
            executable = self._compile(operands)
        if self._constants is not None:
            operands[-len(self._constants) :] = self._constants
        return executable(*operands)

    def _compile(self, operands: list) -> Any:
        """Make the executable; on a mesh, put what is the same in each call where the program wants it, once."""
        executable = self.jitted.lower(*operands).compile()
        program = self._traced.program
        constants = [*([one()] if program.with_one else []), *program.arrays]
        places = executable.input_shardings[0][len(program.inputs) :]
        if any(place is not None and len(place.device_set) > 1 for place in places):  # None: it takes it for unused
            self._constants = [jax.device_put(c, place) for c, place in zip(constants, places, strict=True)]
        self._executable = executable
        return executable

    def lower(self, arrays: list, leaves: list) -> Any:
        """The program as a `jax.stages.Lowered`."""
        return self.jitted.lower(*self._operands(arrays, leaves))

    def compiled(self, arrays: list, leaves: list) -> Any:
        """The program as a `jax.stages.Compiled`."""
        return self._executable or self._compile(self._operands(arrays, leaves))

    def tried(self, arrays: list, leaves: list) -> Any:
        """What the program gives, without doing anything with it."""
        return self._traced.program.jitted((), None, self._traced.places[0])(*self._operands(arrays, leaves))

    def shapes(self) -> list[tuple | None]:
        """The shapes of what is returned, leaf by leaf as in a pytree; None of what a call does not make."""
        outvars = self._traced.program.closed.jaxpr.outvars
        shapes = [tuple(outvars[r.root].aval.shape) if r.chain is None else r.chain.shape for r in self._traced.recipes]
        made = [blank(Tensor) for _ in shapes]
        given = [blank(Tensor) for _ in self.match.expected]
        result = built(self._traced.result, given, made, [None] * len(outvars))
        places = {id(tensor): shape for tensor, shape in zip(made, shapes)}
        return [places.get(id(leaf)) for leaf in pytrees.leaves(result)]


def _simple(recipes: list[Recipe]) -> list[tuple] | None:
    """(array, edge, requires_grad) of each, if all tensors are bare new arrays; else None."""
    for r in recipes:
        if r.kind is not Tensor or r.given is not None or r.chain is not None or r.view or r.grad or r.rest:
            return None
        if r.version or r.given_counter is not None:
            return None
    if len({r.root for r in recipes}) != len(recipes):
        return None
    return [(r.root, r.edge, r.requires_grad) for r in recipes]


def _get(reference: tuple[bool, int], tensors: list, made: list) -> Tensor:
    return made[reference[1]] if reference[0] else tensors[reference[1]]


def built(plan: tuple[str, Any], tensors: list, made: list, out: Any) -> Any:
    """A value of its plan (`Outputs.plan`)."""
    kind, what = plan
    if kind == "made":
        return made[what]
    if kind == "given":
        return tensors[what]
    if kind == "constant":
        return what.copy() if isinstance(what, np.ndarray) else what  # which the caller may change
    if kind == "array":
        return out[what]
    if kind == "dict":
        return {key: built(item, tensors, made, out) for key, item in what.items()}
    items = [built(item, tensors, made, out) for item in (what[1] if kind == "tree" else what)]
    return what[0].unflatten(items) if kind == "tree" else tuple(items) if kind == "tuple" else items
