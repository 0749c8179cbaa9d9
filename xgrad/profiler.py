"""xgrad.profiler: offers `xgrad.autograd.profiler` under torch.profiler's names (torch/profiler/profiler.py)."""

import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from .autograd import profiler as _profiler
from .autograd.profiler import record_function
from .base.missing import close_namespace as _close_namespace

__all__ = [
    "ProfilerAction", "ProfilerActivity", "profile", "record_function", "schedule", "tensorboard_trace_handler",
]  # fmt: skip


class ProfilerActivity(Enum):
    """Whose time is taken: the host's, whatever is asked for; a device's is shown by `jax.profiler.trace`."""

    CPU = 0
    CUDA = 1
    XPU = 2


class ProfilerAction(Enum):
    """The answers of `schedule` for a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Return a function from a step's number to what is done in it: `wait`, `warmup`, then `active` steps, in turns.

    >>> import xgrad
    >>> of_step = xgrad.profiler.schedule(wait=1, warmup=0, active=2)
    >>> [of_step(i).name for i in range(4)]
    ['NONE', 'RECORD', 'RECORD_AND_SAVE', 'NONE']

    Raises `ValueError` for negative numbers, and for `active=0`.
    """
    if min(wait, warmup, active - 1, repeat, skip_first) < 0:
        raise ValueError(
            f"Invalid profiler schedule arguments: {wait=}, {warmup=}, {active=}, {repeat=}, {skip_first=}: active "
            "must be at least 1, and the others not negative"
        )
    length = wait + warmup + active

    def of_step(step: int) -> ProfilerAction:
        step += wait * bool(skip_first_wait) - skip_first
        if step < 0 or (repeat and step // length >= repeat):
            return ProfilerAction.NONE
        step %= length
        if step < wait:
            return ProfilerAction.NONE
        if step < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == length - 1 else ProfilerAction.RECORD

    return of_step


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Any:
    """Return a function for `on_trace_ready` that writes a profile's events to a new file in `dir_name`."""

    def write(finished: "profile") -> None:
        Path(dir_name).mkdir(parents=True, exist_ok=True)
        name = f"{worker_name or 'xgrad'}.{time.time_ns()}.pt.trace.json{'.gz' * use_gzip}"
        finished.export_chrome_trace(Path(dir_name) / name)

    return write


class profile(_profiler.profile):
    """`xgrad.autograd.profiler.profile` with torch.profiler's arguments.

    All steps of the block are recorded, whatever `schedule` says; `on_trace_ready(self)` is called once, at its end.
    `activities`, `with_stack`, `with_modules` and further options have no effect.

    >>> import xgrad
    >>> with xgrad.profiler.profile(activities=[xgrad.profiler.ProfilerActivity.CPU]) as prof:
    ...     _ = xgrad.ones(2).exp()
    ...     prof.step()
    >>> "aten::exp" in {event.key for event in prof.key_averages()}
    True
    """

    on_trace_ready: Callable[..., Any] | None
    step_num: Any

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(record_shapes=record_shapes, profile_memory=profile_memory, with_flops=with_flops)
        self.step_num, self.on_trace_ready = 0, on_trace_ready

    def start(self) -> None:
        """Begin, as the `with` block does."""
        self.__enter__()

    def stop(self) -> None:
        """End, as the `with` block does."""
        self.__exit__(None, None, None)

    def step(self) -> None:
        """Count a step."""
        self.step_num += 1

    def _ended(self, _: Any) -> None:
        super()._ended(_)
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)


_close_namespace(__name__)
