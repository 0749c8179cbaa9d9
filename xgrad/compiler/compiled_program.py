"""Entry: holds a compiled program of an `xgrad.compile` function; fetches its operands, runs it, stores its results.

    match ──► tensors, roots ──► program ──► new roots ──► storages
                                         └─► results, .grad, keys of generators, values of containers

A *root* is an array from outside that the program uses: a storage's, a generator's key, or a bare array argument.

Invariant: a root that the program donates has no other reference at that moment.  The entry takes it out of its
storage under the lock, reads its reference count, and copies it if anything else could still read it.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..base.jax_compat import caches
from ..config import state
from ..errors import PlacementError
from ..execution.donation import besides, complete
from ..execution.pending import quietly
from ..execution.runner import runner
from ..random import default_generator
from ..tensor import Tensor, blank
from ..views.storage import VersionCounter, writing
from ..views.transaction import Transaction
from .backward_node import CompiledFunctionBackward
from .effects import Making, Recipe
from .generated_run import straight
from .guards.guard import Container
from .guards.paths import locate
from .in_segments import InSegments, in_segments
from .program import one
from .results import Results
from .traced import Traced

_TRACKED = {VersionCounter}


class Entry:
    """A compiled program, and the steps around it: fetch operands, run, store results."""

    instead = (
        "xgrad.compile(..., donate=False) keeps what it writes until the new values are there, in twice the memory"
    )

    def __init__(self, traced: Traced, donate: bool, options: dict[Any, Any] | None) -> None:
        self.name: str = f"the program of {traced.name}"
        self.match: Any = traced.match
        self.puts: bool = bool(traced.puts)  # True if the program puts tensors into containers
        self._traced = traced
        program, effects = traced.program, traced.effects
        self.on_mesh = traced.places[1] is not None
        # A kernel may write tensors, in a thread of XLA's: the program runs outside of the lock, and donates nothing.
        self._calls_back = traced.calls_back and not self.on_mesh
        donate = donate and not self._calls_back
        used = {number: place for place, number in enumerate(program.inputs)}
        kept = () if program.backward is None else program.backward.inputs
        # (tensor, result that its storage gets, place of its root among the operands if donated, else None)
        writes = [
            (i, array, used.get(root) if donate and root not in kept else None) for i, array, root in effects.writes
        ]
        writes.sort(key=lambda write: write[2] is None)  # the transaction takes the first ones
        self.written: list[int] = [i for i, *_ in writes]
        self.new: list[int] = [array for _, array, _ in writes]
        self.places: list[int] = [place for *_, place in writes if place is not None]
        # Roots that are written but not donated.  They are read under the lock: an earlier read could miss a write.
        self._kept = [i for i, _, root in effects.writes if root in used and (not donate or root in kept)]
        self.counted: list[int] = [i for i, _ in effects.versions]
        self.rises: Any = [rise for _, rise in effects.versions]
        self._commits = bool(writes or effects.versions)
        # If the program writes, its results stay here, under the lock, until the storages have them.
        self.results: Any = Results() if self._commits else None
        # `jax.jit` takes no shardings with `Results`: on a mesh C code calls the program, and extends `Results`.
        into = None if self.on_mesh or self._calls_back else self.results
        self.jitted: Any = program.jitted(tuple(sorted(self.places)), options, *traced.places, into)
        self._ran: Any = None  # JAX's caches after the first call: now it runs the program without going through Python
        self._need = 0  # the bytes that the program needs besides its operands
        self._keys_alone: Any = None
        self._executable: Any = None  # compiled by the first call
        self._segments: InSegments | None = None  # the executable, if it is in parts;
        self._whole: Any = None  # then this is compiled to be looked at
        self._may_be_cut = options is None and not self.on_mesh and not self._calls_back
        self._instead: Any = None  # a function of the operands that runs in the program's place
        self._constants: list | None = None  # on a mesh: operands behind the inputs, on its devices
        self._simple = _simple(traced.recipes)
        self._generators = [which for kind, which in traced.inputs if kind == "key"]
        # The tensors whose arrays are the operands, if all operands are tensors' and no gradient goes on outside.
        only_tensors = all(kind == "tensor" for kind, _ in traced.inputs) and not traced.targets
        self._order = [traced.inputs[number][1] for number in program.inputs] if only_tensors else None
        self._affects = bool(traced.puts) or any(effects._replace(writes=[], versions=[]))
        # The class of the result if it is a list or tuple of all tensors that are made, in order; else None.
        kind, what = traced.result
        self._bare = {"list": list, "tuple": tuple}.get(kind)
        if self._bare is not None and what != [("made", i) for i in range(len(traced.recipes))]:
            self._bare = None
        self._straight: Callable[[list, list], Any] | None = None  # if the program changes nothing

    @property
    def program(self) -> Any:
        """The program, as it was traced."""
        return self._traced.program

    def check_unwritten(self, tensors: list[Any], copies: list[Any]) -> None:
        """Raise `PlacementError` if the function changes a tensor that `in_shardings` copied from the caller's."""
        effects, known = self._traced.effects, {id(copy) for copy in copies}
        changed = [i for i, *_ in (*effects.writes, *effects.grads, *effects.data, *effects.histories)]
        if any(id(tensors[i]) in known for i in changed):
            raise PlacementError(
                "xgrad.compile: the function changes an argument (or its .grad) that has no place yet, and that "
                "in_shardings puts on the mesh as a copy. Move it there before: x = x.to(...)."
            )

    # ------------------------------------------------------------ running

    def run(self, tensors: list[Any], arrays: list[Any], leaves: list[Any]) -> Any:
        """Run the program and repeat the function's effects: all of them, or none, wherever an interrupt arrives."""
        if not runner.plain:
            runner.evaluate(arrays, leaves)
        if self._traced.objects:  # `built` finds them from the end
            objects = [self._located(place, path, leaves)[1] for place, path in self._traced.objects]
            tensors = [*tensors, *objects[::-1]]
        if self._straight is not None:
            return self._straight(tensors, arrays)
        traced = self._traced
        node = CompiledFunctionBackward(traced, tensors) if traced.metas else None
        if self._generators:
            return self._run_drawing([], tensors, arrays, leaves, node)
        run = self._run if self._kept else self._run_on
        return run(tensors, arrays, leaves, (), node)

    def _run_drawing(self, keys: list, tensors: list, arrays: list, leaves: list, node: Any) -> Any:
        """Run with the generators locked: their keys are operands, and get their next values.

        Recursion, one `with` for each generator: between two blocks of an ExitStack an interrupt could arrive.
        """
        which = self._generators[len(keys)]
        generator = (which or state.generator or default_generator)._here()
        with generator._lock:
            keys = [*keys, generator]
            if len(keys) < len(self._generators):
                return self._run_drawing(keys, tensors, arrays, leaves, node)
            return self._run(tensors, arrays, leaves, keys, node)

    def _run(self, tensors: list, arrays: list, leaves: list, keys: Any, node: Any) -> Any:
        if self._kept:
            with writing:
                for i in self._kept:
                    arrays[i] = tensors[i]._held()
                if not self._calls_back:
                    return self._run_on(tensors, arrays, leaves, keys, node)
        return self._run_on(tensors, arrays, leaves, keys, node)

    def _run_on(self, tensors: list, arrays: list, leaves: list, keys: Any, node: Any) -> Any:
        program, before = self._traced.program, {}
        if self._order is not None:
            operands = [*map(arrays.__getitem__, self._order)]
            arrays.clear()  # an array without another reference may be donated
        else:
            values = self._values(arrays, leaves, keys)
            if keys:
                before = {i: values[i] for i, (kind, _) in enumerate(self._traced.inputs) if kind == "key"}
            if node is not None and self._traced.targets:
                node.take(values)
            operands = [values[number] for number in program.inputs]
            del values
        runner.evaluate(operands)
        if program.with_one:
            operands.append(one())
        operands += program.arrays
        done: list = []  # the program's results, once the storages have theirs
        try:
            if self._commits:
                self._run_writing(tensors, operands, done)
            else:
                done.append(self._call(operands))
            return self._finish(tensors, leaves, keys, before, node, done)
        except BaseException:
            if done and self._affects:
                with_all = self._finish, tensors, leaves, keys, before, node, done
                try:
                    complete(*with_all)
                except BaseException:
                    complete(*with_all)
            raise

    def _finish(self, tensors: list, leaves: list, keys: Any, before: dict, node: Any, done: list) -> Any:
        """Do the steps that follow the storages' update.  May be repeated."""
        traced, out = self._traced, done[0]
        if keys:
            self._move_on(keys, before, out)
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
        if self._bare is not None:
            return self._bare(made)
        return built(traced.result, tensors, made, out)

    def _move_on(self, keys: list, before: dict[int, Any], out: Any) -> None:
        """Give the generators their new keys."""
        moved_on = self._traced.effects.keys
        new = [out[number] for _, number in moved_on]
        if any(k.committed for k in new) and not any(k.committed for k in before.values()):
            new = self._uncommitted(before, new)
        for (which, _), key in zip(moved_on, new):
            keys[which]._key = key

    def _uncommitted(self, before: dict[int, Any], new: list) -> list:
        """Return new keys that are committed to no device: with a mesh's key each later draw would go there."""
        if self._keys_alone is None:
            self._keys_alone = self._traced.program.alone([number for _, number in self._traced.effects.keys])
        if self._keys_alone is None or not before.keys() >= {*self._keys_alone[1]}:
            return [jax.device_put(np.asarray(key)) for key in new]  # the function seeded the generator from an array
        program, inputs = self._keys_alone
        return program(*[before[number] for number in inputs])

    def _values(self, arrays: list, leaves: list, keys: Any) -> list:
        """Return the roots' arrays, by the roots' numbers."""
        values, waiting = [], iter(keys)
        for kind, which in self._traced.inputs:
            if kind == "tensor":
                values.append(arrays[which])
            else:
                values.append(leaves[which] if kind == "array" else next(waiting)._started())
        arrays.clear()  # an array without another reference may be donated
        return values

    def _run_writing(self, tensors: list, operands: list, done: list) -> None:
        """Run the program.  It donates the operands that it replaces; storages get their new values."""
        if self._calls_back:
            operands = [self._call(operands)]
        with writing:
            if self._executable is None:
                self._compile(operands)  # first: while it compiles, all arrays are in their storages
            if self._segments is not None:
                self._ran = caches() if self._segments.has_run(operands) else None
            self.results.clear()
            for place in self.places:
                operands[place] = None  # an array without another reference may be donated
            _Write(self, tensors, done).run(self, operands)

    def needs(self, arrays: list) -> tuple[int, bool]:
        """Return the bytes that the program needs besides its operands, and True if it ran before."""
        return self._need, self._ran is caches()

    def call(self, given: list, operands: list, results: list) -> None:
        """Run the program, which appends its results to `results`."""
        if self._calls_back:
            results.append(operands[0])  # it has run
            return
        for place, array in zip(self.places, given):
            operands[place] = array
        self._call(operands)

    def has_run(self, written: Any, operands: list) -> None:
        """Note that from now on JAX runs the program without going through Python."""
        self._ran = caches()
        if self._segments is not None:
            self._segments.note_run(operands)
            self._need = self._segments.besides()

    def renew(self) -> None:
        """Compile the program again before the next call: JAX would run it through Python from now on."""
        self._executable = None

    def _affect(self, tensors: list, made: list, out: Any, node: Any, leaves: list) -> None:
        """Repeat the function's effects on tensors from outside, except on their values."""
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
            container, value = self._located(place, path, leaves)
            container.put(value, key, built(plan, tensors, made, out))

    def _located(self, place: int | None, path: tuple[Any, ...], leaves: list) -> tuple[Container, Any]:
        """Return the guard of a container, and this call's container."""
        match = self.match
        guard = match.function if place is None else dict(match.arguments)[place]
        return locate(guard, guard.value if place is None else leaves[place], path)

    def _operands(self, arrays: list, leaves: list) -> list:
        """Return the operands that the program would get."""
        keys = [(which or state.generator or default_generator)._here() for which in self._generators]
        values = self._values(list(arrays), leaves, keys)
        program = self._traced.program
        return [*[quietly(values[n]) for n in program.inputs], *([one()] if program.with_one else []), *program.arrays]

    def _call(self, operands: list) -> Any:
        """Run the executable.  `jax.jit` would compile again for operands that were put on their device explicitly."""
        executable = self._executable
        if executable is None:
            executable = self._compile(operands)
        if self._constants is not None:
            operands[-len(self._constants) :] = self._constants
        if self._commits and (self._segments or self.on_mesh):
            found = self._segments.begin(operands) if self._segments else map(self.jitted, *zip(operands))
            return self.results.extend(found)
        return executable(*operands)

    def _lowered(self, operands: list) -> Any:
        lowered = self.jitted.lower(*operands)
        if self.results:
            self.results.clear()  # the tracers
        return lowered

    def _compile(self, operands: list) -> Any:
        """Compile the program; on a mesh, put the operands that are the same in each call on its devices, once."""
        if self._instead is not None:
            self._executable = self._run_instead
            return self._executable
        program = self._traced.program
        self._segments = in_segments(program.closed, dict(zip(self.places, self.new))) if self._may_be_cut else None
        executable: Any = self._segments or self._lowered(operands).compile()
        constants = [*([one()] if program.with_one else []), *program.arrays]
        places = () if self._segments else executable.input_shardings[0][len(program.inputs) :]
        if any(place is not None and len(place.device_set) > 1 for place in places):  # None: unused
            self._constants = [jax.device_put(c, place) for c, place in zip(constants, places, strict=True)]
        self._need, self._ran = 0 if self._segments else besides(executable), None
        self._executable = executable
        pure = not (self._commits or self._affects or self._generators or self.on_mesh or self._constants)
        if pure and self._order is not None and self._simple is not None:
            self._straight = straight(self._traced, executable, self._order, constants, self._simple)
        return executable

    def run_instead(self, function: Callable[..., list[Any]]) -> None:
        """Let each call run this function of the operands, which donates nothing, and not the program."""
        Entry.__init__(self, self._traced, False, None)
        self._instead = function

    def _run_instead(self, *operands: Any) -> Any:
        out = self._instead(*operands)
        if self.results is None or self._calls_back:
            return out
        self.results.append(out)
        return self.results

    def lower(self, arrays: list[Any], leaves: list[Any]) -> Any:
        """Return the program as a `jax.stages.Lowered`."""
        with writing:
            return self._lowered(self._operands(arrays, leaves))

    def compiled(self, arrays: list[Any], leaves: list[Any]) -> Any:
        """Return the program as a `jax.stages.Compiled`."""
        with writing:
            given = self._operands(arrays, leaves)
            found = self._executable or self._compile(given)
            if self._segments is not None:
                found = self._whole = self._whole or self._lowered(given).compile()
            return found


class _Write(Transaction):
    """The write of one call of a compiled function."""

    def __init__(self, entry: Entry, tensors: list[Any], done: list[Any]) -> None:
        holders, storages = [], []
        for i in entry.written:
            holder = tensors[i]._storage
            if holder is None:
                holder = tensors[i]
            else:
                storages.append(holder)
            holders.append(holder)
        counters, rises = [tensors[i]._version_counter for i in entry.counted], entry.rises
        if not {*map(type, counters)} <= _TRACKED:
            counters, rises = self._tracked(entry, tensors)
        count = len(entry.places)
        taken = holders if count == len(holders) else holders[:count]
        runner.evaluate(holders=taken)
        super().__init__(holders, storages, counters, rises, taken)
        self.results, self.done, self._new = entry.results, done, entry.new

    @staticmethod
    def _tracked(entry: Entry, tensors: list[Any]) -> tuple[list[VersionCounter], list[int]]:
        """Return counters, made if there were none, and by how much they rise."""
        counters, rises = [], []
        for i, rise in zip(entry.counted, entry.rises):
            tensor = tensors[i]
            if tensor._version_counter is None:
                tensor._bump(0)
            if tensor._version_counter.__class__ is VersionCounter:
                counters.append(tensor._version_counter)
                rises.append(rise)
            else:
                tensor._bump(rise)  # an inference tensor's, on which nothing relies
        return counters, rises

    def values(self, out: Any) -> list[Any]:
        return [*map(out.__getitem__, self._new)]


def _simple(recipes: list[Recipe]) -> list[tuple] | None:
    """Return (array, edge, requires_grad) of each tensor if all are bare new arrays, else None.

    So is the only tensor of a storage: `loss.detach()` alone has the one that the trace made for both.
    """
    for r in recipes:
        if r.kind is not Tensor or r.given is not None or r.view or r.grad or r.rest or r.parts:
            return None
        if r.version or r.given_counter is not None or (r.chain is not None and not r.chain.is_root):
            return None
    counters = [r.counter for r in recipes if r.counter >= 0]
    if len({r.root for r in recipes}) != len(recipes) or len({*counters}) != len(counters):
        return None
    return [(r.root, r.edge, r.requires_grad) for r in recipes]


def _get(reference: tuple[bool, int], tensors: list, made: list) -> Tensor:
    return made[reference[1]] if reference[0] else tensors[reference[1]]


def built(plan: tuple[str, Any], tensors: list[Any], made: list[Any], out: Any) -> Any:
    """Build a value from its description, which `Outputs.plan` returned."""
    kind, what = plan
    if kind == "made":
        return made[what]
    if kind == "given":
        return tensors[what]
    if kind == "constant":
        return what.copy() if isinstance(what, np.ndarray) else what  # the caller may change the copy
    if kind == "array":
        return out[what]
    if kind == "dict":
        return {key: built(item, tensors, made, out) for key, item in what.items()}
    items = [built(item, tensors, made, out) for item in (what[1] if kind == "tree" else what)]
    return what[0].unflatten(items) if kind == "tree" else tuple(items) if kind == "tuple" else items
