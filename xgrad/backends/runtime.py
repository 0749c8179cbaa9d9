"""Runtime: runs compiled programs on the tensors of one `xgrad.Backend`; JAX's device `on` does the computing.

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

from collections import Counter
from types import FunctionType
from typing import Any

import jax
import numpy as np

from ..base.declared import DeclaredPlace
from ..base.devices import Devices, settled
from ..base.dtypes import x64_enabled
from ..base.jax_compat import Tracer
from ..base.platforms import STRIDED, local_devices
from ..batching.batched_kernel import BatchedOperator, batched_operator
from ..dispatch.kernel import kernel_of
from ..dispatch.operator import Operator
from ..errors import BackendError
from ..execution.donation import Writing, run_writing
from ..execution.metrics import FALLBACK
from ..execution.pending import Aval, Pending, aval_of, declared_of, place_number, spread
from ..execution.programs.programs import Known
from ..execution.runner import runner
from ..execution.shapes import AT_ONCE, avals_of
from .aliasing import policy
from .clock import TO_DEVICE, TO_HOST, Clock, clock_of
from .counting import Counting, here, kinds, struct
from .events import FROM, TO, Events, Fallback, Launch, Transfer
from .launching import Launching
from .lazily import queue_of, queues
from .lowering import is_lowered, lowered
from .memory import Memory
from .operands import plain, traced
from .padding import Padding
from .shards import beside, gathered, spread_of
from .starts import Constants
from .views import Views
from .without import moves
from .without_hlo import HloFilter


class Runtime(Counting):
    """Runs the programs on tensors of one `xgrad.Backend`, which makes it."""

    def __init__(
        self,
        backend: Any,
        on: tuple[Any, ...],
        missing: frozenset[str],
        dtypes: frozenset[Any] | None,
        stores: frozenset[Any] | None,
    ) -> None:
        self.backend: Any = backend
        self.place: DeclaredPlace = DeclaredPlace(backend.name, backend.strides, self, on)
        self.several: bool = len(on) > 1
        self.number: int = place_number(self.place)
        # Arrays of JAX's default device are committed to none: so they meet the small arrays that xgrad makes there.
        self.device: Any = None if on[0] == local_devices()[0] else on[0]
        self.missing: frozenset[str] = missing
        self.no_complex: bool = "complex" in backend.without
        self.dtypes: frozenset[Any] | None = dtypes
        self.stores: frozenset[Any] | None = stores
        self.lazy: bool = backend.execution == "lazy"
        chip = "" if backend.target is None else f" on {backend.target.name}"
        tiles = None if backend.cost is None else backend.cost.tiles
        self.memory: Memory = Memory(backend.name, backend.memory, on, chip, tiles)
        self.constants: Constants | None = None if backend.runtime_starts else Constants(self)
        special = (
            backend.faults, backend.fuse, backend.products, backend.accumulate, backend.random, self.constants,
        )  # fmt: skip
        plainly = not backend.passes and special == (None,) * len(special)
        self.launching: Launching | None = None if plainly else Launching(self)
        self.padding: Padding | None = None if backend.shapes is None else Padding(self, backend.shapes)
        self.rounds: bool = (backend.products, backend.accumulate) != (None, None)
        self.reports: tuple[Events, ...] = ()  # those that are open, of all threads
        self.clock: Clock | None = clock_of(self)  # None without a Cost: nothing is noted in its order
        self.copying: bool = False  # True while a write runs that copies its storage, for want of donation
        self.module: Any = None  # `xgrad.NAME`, once the name is registered
        self.stale: bool = False  # True while a view is read again because its base was written
        self.views: Views | None = Views(self) if backend.views else None
        self.aliasing: Any = policy(self)
        self.hlo: HloFilter | None = HloFilter(backend.without_hlo) if backend.without_hlo else None
        self._ran: set[Any] = set()  # programs and shapes that ran eagerly: they are compiled
        self._shapes: Counter[str] = Counter()  # of those, by name
        self._operators: dict[int, tuple[Operator, Operator]] = {}  # by id: an operator, and the one in its place

    def start(self) -> DeclaredPlace:
        """Return the place.  From now on operators look for an `xgrad.Backend` among their operands."""
        if self.backend.strides:
            STRIDED.add(self.backend.name)
        runner.expect_backends(views=self.views is not None)
        if self.aliasing is not None:
            self.aliasing.start()
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
        if self.reports and is_lowered(op, function):
            for events in self.reports:
                events.lowered.add(op.name)
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
            lack = self.backend.fallback == "error" and self.lacks(program, operands)
            if lack:
                raise self.refusal(program.operator or program.name, operands, lack, _derivative(program))
            return program.run(*map(plain, operands))
        if self.aliasing is not None and (known := self.aliasing.known(program, operands)) is not None:
            return known
        if self.constants is not None:
            program, operands = self.constants.bound(program, operands)
        if self.reports:
            self.count(program, operands)
        lack = self.lacks(program, operands)
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
        if program.__class__ is Known:
            out = program.run(*values)
        elif self.padding is None or shard is not None:
            out = self.run_now(program, values, operands)
        else:
            out = self.padding.run(program, values, operands)
        return self.adopted(out, operands, values, layout)

    def run_now(self, program: Any, values: list[Any], operands: Any) -> Any:
        """Launch a program on the arrays behind the operands, and count it."""
        self._launch(program, values, operands)
        return program.run(*values) if self.launching is None else self.launching.run(program, values)

    def write(
        self,
        out: list[Any],
        box: list[Any],
        alone: bool,
        program_of: Any,
        operands: tuple[Any, ...],
        holder: Any = None,
    ) -> None:
        """Put `program_of(donate)(box[0], *operands)` into `out`; `alone`: only `holder` refers to the array.

        `holder`: a tensor or a storage; None for a gradient, which belongs to none.

        A backend without donation writes a copy.
        """
        whole = box[0]
        if whole.apart and self.views is not None:
            self.views.written(whole)
        shard = spread_of(whole) if self.several else None
        pinned = () if shard is None else (shard.sharding,)  # the result's
        del shard  # it would be one more reference
        program = program_of(False, *pinned)
        if self.aliasing is not None and holder is not None:
            del whole  # it would be one more reference
            alone = self.aliasing.write(out, box, holder, alone, program, operands)
            if out:
                return
            whole = box[0]
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
        if not known or not mine or copies or self.lacks(program, (whole, *operands)):
            self.copying = mine and not self.backend.donation
            try:
                out.append(self._as_before(program(whole, *operands), whole))
            finally:
                self.copying = False
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
            self.count(program, (whole, *operands))
        self._launch(program, [inside[0], *values], (whole, *operands), writing)
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

    def lacks(self, program: Any, operands: Any) -> str:
        """Return what the backend lacks to run a program, in words; "" if it has all."""
        if program.operator in self.missing:
            return f"the operator '{program.operator}'"
        if self.hlo is not None and program.lazy:
            passes = None if self.launching is None else self.launching.passes
            lack = self.hlo.lack(program, (x64_enabled(), *kinds(operands)), passes)
            if lack:
                return lack
        if self.dtypes is None and not self.no_complex:
            return ""
        found = [(x.dtype, "") for x in jax.tree.leaves([*operands], is_leaf=_is_pending) if declared_of(x) is not None]
        results = self._avals(program, operands)
        found += [(aval.dtype, ", which its result has") for aval in results]
        for dtype, of in found:
            stored = self.stores is not None and dtype in self.stores
            if self._computes(dtype) or (stored and moves(program, operands, results)):
                continue
            if self.no_complex and dtype.kind == "c":
                return "complex numbers"
            return f"the dtype {dtype.name}{of}" + ", and which it stores only" * stored
        return ""

    def _computes(self, dtype: Any) -> bool:
        return (self.dtypes is None or dtype in self.dtypes) and not (self.no_complex and dtype.kind == "c")

    def _elsewhere(self, program: Any, operands: Any, lack: str) -> Any:
        """Run a program on the host because the backend lacks something; or refuse it."""
        if self.backend.fallback == "error":
            raise self.refusal(program.operator or program.name, operands, lack, _derivative(program))
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
            structs = jax.tree.map(struct, values)
            key, launch = (program, kinds(values)), Launch(program.name, program.run, structs, False)
            for events in self.reports:
                events.fallback(Fallback(_derivative(program) or program.operator or program.name, lack, here()), size)
                if program.lazy:
                    events.on_host.setdefault(key, [launch, 0])[1] += 1
            if self.clock is not None:
                self.clock.fallen(key if program.lazy else None, program.name, arrays, size)
        layout = (lambda shape: beside(shape, operands)) if shards else self._layout(program)
        return self.adopted(out, operands, values, layout)

    def settle(self) -> None:
        """Run what waits in this thread."""
        if (queue := queues().get(self.place)) is not None:
            queue.evaluate("a report")

    def refusal(self, name: str, operands: Any, lack: str, node: str = "") -> BackendError:
        """Return the error for an operator that is computed nowhere; `node`: of its derivative, the name."""
        lowering = ", or a lowering of the operator" if "opera" in lack else ""
        lowering += ", a `jax.custom_vjp`, which brings its own derivative" if lowering and node else ""
        shown = ", ".join(f"{x.dtype.name}{list(x.shape)}" for x in operands if x.__class__ is Pending)
        return BackendError(
            f"The operator '{name}'{node and f', in its derivative {node},'} is not implemented for the backend "
            f"'{self.backend.name}', which lacks {lack} "
            f"({shown or 'no operands'}, at {here()}). Compute it on the host, x.cpu(), and move the result back; or "
            f"declare fallback='host', which does so by itself{lowering}."
        )

    def _avals(self, program: Any, operands: Any) -> tuple[Aval, ...]:
        """Return what a program will give, none if only running it shows that."""
        if not program.lazy:
            return ()
        key = (x64_enabled(), *kinds(operands))
        found = program.avals.get(key) or avals_of(program, key)
        return () if found is AT_ONCE else found if found.__class__ is tuple else (found,)

    def _require(self, program: Any, operands: Any) -> None:
        """Raise `OutOfMemoryError` if memory does not suffice for a program's results."""
        if self.memory.budget is not None:
            size = sum(map(self.memory.size_of, self._avals(program, operands)))
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
        if self.stores is not None:
            self._storable(array)
        self.memory.admit(array, here)  # a program whose results were not known before
        self.memory.hold(p, self.reports)
        if self.clock is not None and self.reports:
            self.clock.made(p)
        return p

    def laid_out(self, array: Any, layout: Any) -> Any:
        """Return an array of this backend with a sharding of JAX's; None: whole, on the first device."""
        value = plain(array)
        if isinstance(value, Tracer):
            return value
        if layout is None:
            if not spread(value):
                return array
            if self.reports:
                self._resharded(array, value, None)
            host = jax.device_put(value, self.place.behind[0])
            value = jax.numpy.asarray(np.asarray(host)) if self.device is None else host  # committed to none
        elif spread(value) and value.sharding.is_equivalent_to(layout, value.ndim):
            return array
        if self.reports:
            self._resharded(array, value, layout)
        p = self.adopt(value, layout)
        p.owned = False  # `device_put` may share the memory
        return p

    def received(self, array: Any, layout: Any = None) -> Any:
        """Return an array of the host, or of another device, as one of this backend."""
        if isinstance(array, Tracer):
            return array
        if self.backend.fallback == "error":
            self._storable(array)
        if self.launching is not None:
            self.launching.transfer()
        if self.clock is not None and self.reports:
            self.clock.transfer(TO_DEVICE, (), array.nbytes)
        committed = isinstance(array, jax.Array) and array.committed and (self.device is None or spread(array))
        if committed and layout is None:
            array = np.asarray(array)  # committed to none, as all arrays of this backend
        p = self.adopt(jax.numpy.asarray(array), layout)
        self._transfer(FROM, "a tensor", p.nbytes)
        p.owned = False  # it may share the memory of what it was made of
        return p

    def _storable(self, array: Any) -> None:
        dtype = array.dtype
        if not self._computes(dtype) and dtype not in (self.stores or ()):
            raise BackendError(
                f"A tensor of {dtype.name} cannot be on the backend '{self.backend.name}', which lacks the dtype "
                f"{dtype.name} (at {here()}). Give it another one, dtype=... or x.to(dtype); or declare "
                f"stores=['{dtype.name}'], with which the backend stores, casts and moves it."
            )

    @staticmethod
    def line() -> str:
        """Return the user's line that runs now."""
        return here()

    def sent(self, array: Any, why: str = "a value is read", of: Any = None) -> Any:
        """Return the plain array behind one of this backend, `of`, for the host or another device."""
        if self.clock is not None and self.reports:
            self.clock.transfer(TO_HOST, (of,), array.nbytes)
        if self.launching is not None:
            self.launching.transfer()
        self._transfer(TO, why, array.nbytes)
        return array

    def _transfer(self, direction: str, why: str, size: int) -> None:
        if self.reports:
            transfer = Transfer(direction, why, here())
            for events in self.reports:
                events.transfer(transfer, size)


def _derivative(program: Any) -> str:
    """Return the name of the node whose program it is; "" for the program of an operator itself."""
    return program.name if program.operator and program.name.endswith("Backward0") else ""


def _is_pending(x: Any) -> bool:
    return x.__class__ is Pending
