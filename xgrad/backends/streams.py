"""Stream and Event for an imaginary device (`xgrad.Backend` with a `Cost`): order its programs in simulated time only.

The `Cost` says how long each program takes; what the programs compute stays the same.
(PyTorch: torch.Stream, torch.Event.)
"""

import itertools
from typing import Any

from ..base.declared import DeclaredPlace
from ..base.decorators import in_block
from ..base.devices import device as device_of
from ..base.devices import placement_of
from ..base.unsupported import STREAMS, explained
from ..config import Block, state
from .clock import RECORD, SYNC, WAIT, Mark
from .simulation import Live, Simulation

_numbers = itertools.count(1)


def _runtime_of(device: Any, name: str) -> Any:
    """Return the runtime of a backend, by default of the one where new tensors are made.

    Raises `NotImplementedError` for JAX's own devices, and for a backend without a `Cost`.
    """
    place = state.place if device is None else placement_of(device)
    runtime = place.runtime if place.__class__ is DeclaredPlace else None
    if runtime is None or runtime.clock is None:
        raise NotImplementedError(explained("", name, STREAMS))
    if runtime.clock.live is None:
        runtime.clock.live = Live(runtime)
    return runtime


class Stream(Block):
    """A queue of programs, on an `xgrad.Backend` with a `Cost`: what runs in a block `with stream:` goes onto it.

    `device`: the backend, by default where new tensors are made; `priority` has no effect.
    Programs of one stream run one after the other; `Cost.queues` streams run at once.  A program waits for its
    operands, whatever stream they come from, and an event for more.  All of it in simulated time
    (`report.timeline()`, `Event.elapsed_time`): values are as ever.

    Raises `NotImplementedError` for a device of JAX's, where XLA orders its work by itself, and for a
    backend without a `Cost`.

    >>> import xgrad
    >>> chip = xgrad.Backend("chip", cost=xgrad.Cost(launch=1e-3, queues=2))
    >>> x, side = xgrad.ones(2, device=chip), xgrad.Stream(chip)
    >>> with chip.report() as report:
    ...     y = x * 2
    ...     with side:
    ...         z = x * 3
    >>> [(span.stream == side.number, round(span.end, 4)) for span in report.timeline().spans]
    [(False, 0.001), (True, 0.001)]
    """

    def __init__(self, device: Any = None, *, priority: int = 0) -> None:
        self._runtime = _runtime_of(device, "Stream")
        self.priority = priority
        self.number: int = next(_numbers)

    @property
    def device(self) -> Any:
        """The backend's device."""
        return device_of(self._runtime.backend)

    @property
    def stream_id(self) -> int:
        """The number."""
        return self.number

    def __repr__(self) -> str:
        return f"<xgrad.Stream {self.number} on {self._runtime.backend.name}:0>"

    def __enter__(self) -> "Stream":
        self._will_restore("stream")
        state.stream = self
        return self

    def __call__(self, function: Any) -> Any:
        return in_block(function, lambda: self)

    def of(self, runtime: Any) -> bool:
        """Return True for a stream of this backend's runtime."""
        return self._runtime is runtime

    def wait_event(self, event: "Event") -> None:
        """Let what comes next on the stream wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: "Stream") -> None:
        """Let what comes next on the stream wait for all that is on another one."""
        event = Event(self._runtime.backend)
        event.record(stream)
        event.wait(self)

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event, a new one by default, on the stream, and return it."""
        event = Event(self._runtime.backend) if event is None else event
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Let the host wait until all that is on the stream is done."""
        self._runtime.settle()
        self._runtime.clock.mark(SYNC, self.number, self)

    def query(self) -> bool:
        """Return True if all that is on the stream is done, at the host's time."""
        self._runtime.settle()
        simulation = self._runtime.clock.live.advance()
        return simulation.end_of(self.number) <= simulation.now


class Event:
    """A place in the order of a stream, on an `xgrad.Backend` with a `Cost`; its time is simulated.

    `device`: the backend, by default where new tensors are made.  `enable_timing`: True for `elapsed_time`.  The other
    arguments have no effect.  Raises `NotImplementedError` for a device of JAX's, and for a backend without a `Cost`.

    >>> import xgrad
    >>> chip = xgrad.Backend("chip", cost=xgrad.Cost(launch=1e-3, compile=0))
    >>> start, end = (xgrad.Event(chip, enable_timing=True) for _ in range(2))
    >>> x = xgrad.ones(2, device=chip)
    >>> start.record()
    >>> y = x * 2 + 1
    >>> end.record()
    >>> end.synchronize()
    >>> round(start.elapsed_time(end), 3)
    2.0
    """

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._runtime = _runtime_of(device, "Event")
        self._timed = enable_timing
        self._mark: Mark | None = None

    @property
    def device(self) -> Any:
        """The backend's device."""
        return device_of(self._runtime.backend)

    def __repr__(self) -> str:
        return (
            f"<xgrad.Event on {self._runtime.backend.name}:0, {'not recorded' if self._mark is None else 'recorded'}>"
        )

    def record(self, stream: Stream | None = None) -> None:
        """Note that all that is on the stream so far, by default the current one, comes before the event."""
        self._told(RECORD, Mark(), stream)

    def wait(self, stream: Stream | None = None) -> None:
        """Let what comes next on the stream, by default the current one, wait for the event."""
        if self._mark is not None:
            self._told(WAIT, self._mark, stream)

    def synchronize(self) -> None:
        """Let the host wait for the event."""
        if self._mark is not None:
            self._told(SYNC, self._mark, None)

    def query(self) -> bool:
        """Return True if all before the event is done, at the host's time; also if it was never recorded."""
        simulation = self._now()
        return self._mark is None or simulation.end_of(self._mark) <= simulation.now

    def elapsed_time(self, end_event: "Event") -> float:
        """Return the simulated milliseconds from this event to another one.

        Raises `RuntimeError` if one of them was not recorded, is not reached yet (`synchronize`), or has no timing;
        `ValueError` for events of two backends.
        """
        if end_event._runtime is not self._runtime:
            raise ValueError(f"elapsed_time(): events of two backends have two clocks: {self!r}, {end_event!r}")
        if not (self._timed and end_event._timed):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if self._mark is None or end_event._mark is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        simulation = self._now()
        if not (self.query() and end_event.query()):
            raise RuntimeError(
                "Both events must be completed before calculating elapsed time: the host has not waited, "
                "event.synchronize()"
            )
        return 1e3 * (simulation.end_of(end_event._mark) - simulation.end_of(self._mark))

    def _now(self) -> Simulation:
        return self._runtime.clock.live.advance()

    def _told(self, kind: str, mark: Mark, stream: Stream | None) -> None:
        stream = state.stream if stream is None else stream
        if stream is not None and not stream.of(self._runtime):
            raise ValueError(f"{stream!r} and {self!r} are of two backends")
        self._runtime.settle()
        self._runtime.clock.mark(kind, mark, stream)
        self._mark = mark


def synchronize(runtime: Any) -> None:
    """Run what waits in this thread, and let the simulated host wait for all."""
    runtime.settle()
    if runtime.clock is not None and runtime.reports:
        runtime.clock.mark(SYNC, None, None)
