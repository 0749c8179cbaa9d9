"""xgrad.autograd.profiler: records which operators and nodes run, how often, and how long the host is busy.

A recorder is an operator mode (dispatch/operator_modes.py), which is asked about each operator, and the engine reports
each node to it (engine/anomaly.py, `watched`).  Invariant: while none is on, operators and the engine do nothing extra.

Only XLA knows device time: JAX dispatches and returns.  So each operator, node and range is also a
`jax.profiler.TraceAnnotation`, which XProf and Perfetto show beside the device's kernels when `jax.profiler.trace` is
on; and a `jax.named_scope`, so that what is recorded under `jax.jit` has its name in the program's metadata.

PyTorch: torch/autograd/profiler.py.
"""

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager
from typing import Any, Self

import jax

from ...base.missing import close_namespace as _close_namespace
from ...config import state
from ...dispatch.operator import Operator
from ...dispatch.operator_modes import OperatorMode, public_name
from ...engine.node import MAX_SEQUENCE_NR, Node
from ...execution.runner import runner
from ...tensor import Tensor
from .events import EventList, FunctionEvent, FunctionEventAvg, Interval

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "emit_nvtx", "profile", "record_function"]


class Recorder(OperatorMode):
    """A `with` block that records operators, views, nodes and ranges; nested ones all record."""

    whole = True
    record_shapes = False
    _library = ""  # the prefix of an operator's name
    _shown = "Profiler"
    enabled: bool
    entered = False

    def __enter__(self) -> Self:
        if not self.enabled:
            self._will_restore()
            return self
        if self.entered:
            raise RuntimeError(f"{self._shown} context manager is not reentrant")
        self.entered: bool = True
        runner.ask()
        self._will_restore("operator_mode", "recorder")
        self._outer, self._around = state.operator_mode, state.recorder
        state.operator_mode = state.recorder = self
        return self

    def begin(self, name: str, number: int, inputs: Iterable[Any], kind: str) -> Any:
        """Record that something begins; return an event for `end`."""

    def end(self, event: Any, number: int) -> None:
        """Record that an event is over, and the sequence number of its node, -1 for none."""

    @contextmanager
    def _span(
        self, name: str, number: int, inputs: Iterable, kind: str, made: Callable = int, needs: int = -1
    ) -> Iterator[list]:
        """Record a block under the expected sequence number; `made(first item of the yielded list)` is the true one.

        `made` is `int` if they are the same.  `needs`: a mask of the gradients that a node computes, -1 for all.
        """
        shown = name if number < 0 else f"{name}, seq = {number}"
        if self.record_shapes and kind != "range":
            shown += f", sizes = {_shapes(inputs)}"
        with jax.profiler.TraceAnnotation(shown), jax.named_scope(shown.replace("/", "|")):
            event = self.begin(name, number, inputs, kind)
            box: list = []
            try:
                yield box
            finally:
                self.end(event, number if made is int else made(box[0]) if box else -1)

    # An operator mode's methods: each calls the mode around this one.

    def run(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        with self._span(self._library + public_name(op), _foreseen(args), args, "forward", number_of) as box:
            box.append(out := super().run(op, args, statics))
        return out

    def write(self, op: Operator, args: tuple[Any, ...], statics: tuple[Any, ...]) -> Any:
        number = _foreseen(args)
        if number >= 0 and isinstance(args[0], Tensor) and args[0]._view is not None:
            number += 1  # a CopySlices comes first: the operator's own node is inside of it
        with self._span(f"{self._library}{public_name(op)}_", number, args, "forward", number_of_write) as box:
            box.append(out := super().write(op, args, statics))
        return out

    def see(self, name: str, tensor: Any, make: Callable[..., Any]) -> Any:
        with self._span(self._library + name, _foreseen((tensor,)), (tensor,), "forward", number_of) as box:
            out = super().see(name, tensor, make)
            if out is not None:
                box.append(out)
        return out

    def _everywhere(
        self, name: str, number: int, inputs: Iterable, kind: str, needs: int = -1
    ) -> AbstractContextManager:
        stack, recorder = ExitStack(), self
        while recorder is not None:
            stack.enter_context(recorder._span(name, number, inputs, kind, needs=needs))
            recorder = recorder._around
        return stack

    def node(self, node: Node, inputs: list[Any], needs: int) -> AbstractContextManager[Any]:
        """Return the block in which the engine evaluates `node`, with its hooks."""
        number = -1 if node.sequence_nr == MAX_SEQUENCE_NR else int(node.sequence_nr)
        return self._everywhere(node.name(), number, inputs, "backward", needs)

    def block(self, name: str, args: str | None) -> AbstractContextManager[Any]:
        """Return a block that the user named."""
        return self._everywhere(name, -1, () if args is None else (args,), "range")

    def function(self, cls: Any, args: tuple[Any, ...], run: Callable[..., Any]) -> Any:
        """Record the forward of a custom Function."""
        with self._everywhere(cls.__name__, _foreseen(args), args, "forward"):
            return run()


def _foreseen(args: Iterable) -> int:
    """Return the sequence number of this thread's next node, -1 if nothing is recorded of these arguments."""
    if not (state.grad_enabled and any(isinstance(a, Tensor) and a.requires_grad for a in args)):
        return -1
    return state.sequence_nr()


def number_of(out: Any) -> int:
    """Return the sequence number of the node that recorded a result."""
    for result in out if isinstance(out, (tuple, list)) else (out,):
        if isinstance(result, Tensor) and result._grad_fn is not None:
            return int(result._grad_fn.sequence_nr)
    return -1


def number_of_write(out: Any) -> int:
    if not (state.grad_enabled and isinstance(out, Tensor) and out.requires_grad):
        return -1
    return number_of(out if out._view is None else out._view.base)


def _shapes(inputs: Iterable) -> list[list[int]]:
    return [list(a.shape) if hasattr(a, "shape") else [] for a in inputs]


class emit_nvtx(Recorder):
    """Within the block, name each operator and each node for JAX's profiler, as "mul, seq = 12".

    The node that an operator makes, and that backward runs, has the same number: "MulBackward0, seq = 12".  Look at
    both in XProf or Perfetto, with `jax.profiler.trace` around the block.  The names are the ones of PyTorch's block of
    this name; they are written into JAX's profiler, on each device, and not into NVTX.

    `enabled=False`: the block does nothing.  `record_shapes`: names end in ", sizes = [[2, 3], []]", the arguments'.

    Source: PyTorch's `torch.autograd.profiler.emit_nvtx`.

    >>> import jax, xgrad
    >>> def loss(array):
    ...     with xgrad.autograd.profiler.emit_nvtx():
    ...         return (xgrad.as_tensor(array) ** 2).sum()._read()
    >>> "pow" in jax.jit(loss).lower(jax.numpy.ones(3)).as_text(debug_info=True)
    True
    """

    _shown = "NVTX annotation"
    record_shapes: bool

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes


class profile(Recorder):
    """Within the block, count operators, views, nodes of backward and named ranges, and take the host's time of each.

    Operators have PyTorch's names for them ("aten::mul", "aten::add_"), and nodes theirs ("MulBackward0"): one event
    each, with the node's hooks in it.  `sequence_nr` of an operator's event is the number of the node that it made.  A
    composite shows as the operators that it is made of, an operator as one.

    Times are the host's: compilation, where the operator is new to a shape, and dispatch.  What the device does,
    `jax.profiler.trace` shows, under the same names.  The block records what its own thread does.

    `enabled=False`: the block does nothing.  `record_shapes`: events have `input_shapes`, by which
    `key_averages(group_by_input_shape=True)` distinguishes them.  `use_cuda`, `use_device`, `with_flops`,
    `profile_memory` and `use_cpu=False`: warned about, and without effect.  Other options (`use_kineto`, `with_stack`,
    ...) are taken where PyTorch takes them: there is one profiler, and it needs no Kineto.  Raises `RuntimeError` when
    it is entered a second time, and when asked for results before its end.

    Source: PyTorch's `torch.autograd.profiler.profile`.

    >>> import xgrad
    >>> x = xgrad.ones(2, 2, requires_grad=True)
    >>> with xgrad.autograd.profiler.profile() as prof:
    ...     with xgrad.autograd.profiler.record_function("model"):
    ...         y = (x * x).sum()
    ...     y.backward()
    >>> [(e.name, e.cpu_parent and e.cpu_parent.name) for e in prof.function_events if e.name in ("aten::mul", "model")]
    [('model', None), ('aten::mul', 'model')]
    >>> {e.key: e.count for e in prof.key_averages()}["MulBackward0"]
    1
    >>> table = prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10)
    >>> table.splitlines()[1].split()[:4]
    ['Name', 'Self', 'CPU', '%']
    """

    _library = "aten::"
    record_shapes: bool

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Callable[..., Any] | None = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: Any = None,
    ) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes
        self._open: list[FunctionEvent] = []
        self._events = EventList()
        if enabled and (use_cuda or use_device not in (None, "cpu")):
            warnings.warn(
                "autograd.profiler takes the host's time only: the device's is shown by jax.profiler.trace, under the "
                "same names",
                stacklevel=2,
            )
        unmeasured = [name for name, asked in (("with_flops", with_flops), ("profile_memory", profile_memory)) if asked]
        if enabled and unmeasured:
            warnings.warn(
                f"autograd.profiler: {' and '.join(unmeasured)} has no effect: XLA's programs report their cost, by "
                "jax.jit(f).lower(x).compile().cost_analysis() and memory_analysis()",
                stacklevel=2,
            )
        if enabled and not use_cpu:
            warnings.warn(
                "autograd.profiler: use_cpu=False has no effect: the host's time is all it takes", stacklevel=2
            )

    def __enter__(self) -> Self:
        self._start: int = self._start if self.entered else time.perf_counter_ns()
        return super().__enter__()

    def _close(self) -> Callable[[], Any]:
        return map(self._ended, map(vars(state).update, iter(self._before.pop, None))).__next__

    def _ended(self, _: Any) -> None:
        if self._open:  # a range that ends after the profiler
            self.end(self._open[0], -1)

    @property
    def finished(self) -> bool:
        """True once the block has ended."""
        return self.entered and not self._before

    def begin(self, name: str, number: int, inputs: Iterable[Any], kind: str) -> FunctionEvent:
        parent = self._open[-1] if self._open else None
        shapes = _shapes(inputs) if self.record_shapes else []
        now = self._now()
        event = FunctionEvent(
            len(self._events), name, threading.get_ident(), now, now, kind=kind, sequence_nr=number,
            input_shapes=shapes, parent=parent,
        )  # fmt: skip
        if kind == "range":
            event.args = "".join(inputs)
        if not self.finished:
            self._events.append(event)
            self._open.append(event)
        return event

    def end(self, event: FunctionEvent, number: int) -> None:
        now, kind = self._now(), event.kind
        if event not in self._open:
            return
        last = None
        while last is not event:
            last = self._open.pop()
            last.time_range = Interval(last.time_range.start, now)
        if kind == "forward":
            event.sequence_nr = number

    def _now(self) -> float:
        return (time.perf_counter_ns() - self._start) / 1e3

    # -- results ------------------------------------------------------------------------------------------------------

    @property
    def function_events(self) -> EventList:
        """The events, in the order in which they began."""
        if not self.finished and self.enabled:
            raise RuntimeError("Profiler didn't finish running: leave its `with` block first")
        return self._events

    def events(self) -> EventList:
        """Return `function_events`, as a method like `torch.profiler.profile`'s."""
        return self.function_events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """Return one entry for each name (and, if asked for, each choice of input shapes), with its count and times."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """Return the sum of all events."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time in all events, in microseconds; nested events count once."""
        return self.function_events.self_cpu_time_total

    def table(self, *args: Any, **options: Any) -> str:
        """Return a table with a line for every event; arguments as of `EventList.table`."""
        return self.function_events.table(*args, **options)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Raise `NotImplementedError`: the places of calls are not recorded."""
        raise NotImplementedError(
            "profile.export_stacks is not supported: no stacks are recorded. Use jax.profiler.trace, or cProfile"
        )

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events as a JSON file for chrome://tracing and Perfetto, operators tied to their nodes.

        The file is compressed if its name ends in .gz.
        """
        self.function_events.export_chrome_trace(path)

    def __repr__(self) -> str:
        return repr(self._events) if self.finished or not self.enabled else "<unfinished xgrad.autograd.profile>"

    def __str__(self) -> str:
        return str(self._events) if self.finished or not self.enabled else repr(self)


class record_function(ContextDecorator):
    """Name a block, or each call of a function that this decorates, for `profile` and for JAX's profiler.

    `args`: a string that is stored with the event.  Under `jax.jit`, operators of the block have the name in their
    metadata, also if nothing is recorded.

    Source: PyTorch's `torch.autograd.profiler.record_function`.

    >>> import xgrad
    >>> @xgrad.autograd.profiler.record_function("twice")
    ... def twice(x):
    ...     return x + x
    >>> with xgrad.autograd.profiler.profile() as prof:
    ...     _ = twice(twice(xgrad.ones(2)))
    >>> [e.count for e in prof.key_averages() if e.key == "twice"]
    [2]
    """

    name: str
    args: str | None

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._blocks: list[AbstractContextManager] = []

    def _recreate_cm(self) -> Self:
        return type(self)(self.name, self.args)

    def __enter__(self) -> Self:
        recorder = state.recorder
        if recorder is None:
            block = ExitStack()
            block.enter_context(jax.profiler.TraceAnnotation(self.name))
            block.enter_context(jax.named_scope(self.name.replace("/", "|")))
        else:
            block = recorder.block(self.name, self.args)
        self._blocks.append(block)
        return self

    def __exit__(self, *error: Any) -> None:
        self._blocks.pop().__exit__(None, None, None)


_close_namespace(__name__)
