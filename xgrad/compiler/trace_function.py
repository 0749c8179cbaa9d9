"""traced: runs a function on tracers, and makes an `Entry` (a compiled program) of its equations and effects."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..autograd.backward import grad
from ..base.jax_compat import Tracer
from ..base.limits import unseen
from ..config import state
from ..engine.edges import GradientEdge
from ..engine.node import InputMetadata, Node
from ..nn.utils.rnn import PackedSequence
from ..random import default_generator
from ..tensor import from_array
from .backward_node import Target
from .compiled_program import Entry
from .effects import ONCE, RETAINED, SPARSE_GRADIENT, Outputs, has_tensors, is_constant
from .guards import modes
from .guards.closure_guards import Surroundings
from .guards.code import sees_order_of_keywords
from .guards.containers import OfObject
from .guards.frames import Frames
from .guards.guard import MISSING, Container, is_scalar, shown
from .guards.hyperparameters import EscapedError
from .guards.iterators_and_clocks import ADVANCED
from .guards.kinds import holds_tensors
from .guards.match import Match, aval_of, is_array, links_of
from .guards.paths import containers_among, containers_of, nodes_of, orders_among
from .guards.tensor_guard import Expected
from .messages import CHANGED, GIVEN, HOLDS, MODE, USED_ONCE, VALUE_NEEDED, alone, value_error
from .overlay import Inline, Reached, ends, leave
from .program import GRADIENT, split
from .reached_tensors import Again, Trace, input_p
from .shardings import Places, Shardings, put_out
from .stepping import OF_SCHEDULES, SteppingEntry
from .traced import Traced

_TRIES = 8  # attempts while another thread changes tensors that the trace relies on


def traced(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[Any, Any],
    leaves: list[Any],
    tree: Any,
    modes: tuple[Any, ...],
    donate: bool,
    options: dict[Any, Any] | None,
    out: Shardings | None = None,
) -> tuple[Entry, Surroundings] | None:
    """Trace a call; return None if it uses values of another trace, and must run uncompiled.

    With the entry come its surroundings: `kept` are the values that libraries cached meanwhile, (put, object, key,
    value), which the caller puts in place once the entry matches the call; `disown()` takes back new state.

    Raises `TracedValueError` where the function reads a value, `NotImplementedError` for what a program cannot repeat.
    """
    by_value, constants = True, False
    try:
        for _ in range(_TRIES):
            try:
                tracing = _Tracing(function, leaves, tree, modes, by_value, constants, out)
                return tracing.entry(args, kwargs, donate, options)
            except Again:
                by_value = False
            except EscapedError:
                constants = True
            except _MovedError:
                pass
    except Inline:
        return None
    except VALUE_NEEDED as error:
        raise value_error(error) from error
    raise RuntimeError(
        "xgrad.compile: while the function was traced another thread has changed, again and again, whether tensors "
        "that it uses require grad, or have a .grad, hooks or views. Call it once before the threads start, or change "
        "them under a lock."
    )


class _FailedError(Exception):
    """The function raised an error, its cause."""


class _MovedError(Exception):
    """Another thread changed a tensor that the trace relied on."""


class _Tracing:
    def __init__(
        self,
        function: Callable[..., Any],
        leaves: list[Any],
        tree: Any,
        modes: tuple[Any, ...],
        by_value: bool,
        constants: bool,
        out: Shardings | None,
    ) -> None:
        self.function, self.leaves, self.tree, self.modes, self.out = function, leaves, tree, modes, out
        self.objects: list[tuple[int | None, tuple[Any, ...]]] = []  # the ways to objects that the function returns
        self.looked_again = False
        self.placed: list[Any] = []  # results that `out` placed, with their shardings
        self.trace = Trace(by_value)
        self.bare = [i for i, leaf in enumerate(leaves) if is_array(leaf)]
        self.arrays = {i: jnp.asarray(leaves[i]) for i in self.bare}  # before the trace, where it would give a tracer
        self.places = [i for i in range(len(leaves)) if i not in self.bare]
        self.given: list[Container] = []  # containers among the arguments
        self.around = Surroundings([leaves[i] for i in self.places], function, constants)
        self.trace.deferring = not constants
        self.trace.numbers, self.trace.adopt = self.around.numbers, self.around.adopt
        self.frames = Frames(self.around)

    def entry(
        self, args: tuple[Any, ...], kwargs: dict[Any, Any], donate: bool, options: dict[Any, Any] | None
    ) -> tuple[Entry, Surroundings]:
        self.args, self.kwargs = args, kwargs
        nodes = nodes_of((args, kwargs))
        self.packed = any(isinstance(n, PackedSequence) for n in nodes)  # its sizes are read: the tree has them
        self.around.given(nodes)
        try:
            self.frames.start()
            try:
                jaxpr = jax.make_jaxpr(self._body)()
            except _FailedError as failed:
                error = failed.__cause__
                assert error is not None
                raise error from error.__cause__  # without JAX's notes, which an error that passes through it gets
            finally:
                leave(self.trace)
                self.around.restore(self.frames.is_new)
                self.around.forget_memos(lambda value: holds_tensors(value, self._is_made_here))
                for container in self.given:
                    container.restore()
            self.around.progress.warn(self.frames.is_new)
            self.around.finish(self.frames.is_new)
            used = {id(each.used) for each in self.trace.numbers.values() if each.used is not None}
            if not used.issubset(map(id, self.around.tensors)):
                raise EscapedError  # the function has changed numbers, and changed them back
        except BaseException:
            self.around.disown()
            raise
        finally:
            try:
                self.frames.stop()
            except BaseException:  # an interrupt
                self.frames.stop()
                raise
        *self.guards, self.function_guard = *self.around.guards, self.around.root
        if any(isinstance(const, Tracer) for const in jaxpr.consts):
            raise Inline
        program = split(jaxpr, self.count, self.arriving, [root for _, _, root in self.effects.writes])
        places = Places(self.trace)
        places.effects(self.effects, self.outputs.recipes)
        places.results(self.placed, self.outputs.reference, self.outputs.recipes)
        if program.backward is not None:
            program = program._replace(backward=program.backward._replace(places=places.of_targets(self.targets)))
        found = Traced(
            getattr(self.function, "__qualname__", repr(self.function)),
            self._match(),
            self._inputs(),
            program,
            self.outputs.recipes,
            self.effects,
            self.puts,
            self.result,
            self.objects,
            tuple(self.metas),
            tuple(self.targets),
            self.failures,
            (places.operands(program), places.all(len(program.closed.jaxpr.outvars))),
            self.trace.calls_back,
            [(step, args, options) for _, step, args, options in self.trace.steps],
        )
        for container in self.around.containers:
            container.forget()
        return (SteppingEntry if found.steps else Entry)(found, donate, options), self.around

    # ------------------------------------------------------------ the run

    def _body(self) -> list:
        """Run the function, and return the program's results: its tensors, and their backward."""
        try:
            self.frames.watch()
            return self.trace.run(self._leaving)
        finally:
            try:
                self.frames.unwatch()
            except BaseException:  # an interrupt
                self.frames.unwatch()
                raise

    def _leaving(self) -> list:
        args, kwargs = self._arguments()
        known = {id(container.value) for container in self.around.containers}
        self.given = [c for c in containers_among((args, kwargs)) if id(c.value) not in known]
        before = modes.taken()
        numbers, value, failed = self.around.numbers.values(), None, None
        try:
            for each in numbers:
                each.install_stand_ins()
            value = self.function(*args, **kwargs)
        except Exception as error:
            failed = error
        finally:
            for each in numbers:
                each.restore_numbers()
        # C code may have refused a number's stand-in, and `type` does not ask it.
        asks = self.frames.asks_types and self.around.saw_numbers()
        doubtful = numbers and (isinstance(failed, TypeError) or asks)
        schedules = [schedule for schedule, *_ in self.trace.steps]
        unsure = schedules and (self.around.asks(OF_SCHEDULES) or self.frames.is_new(schedules))
        if doubtful or unsure or any(each.escaped for each in numbers):
            raise EscapedError
        if failed is not None:
            try:
                raise _FailedError from failed
            finally:
                failed = None  # its traceback refers to this frame
        self._check_refused()
        mode = modes.left(before)
        if mode is not None:
            raise NotImplementedError(MODE.format(mode))
        if self.out is not None:
            value, self.placed = put_out(self.out, value)
        outputs = self.outputs = Outputs(self.trace, self._outside)
        try:
            self.result = outputs.plan(value)
            self._check_returned(outputs.constants)
            with unseen():  # the function has ended
                self.puts = self._changes(outputs)
                self.effects = outputs.effects()
            pulled = self._pull(outputs)
        finally:
            del outputs.outside  # it refers to this trace: the cycle would keep the arguments alive
        if not self.failures:
            self._check_refused()
        self.count = len(outputs.arrays)
        return [*outputs.arrays, *pulled]

    def _check_refused(self) -> None:
        """Raise the error of an operation that no program can do, which the function may have caught."""
        if self.trace.refused is not None:
            raise _FailedError from self.trace.refused

    def _check_returned(self, values: list) -> None:
        """Raise `NotImplementedError` for a result that can be used only once, or contains tensors of the trace."""
        new = self.frames.is_new([value for value in values if not is_scalar(value)])
        for value in values:
            if id(value) in new and isinstance(value, ONCE):
                raise NotImplementedError(USED_ONCE.format(type(value).__name__))
            if id(value) in new and holds_tensors(value, self._is_made_here):
                raise NotImplementedError(HOLDS.format(type(value).__name__))

    def _is_made_here(self, tensor: Any) -> bool:
        return isinstance(tensor, Tracer) or object.__getattribute__(tensor, "__dict__").get("_trace") is self.trace

    def _arguments(self) -> tuple[tuple, dict]:
        if not self.bare and not self.packed:
            return self.args, self.kwargs
        leaves = list(self.leaves)
        for place in self.bare:
            leaves[place] = self.trace.root(place, self.arrays[place]).tracer
        return jax.tree_util.tree_unflatten(self.tree, leaves)

    def _changes(self, outputs: Outputs) -> list[tuple]:
        """Return the tensors that the function put into containers from outside; each call puts its own there.

        Raises `NotImplementedError` for other values, and for places that a call cannot set.
        """
        advanced = self.around.progress.advanced(self.frames.is_new)
        if advanced is not None:
            raise NotImplementedError(ADVANCED.format(advanced))
        for container in self.given:
            for key, was, now in container.changes():
                raise NotImplementedError(GIVEN.format(container.told(key), shown(was), shown(now)))
        found = []
        if self._lost():
            self._look_again()
            for container, key, was, now in self._lost():
                raise NotImplementedError(CHANGED.format(container.told(key), shown(was), shown(now)))
        for root, container in self._guarded():
            for key, was, now in container.changes():
                plan = None if now is MISSING else outputs.plan(now)
                # A flag, or an attribute not set before, has few values; a counter would be traced for each.
                new = was is MISSING and isinstance(container, OfObject)
                few = new or was is None or was.__class__ is bool or self.trace.stepped
                repeated = plan is not None and (has_tensors(plan) or (few and is_constant(plan)))
                if repeated and container.takes(key):
                    found.append((root, container.path, key, plan))
                elif not self.around.keeps(container, key, was, now):
                    raise NotImplementedError(CHANGED.format(container.told(key), shown(was), shown(now)))
        return found

    def _guarded(self) -> list[tuple[int | None, Container]]:
        """Return (place of the argument, or None for the function's surroundings; a container with a guard)."""
        guards = [*zip(self.places, self.around.guards), (None, self.around.root)]
        return [(root, container) for root, guard in guards for container in containers_of(guard)]

    def _look_again(self) -> None:
        """Make the guards again: a way may lead to an object by names that only libraries use."""
        self.looked_again = True
        self.around.look_again(self.frames.is_new)

    def _outside(self, value: Any) -> int | None:
        """Return the number of an object from outside, whose like a call finds in its arguments or surroundings.

        The numbers are -1, -2, ...: these objects follow the tensors of a call, in reverse order.
        """
        if self.frames.is_new([value]):
            return None
        while True:
            for root, container in self._guarded():
                if container.value is value and Container.takes(container, None):
                    way = root, container.path
                    if way not in self.objects:
                        self.objects.append(way)
                    return -1 - self.objects.index(way)
            if self.looked_again:
                return None
            self._look_again()

    def _lost(self) -> list[tuple[Container, Any, Any, Any]]:
        """Return changes (container, key, before, now) of objects without guards, but for libraries' caches."""
        self.around.kept.clear()
        changes = ((c, *change) for c in self.around.changed(self.frames.is_new) for change in c.changes())
        return [change for change in changes if not self.around.keeps(*change)]

    def _pull(self, outputs: Outputs) -> list:
        """Trace the backward of results with a history; return the gradients of tensors from outside."""
        tensors = outputs.edges
        self.metas = [InputMetadata(tuple(t.shape), t._dtype) for t in tensors]
        self.targets: list[Target] = []
        self.failures: dict[int, Exception] = {}
        self.arriving: list[int | None] = [None] * len(tensors)
        self.arrived = 0
        if not tensors:
            return []
        nodes = self._targets(outputs)
        good = list(range(len(tensors)))
        try:
            results = self._gradients(tensors, good, nodes)
        except Exception:  # some of them may have been through a backward: try each
            for i in good:
                try:
                    self._gradients(tensors, [i], nodes)
                except Exception as error:
                    self.failures[i] = alone(value_error(error) if isinstance(error, VALUE_NEEDED) else error)
            good = [i for i in good if i not in self.failures]
            self.arriving = [None] * len(tensors)
            results = self._gradients(tensors, good, nodes) if good else [None] * len(nodes)
        if good and any(recipe.rest.get("_retains_grad") for recipe in outputs.recipes):
            raise NotImplementedError(RETAINED)
        pairs = [(t, r) for t, r in zip((target for _, target in nodes), results) if r is not None]
        self.targets = [target for target, _ in pairs]
        return [result._read() for _, result in pairs]

    def _gradients(self, tensors: list, which: list[int], nodes: list) -> list:
        arriving = []
        for i in which:
            self.arriving[i] = GRADIENT + self.arrived
            self.arrived += 1
            arriving.append(from_array(input_p.bind(aval=tensors[i]._read().aval, number=self.arriving[i])))
        if not nodes:
            return []
        edges = [GradientEdge(node, 0) for node, _ in nodes]
        roots = [GradientEdge(tensors[i]._grad_fn, tensors[i]._output_nr) for i in which]
        found: Any = grad(roots, edges, arriving, retain_graph=True, allow_unused=True)
        for gradient in found:
            if gradient is not None and gradient._sparse:
                raise NotImplementedError(SPARSE_GRADIENT.format(list(gradient.shape)))
        return list(found)

    def _targets(self, outputs: Outputs) -> list[tuple[Node, Target]]:
        """Return the nodes at which the trace's graph ends, with the tensors whose gradients arrive there."""
        sources: dict[Node, int] = {}
        for i, tensor in enumerate(outputs.edges):
            for node in ends(tensor._grad_fn):
                sources[node] = sources.get(node, 0) | 1 << i
        outside = {id(r.outside): r for r in self.trace.reached if r.outside is not None}
        found = []
        for node, mask in sources.items():
            if node.is_accumulator:
                variable = node.variable
                reference = outputs.known(variable)
                if reference is not None:
                    variable._hooks = None  # they run when the gradient arrives there
                    found.append((node, Target(reference, mask)))
            elif id(node) in outside:
                found.append((node, Target((False, outside[id(node)].number), mask)))
        return found

    # ------------------------------------------------------------ guards for later calls

    def _match(self) -> Match:
        found = self.around.tensors
        places: dict[int, int] = {}
        doubles = [(places[id(t)], i) for i, t in enumerate(found) if places.setdefault(id(t), i) != i]
        expected = []
        owners: dict[int, int] = {}
        ways: dict[int, tuple[str, int]] = {}  # by the id of a tensor: the earlier one that leads to it
        if not all(reached.stays() for reached in self.trace.reached):
            raise _MovedError
        for reached in self.trace.reached:
            owner = owners.setdefault(id(reached.storage), reached.number)
            source = self._source(reached, places, ways)
            expected.append(Expected(reached.tensor, source, owner, reached.grad_read, reached.by_value))
        links = links_of(self.trace.reached, expected)
        arrays = [(place, aval_of(self.leaves[place])) for place in self.bare]
        arguments = list(zip(self.places, self.guards))
        orders = orders_among((self.args, self.kwargs), ())
        if not sees_order_of_keywords(self.function):
            orders = [(path, keys) for path, keys in orders if path != (1,)]
        return Match(
            self.tree, self.modes, orders, arguments, self.function_guard, doubles, len(places), expected, arrays, links
        )

    @staticmethod
    def _source(reached: Reached, places: dict[int, int], ways: dict[int, tuple[str, int]]) -> tuple:
        """Return where later calls find a tensor; add to `ways` what it leads to."""
        tensor, before = reached.tensor, reached.before
        view, grad = before.get("_view"), before.get("_grad")
        found = ways.get(id(tensor), ("held", tensor))
        if view is not None:
            ways.setdefault(id(view.base), ("base", reached.number))
        if grad is not None:
            ways.setdefault(id(grad), ("grad", reached.number))
        return ("found", places[id(tensor)]) if id(tensor) in places else found

    def _inputs(self) -> list[tuple[str, Any]]:
        """Return the source of each root, by its number."""
        found: list[Any] = [None] * len(self.trace.roots)
        for reached in reversed(self.trace.reached):
            found[reached.root.number] = ("tensor", reached.number)
        current = state.generator or default_generator
        for generator, root, _ in self.trace.generators:
            found[root.number] = ("key", None if generator is current else generator)
        for root in self.trace.roots:
            if root.owner.__class__ is int:
                found[root.number] = ("array", root.owner)
        return found
