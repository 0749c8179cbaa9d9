"""Events: counts what an `xgrad.Backend` does (launches, transfers, ...) while a `Report` of it is open.

Invariant: nothing is counted while no report is open.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

FROM, TO = "from the host", "to the host"


class Launch(NamedTuple):
    """A program that ran: what XLA, or the compiler of a target, is asked of it."""

    name: str
    jitted: Any
    structs: Sequence[Any]  # its operands' shapes and dtypes
    fused: bool  # True for a program of several operators
    spread: bool = False  # True for a program of arrays on several devices
    donate: tuple[int, ...] = ()  # the operands whose memory a result has
    reads: bool = False  # True for a program that reads a part of an operand
    writing: Any = None  # the jitted function that donates, if `jitted` does not
    spared: tuple[int, ...] = ()  # the operands that are copied for want of donation
    parts: tuple[str, ...] = ()  # the names of the programs that it is made of
    rounds: bool = False  # True if the backend declares the formats of products

    def lower(self) -> Any:
        """Return the `jax.stages.Lowered` of its operands' shapes; with donation of what is `spared`."""
        jitted = self.jitted if self.writing is None else self.writing
        return (jax.jit(jitted, donate_argnums=self.spared) if self.spared else jitted).lower(*self.structs)


class Fallback(NamedTuple):
    """An operator that the host computed, and the line that called it."""

    operator: str
    lack: str
    line: str


class Fault(NamedTuple):
    """A failure that the backend's `faults` injected: its kind, the launch's or transfer's number, and its program."""

    kind: str
    number: int
    operator: str
    line: str
    detail: str  # of a bit that was flipped: where


class Transfer(NamedTuple):
    """A value that went over the host's link: the direction ("from the host" or "to the host"), why, and the line."""

    direction: str
    why: str
    line: str


class Apart(NamedTuple):
    """A view that is a copy: the operation, the line that made it, and a weak reference to the other array."""

    name: str
    line: str
    other: Any


class Sum:
    """A count, with bytes."""

    __slots__ = ("bytes", "count")

    def __init__(self) -> None:
        self.count: Any = 0
        self.bytes: Any = 0

    def add(self, size: int) -> None:
        """Count one more, of so many bytes."""
        self.count += 1
        self.bytes += size


class Events:
    """The counts of one report."""

    shared: Any

    def __init__(self) -> None:
        self.operators: Counter[str] = Counter()
        self.noted: int = 0  # of them, those that a queue noted
        self.log: Any = None  # a clock.Log of a backend with a Cost
        self.launches: dict[Any, list[Any]] = {}  # by program and operands' shapes: [Launch, how often]
        self.programs: list[str] = []  # why each was compiled
        self.reads: Any = Sum()
        self.refreshes: Any = Sum()
        self.writes: Any = Sum()
        self.adjoints: Any = Sum()
        self.copies, self.shared = Sum(), Sum()  # that donation would have saved; because a storage was shared
        self.apart: dict[tuple[str, str], Sum] = {}  # views that are copies, by operation and line
        self.parted: Counter[tuple[str, str, str]] = Counter()  # writes that an alias would have shown, with their line
        self.starts: Counter[tuple[str, str]] = Counter()  # programs that runtime starts would have saved
        self.fallbacks: dict[Fallback, Sum] = {}
        self.on_host: dict[Any, list[Any]] = {}  # what the host computed, as `launches`
        self.faults: list[Fault] = []
        self.sent: Any = Sum()
        self.received: Any = Sum()
        self.transfers: dict[Transfer, Sum] = {}  # these, one by one
        self.lowered: set[str] = set()  # the operators whose lowerings were called
        self.between: Sum = Sum()  # chips, when an array gets another sharding
        self.padding: Sum = Sum()  # of arrays that were made
        self.padded: Sum = Sum()  # programs whose operands were padded, as `shapes` says
        self.unpadded: Counter[tuple[str, str]] = Counter()  # that could not be: the program, and why
        self.peak: int = 0

    def launch(self, key: Any, launch: Launch) -> None:
        """Count a program that ran."""
        self.launches.setdefault(key, [launch, 0])[1] += 1

    def transfer(self, transfer: Transfer, size: int) -> None:
        """Count what went over the host's link."""
        (self.sent if transfer.direction == TO else self.received).add(size)
        self.transfers.setdefault(transfer, Sum()).add(size)

    @property
    def fallen(self) -> int:
        """The number of operators that the host computed."""
        return sum(found.count for found in self.fallbacks.values())

    def fallback(self, fallback: Fallback, size: int) -> None:
        """Count an operator that the host computed; `size`: its bytes over the link."""
        self.fallbacks.setdefault(fallback, Sum()).add(size)
