"""Runtime: runs programs on the tensors of one declared backend; JAX's device `on` does the computing.

    execute(program, operands) ──► place_among(operands).runtime.run      Pendings of the backend, numbers, host scalars
                                        │ does it have operator and dtypes?  no: on the host, or an error
                                        │ is there memory for the results?
                                        ▼
                                   program.run on JAX's device
                                        │ plain arrays out
                                        ▼
                                   Pendings with a value, at this backend's place

Invariant: an array of the backend is one `Pending`, made by `adopt` and by nothing else; so what is alive is counted.
"""

import sys
from collections import Counter
from types import FunctionType
from typing import Any

import jax
import numpy as np

from ..base.declared import DeclaredPlace
from ..base.devices import Devices, settled
from ..base.jax_compat import Tracer
from ..base.platforms import STRIDED, local_devices
from ..batching.batched_kernel import BatchedOperator, batched_operator
from ..dispatch.kernel import kernel_of
from ..dispatch.operator import Operator
from ..errors import BackendError
from ..execution.donation import Writing, run_writing
from ..execution.metrics import FALLBACK
from ..execution.pending import Pending, aval_of, declared_of, place_number, spread
from ..execution.programs.programs import Known
from ..execution.runner import runner
from ..execution.scalars import one
from ..execution.source import lines, outside
from .events import Events, Fallback, Launch
from .lacks import Lacks, kind, results_of
from .launching import Launching
from .lazily import queue_of
from .lowering import is_lowered, lowered
from .memory import Memory
from .shards import beside, gathered, spread_of
from .starts import Constants
from .views import Views


class Runtime:
    """Stands behind the place of a declared backend, and runs its programs."""

    def __init__(self, backend: Any, on: tuple[Any, ...], lacks: Lacks) -> None:
        self.backend: Any = backend
        self.place: DeclaredPlace = DeclaredPlace(backend.name, backend.strides, self, on)
        self.several: bool = len(on) > 1
        self.number: int = place_number(self.place)
        # Arrays of JAX's default device are committed to none: so they meet the small arrays that xgrad makes there.
        self.device: Any = None if on[0] == local_devices()[0] else on[0]
        self.lacks: Lacks = lacks
        self.lazy: bool = backend.execution == "lazy"
        chip = "" if backend.target is None else f" on {backend.target.name}"
        self.memory: Memory = Memory(backend.name, backend.memory, on, chip)
        self.constants: Constants | None = None if backend.runtime_starts else Constants(self)
        special = (
            backend.faults, backend.fuse, backend.products, backend.accumulate, backend.random, self.constants,
        )  # fmt: skip
        plainly = not backend.passes and special == (None,) * len(special)
        launching = None if plainly else Launching(self)
        self.launching: Launching | None = launching
        self.passes: Any = None if launching is None else launching.passes
        lacks.passes = self.passes
        self.reports: tuple[Events, ...] = ()  # those that are open, of all threads
        self.module: Any = None  # `xgrad.NAME`, once the name is registered
        self.stale: bool = False  # True while a view is read again because its base was written
        self.views: Views | None = Views(self) if backend.views else None
        self._ran: set[Any] = set()  # programs and shapes that ran eagerly: they are compiled
        self._shapes: Counter[str] = Counter()  # of those, by name
        self._operators: dict[int, tuple[Operator, Operator]] = {}  # by id: an operator, and the one in its place

    def start(self) -> DeclaredPlace:
        """Return the place.  From now on operators look for declared backends among their operands."""
        if self.backend.strides:
            STRIDED.add(self.backend.name)
        runner.expect_backends(views=self.views is not None)
        return self.place

    def operator(self, op: Operator) -> Operator:
        """Return the operator to run in place of `op`: one with the backend's lowering as its function."""
        function = self.backend.lowerings.get(op.name)
        if function is None:
            return op
        if isinstance(op, BatchedOperator):
            single = op.single.operator
            own = self.operator(single)
            return op if own is single else batched_operator(kernel_of(own, tuple(op.single.statics.values())), op.axes)
        known = self._operators.get(id(op))
        if known is None:
            own = lowered(op, function, self.backend.name) if is_lowered(op, function) else op
            known = self._operators[id(op)] = op, own
            self._operators[id(own)] = own, own
        return known[1]

    # -- running --------------------------------------------------------------------------------------------------

    def run(self, program: Any, operands: Any) -> Any:
        """Run a program; its results are on this backend.  Within a trace of JAX's, return what is traced.

        There the host is out of reach: what the backend lacks is refused, or part of the traced program.
        """
        if any(map(traced, operands)):
            lack = self.backend.fallback == "error" and self.lacks.of(program, operands)
            if lack:
                raise self.refusal(program.operator or program.name, operands, lack)
            return program.run(*map(plain, operands))
        if self.constants is not None:
            program, operands = self.constants.bound(program, operands)
        if self.reports:
            self._count(program, operands)
        lack = self.lacks.of(program, operands)
        if lack:
            return self._elsewhere(program, operands, lack)
        shard = spread_of((*operands,)) if self.several else None
        if program.lazy and shard is None and (queue := queue_of(self)) is not None:
            out = queue.note(program, operands)
            return self.adopted(out, operands, [*operands])
        layout = self._layout(program)
        if shard is None and layout is None:  # else only XLA knows what each device will have
            self._require(program, operands)
        values = [*map(plain, operands)] if program.reads else [*operands]
        if shard is not None and self.device is not None:
            values = gathered(values, shard)
        if program.__class__ is not Known:
            self._launch(program, values)
        launching = None if program.__class__ is Known else self.launching
        out = program.run(*values) if launching is None else launching.run(program, values)
        return self.adopted(out, operands, values, layout)

    def write(self, out: list[Any], box: list[Any], alone: bool, program_of: Any, operands: tuple[Any, ...]) -> None:
        """Put `program_of(donate)(box[0], *operands)` into `out`; `alone`: nothing else refers to the array.

        A backend without donation writes a copy.
        """
        whole = box[0]
        if whole.apart and self.views is not None:
            self.views.written(whole)
        shard = spread_of(whole) if self.several else None
        pinned = () if shard is None else (shard.sharding,)  # the result's
        del shard  # it would be one more reference
        program = program_of(False, *pinned)
        # A queue donates what nothing refers to when it is evaluated.
        mine = alone and whole.owned and (bool(pinned) or queue_of(self) is None)
        if self.several and not pinned and spread_of(operands) is not None:
            mine = False  # the program runs on all of their devices
        if mine and not self.backend.donation:
            for events in self.reports:
                events.copies.add(whole.nbytes)
        known = program.__class__ is not FunctionType  # else the new value is computed already
        launching = self.launching
        if known and self.constants is not None:
            program, (_, *given) = self.constants.bound(program, (whole, *operands))
            operands = (*given,)
        copies = not self.backend.donation or (launching is not None and launching.verify)
        if not known or not mine or copies or self.lacks.of(program, (whole, *operands)):
            out.append(self._as_before(program(whole, *operands), whole))
            return
        values, writing = [*map(plain, operands)], program_of(True, *pinned)
        if self.constants is not None:
            writing = self.constants.writing(program, writing)
        if writing.__class__ is not Writing or any(map(traced, values)):
            out.append(self._as_before(program(whole, *operands), whole))
            return
        if pinned and self.device is not None:
            values = gathered(values, whole.value)
        made, inside = [], [plain(whole)]
        if self.reports:
            self._count(program, (whole, *operands))
        self._launch(program, [inside[0], *values], (0,))
        whole.value = None
        try:
            if launching is None:
                run_writing(writing, made, inside, tuple(values))
            else:
                launching.write(program, writing, made, inside, tuple(values))
        finally:  # no call in this block
            whole.value = made[0] if made else inside[0]  # None: it is lost
            if made:  # after an interrupt too: then the version rises
                out[:] = (whole,)

    def _as_before(self, new: Any, whole: Any) -> Any:
        """Return what a write gave, on the devices of what it wrote."""
        if not self.several or new.__class__ is not Pending or new.sharding.is_equivalent_to(whole.sharding, new.ndim):
            return new
        return self.laid_out(new, whole.sharding.layout)

    # -- what it lacks --------------------------------------------------------------------------------------------

    def _elsewhere(self, program: Any, operands: Any, lack: str) -> Any:
        """Run a program on the host because the backend lacks something; or refuse it."""
        if self.backend.fallback == "error":
            raise self.refusal(program.operator or program.name, operands, lack)
        reason = f"'{program.operator or program.name}', which {FALLBACK}"
        values = [plain(x, reason) for x in operands]
        if self.launching is not None:
            self.launching.transfer(2)
        shards = self.several and spread_of((*operands,)) is not None
        if self.device is not None or shards:
            values = jax.device_put(values, jax.local_devices(backend="cpu")[0])
        out = program.run(*values)
        if self.reports:
            arrays = [x for x in operands if declared_of(x) is not None]
            size = sum(x.nbytes for x in jax.tree.leaves([arrays, out], is_leaf=_is_pending) if hasattr(x, "nbytes"))
            structs = jax.tree.map(_struct, values)
            key, launch = (program, tuple(map(kind, values))), Launch(program.name, program.run, structs, False)
            for events in self.reports:
                events.fallback(Fallback(program.operator or program.name, lack, here()), size)
                if program.lazy:
                    events.on_host.setdefault(key, [launch, 0])[1] += 1
        layout = (lambda shape: beside(shape, operands)) if shards else self._layout(program)
        return self.adopted(out, operands, values, layout)

    # -- counting -------------------------------------------------------------------------------------------------

    def _count(self, program: Any, operands: Any) -> None:
        """Count a program that is asked for, in the reports that are open."""
        stale, self.stale = self.stale, False
        if self._is_free(program):
            return
        for events in self.reports:
            events.operators[program.name] += 1
            if program.role == "read":
                moved = sum(aval.size * aval.dtype.itemsize for aval in results_of(program, operands))
                (events.refreshes if stale else events.reads).add(moved)
            elif program.role in ("write", "adjoint"):
                found = events.writes if program.role == "write" else events.adjoints
                found.add(getattr(operands[0], "nbytes", 0))

    def _is_free(self, program: Any) -> bool:
        """Return True for the reading of a view in place: by a device that has strides, or a view that is free."""
        return program.role == "read" and (
            self.backend.strides or (self.views is not None and getattr(program, "unbound", program) in self.views.free)
        )

    def _launch(self, program: Any, values: list[Any], donate: tuple[int, ...] = ()) -> None:
        """Count a program that runs now; an eager backend compiles it for each choice of shapes."""
        if self._is_free(program):
            return
        shard = spread_of((*values,)) if self.several else None
        shardings = None if shard is None else tuple(map(_sharding, values))
        key = program, tuple(map(kind, values)) if program.lazy else (), shardings
        new, why = key not in self._ran, "for other shapes, dtypes or arguments"
        if new:
            self._ran.add(key)
            self._shapes[program.name] += 1
            if self.constants is not None and self.constants.compiled(key[1:], [program]):
                why = "for other starts"
            elif self._shapes[program.name] == 1:
                why = "for the first time"
        if not self.reports or not program.lazy:
            return
        structs, reads = jax.tree.map(_struct, values), program.role == "read"
        jitted = program.run if self.passes is None else self.passes.jitted(program)
        launch = Launch(program.name, jitted, structs, False, shard is not None, donate, reads)
        for events in self.reports:
            events.launch((*key, donate), launch)
            if new:
                events.programs.append(f"{program.name} {why}, at {here()}")

    def launched(self, fused: Any, reasons: list[str]) -> None:
        """Count a program of a queue that ran, and why it was compiled."""
        for part in [fused] if fused.segments is None else [each.program for each in fused.segments.parts]:
            donate, count = tuple([i + 1 for i in part.donated]), len(part.programs)
            name = f"{count} operations" if count > 1 else part.programs[0].name
            launch = Launch(name, part.jitted, [one(), *part.structs], count > 1, False, donate, part.reads)
            for events in self.reports:
                events.launch(part, launch)
        for events in self.reports:
            events.programs += reasons

    def settle(self) -> None:
        """Run what waits in this thread."""
        if (queue := queue_of(self)) is not None:
            queue.evaluate("a report")

    def refusal(self, name: str, operands: Any, lack: str) -> BackendError:
        """Return the error for an operator that is computed nowhere."""
        lowering = ", or a lowering of the operator" if "opera" in lack else ""
        shown = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in operands if x.__class__ is Pending)
        return BackendError(
            f"The operator '{name}' is not implemented for the backend '{self.backend.name}', which lacks {lack} "
            f"({shown or 'no operands'}, at {here()}). Compute it on the host, x.cpu(), and move the result back; or "
            f"declare fallback='host', which does so by itself{lowering}."
        )

    def _require(self, program: Any, operands: Any) -> None:
        """Raise `OutOfMemoryError` if memory does not suffice for a program's results."""
        if self.memory.budget is not None:
            size = sum(aval.size * aval.dtype.itemsize for aval in results_of(program, operands))
            if self.memory.short_of(size):
                self.memory.require(size, f"the results of '{program.name}'", here())

    def _layout(self, program: Any) -> Any:
        """Return the shardings, by shape, that a program without operands gives its results; None for one device."""
        where = program.place
        return None if where is None or where.layout is None else lambda shape: settled(Devices(where), shape).layout

    # -- arrays ---------------------------------------------------------------------------------------------------

    def adopted(self, out: Any, operands: Any, values: list[Any], layout: Any = None) -> Any:
        """Return a program's results as arrays of this backend; a result that is an operand is that operand again.

        `layout`: the sharding of JAX's that they get, or a function of their shape that returns it.
        """
        if isinstance(out, tuple):
            parts = [self.adopted(part, operands, values, layout) for part in out]
            return tuple(parts) if out.__class__ is tuple else out.__class__(*parts)
        if not isinstance(out, jax.Array) or isinstance(out, Tracer):
            return out
        for operand, value in zip(operands, values):
            if value is out and operand.__class__ is Pending:
                return operand
        return self.adopt(out, layout(out.shape) if callable(layout) else layout)

    def adopt(self, array: Any, layout: Any = None) -> Pending:
        """Return a plain array, which xgrad made, as one of this backend; with the sharding `layout`, if there is one.

        Else it is on the first device, or as XLA has divided it.
        """
        if layout is not None:
            array = jax.device_put(array, layout)
        elif self.device is not None and not (self.several and spread(array)):
            array = jax.device_put(array, self.device)
        p = Pending(None, 0, aval_of(array.shape, array.dtype, array.aval.weak_type))
        p.value, p.place = array, self.number
        if self.lacks.stores is not None:
            self.lacks.require_stored(array.dtype, here())
        self.memory.admit(array, here)  # a program whose results were not known before
        self.memory.hold(p)
        return p

    def laid_out(self, array: Any, layout: Any) -> Any:
        """Return an array of this backend with a sharding of JAX's; None: whole, on the first device."""
        value = plain(array)
        if isinstance(value, Tracer):
            return value
        if layout is None:
            if not spread(value):
                return array
            host = jax.device_put(value, self.place.behind[0])
            value = jax.numpy.asarray(np.asarray(host)) if self.device is None else host  # committed to none
        elif spread(value) and value.sharding.is_equivalent_to(layout, value.ndim):
            return array
        p = self.adopt(value, layout)
        p.owned = False  # `device_put` may share the memory
        return p

    def received(self, array: Any, layout: Any = None) -> Any:
        """Return an array of the host, or of another device, as one of this backend."""
        if isinstance(array, Tracer):
            return array
        if self.backend.fallback == "error":
            self.lacks.require_stored(np.dtype(array.dtype), here())
        if self.launching is not None:
            self.launching.transfer()
        committed = isinstance(array, jax.Array) and array.committed and (self.device is None or spread(array))
        if committed and layout is None:
            array = np.asarray(array)  # committed to none, as all arrays of this backend
        p = self.adopt(jax.numpy.asarray(array), layout)
        for events in self.reports:
            events.received.add(p.nbytes)
        p.owned = False  # it may share the memory of what it was made of
        return p

    @staticmethod
    def line() -> str:
        """Return the user's line that runs now."""
        return here()

    def sent(self, array: Any) -> Any:
        """Return the plain array behind one of this backend, for the host or another device."""
        if self.launching is not None:
            self.launching.transfer()
        for events in self.reports:
            events.sent.add(array.nbytes)
        return array


def here() -> str:
    """Return the user's line."""
    return lines(outside(sys._getframe(1)))


def plain(x: Any, reason: str = "a program that runs at once") -> Any:
    """Return an operand as JAX takes it: the array behind a Pending, which is evaluated for that reason."""
    if x.__class__ is Pending:
        return x.value if x.value is not None else x.evaluated(reason)
    if x.__class__ is tuple:
        return tuple([plain(part, reason) for part in x])
    return x


def traced(x: Any) -> bool:
    """Return True for a tracer, or a tuple with one."""
    return any(map(traced, x)) if x.__class__ is tuple else isinstance(x, Tracer)


def _struct(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=_sharding(x)) if hasattr(x, "shape") else x


def _sharding(x: Any) -> Any:
    """Return the sharding of an operand on several devices; None for any other."""
    return x.sharding if spread(x) else None


def _is_pending(x: Any) -> bool:
    return x.__class__ is Pending
