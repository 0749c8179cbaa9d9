"""xgrad.config: the state of each thread (modes, counters, hook stacks), and the few settings of the process.

Invariant: a mode of the thread that a context manager switches (`no_grad`, `saved_tensors_hooks`, `dual_level`,
`tracking`, ...) is here, once, as in PyTorch (c10/core/AutogradState.h).  Reading a mode costs one attribute look-up
(35 ns), because the class has the defaults.
"""

import io
import itertools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, suppress
from functools import wraps
from operator import call
from typing import Any

import jax
import jax.numpy as jnp

INFERENCE_LEVEL = 1 << 62  # the forward level of inference mode: no tensor has a tangent there


class ThreadState(threading.local):
    """Modes of one thread; the class attributes are the defaults of a new thread."""

    grad_enabled: bool = True  # True if operations are recorded: never in inference mode
    inference: bool = False
    grad_in_inference: bool = False  # switched by no_grad and its like in inference mode, without effect
    tracking: str | None = None  # "replay", "geometry", or None: the device decides
    aliased: bool = False  # True while a view is made to be written at once, on a backend whose views are copies too
    # (pack, unpack); only the last, innermost pair is called
    saved_hooks: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = ()
    saved_hooks_disabled: str | None = None
    overrides_disabled: bool = False  # True if instances of Tensor's subclasses are plain tensors
    mutation_allowed: Any = None  # the context of allow_mutation_on_saved_tensors
    dual_level: int = -1  # the dual level that was entered, -1 outside
    # Equal to `dual_level`, or -1 where nothing propagates tangents (in a custom jvp, say).  In inference mode it is
    # INFERENCE_LEVEL: tests for forward mode leave the fast path there too, and nothing else has to be tested.
    forward_level: int = -1
    suspended: tuple[Any, ...] | None = None  # the forward levels that _set_fwd_grad_enabled(False) put aside
    dual_tangents: Any = None  # a WeakSet of the tangents at the dual level, which end with it
    outer_forward_levels: tuple[int, ...] = ()  # those around it, the innermost last (func.jvp nests)
    vmap_levels: tuple[Any, ...] = ()  # those that are entered, the innermost last
    transforms: int = 0  # the number of func's grad, vjp, ... that are running
    anomaly: bool = False
    anomaly_check_nan: bool = True
    compiled: Any = None  # the engine.programs.run.Options of a backward that runs as programs
    mesh: Any = None  # the jax Mesh whose axes a PartitionSpec names
    place: Any = None  # the sharding of new tensors, a declared.DeclaredPlace perhaps; None: JAX's default device
    # {"place": ..., "places": ...} before each `with device:` block that is entered, the innermost last
    places: tuple[dict[str, Any], ...] = ()
    stream: Any = None  # the backends.streams.Stream of a declared backend on which programs run
    queues: dict[Any, Any] | None = None  # {declared place: its execution.queue.Queue} of lazy backends
    together: bool = False  # True if eager backends queue programs, and do not run them at once (execution/runner.py)
    grad_layout: bool = True  # True if a gradient is stored where its variable is
    multithreading: bool = True  # set by set_multithreading_enabled, without effect
    graph_task: Any = None  # the GraphTask that this thread drives
    current_node: Any = None  # the node that is being evaluated
    generator: Any = None  # the one that `use_key` put in place of the default generator
    # {generator: its key at first use} of the innermost block that may run again
    random_log: dict[Any, Any] | None = None
    random_again: dict[Any, Any] | None = None  # {generator: its twin} after `random.draw_again`
    queue: Any = None  # the execution.queue.Queue of a lazy block
    lazy: bool | None = None  # None: as XGRAD_LAZY says
    lazy_blocks: tuple[Any, ...] = ()  # (block, `queue` and `lazy` before it) of those entered, the innermost last
    operator_mode: Any = None  # the innermost dispatch.operator_modes.OperatorMode
    recorder: Any = None  # the innermost of autograd.profiler's
    autocast: Any = None  # the dispatch.autocasting.Settings, None for the defaults: nothing is cast
    autocast_nesting: int = 0  # the number of autocast blocks that are entered
    autocast_casts: dict[Any, Any] | None = None  # casts of weights, cached for the outermost of them
    trace: Any = None  # the compiler.reached_tensors.Trace of a function that this thread traces
    overlay: Any = None  # the compiler.overlay.Overlay in which this thread sees tensors: that trace, say
    graph_exec_group: Any = None  # of utils.checkpoint: several backward calls that share their recomputations
    stash: dict[str, Any] | None = None  # of torch._C._stash_obj_in_tls
    count: Any
    next_sequence_nr: Callable[..., Any]

    def __init__(self) -> None:
        # Each thread's dictionary has these: reading many there is quicker than reading each through `state`.
        self.__dict__.update(_ASKED)
        # Bound method of a counter: one call gives the next number, nothing to store back.  Recording calls
        # `next_sequence_nr`, which anomaly mode replaces by a function that adds to the result of `count`.
        self.count = self.next_sequence_nr = itertools.count().__next__

    def sequence_nr(self) -> int:
        """Return the number that `count` gives next, which only its text shows."""
        return int(repr(self.count.__self__)[len("count(") : -1])

    def put_back(self, before: dict[str, Any]) -> None:
        """Restore the modes that users' code may have left switched, from `before`, a copy of `__dict__`.

        These are the modes of PyTorch's ThreadLocalState; a dual level that was entered, anomaly mode and the profiler
        stay, there as here (aten/src/ATen/ThreadLocalState.h).
        """
        now = self.__dict__
        for name in _PUT_BACK:
            if name in before:
                now[name] = before[name]
            elif name in now:
                del now[name]
        if before.get("dual_level", -1) != self.dual_level:
            self.carry(self.dual_level)

    def carry(self, level: int) -> None:
        """Propagate tangents at this dual level, unless it is suspended or inference mode is on."""
        if self.suspended is not None:
            self.suspended = (level, ())
        elif not self.inference:
            self.forward_level = level

    def snapshot(self) -> dict[str, Any]:
        """Return the modes, to be installed in another thread with `restore`."""
        return {k: v for k, v in self.__dict__.items() if v is not self.count}

    def restore(self, modes: dict[str, Any]) -> None:
        self.__dict__.update(modes)


# The modes that a compiled function reads in each call (compiler/guards/modes.py).
_ASKED = {
    name: getattr(ThreadState, name)
    for name in (
        "grad_enabled", "inference", "tracking", "saved_hooks", "saved_hooks_disabled", "anomaly", "grad_layout",
        "compiled", "mutation_allowed", "generator", "mesh", "autocast", "place",
        "overlay", "vmap_levels", "transforms", "forward_level", "operator_mode", "recorder",
    )
}  # fmt: skip

# The modes of a thread that belong to a block, and end with it.
_PUT_BACK = (
    "grad_enabled", "inference", "grad_in_inference", "tracking", "saved_hooks", "saved_hooks_disabled",
    "overrides_disabled", "mutation_allowed", "forward_level", "outer_forward_levels", "suspended", "compiled", "mesh",
    "grad_layout", "multithreading", "operator_mode", "autocast", "autocast_nesting", "autocast_casts", "place",
    "places", "stream",
)  # fmt: skip

state: ThreadState = ThreadState()


def to_outer_forward_level() -> int:
    """Go to the forward level around the present one, and return it: -1 if there is none.

    The caller restores both values by assignments: the `__exit__` of a `with` block may be interrupted before it
    begins.
    """
    outer = state.outer_forward_levels
    state.forward_level, state.outer_forward_levels = outer[-1] if outer else -1, outer[:-1]
    return state.forward_level


def forward_levels() -> tuple[int, ...]:
    """Return the levels at which operations propagate tangents now."""
    level = state.forward_level
    return () if level < 0 or state.inference else (*state.outer_forward_levels, level)


class _Leave(io.IOBase):
    """A callable of C code, its method `__exit__`, which takes any arguments and calls `close` without them."""

    # So that nothing is closed when it ends.
    closed = True  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]


class Leaving:
    """The `__exit__` of a block that restores modes of its thread: it calls what the block's method `_close` returns.

    `with` finds C code here.  A function of Python's could be interrupted at its first instruction, and the mode would
    stay on for the thread.  `__enter__` switches the mode last, without a call after it, for the same reason.
    """

    def __get__(self, block: Any, kind: Any = None) -> Any:
        if block is None:  # contextlib.ExitStack asks the class
            return _leave
        leave = _Leave()
        vars(leave)["close"] = block._close()
        return leave.__exit__


def _leave(block: Any, *error: Any) -> None:
    block.__exit__(*error)


class Block:
    """A block that restores modes of its thread: those that `__enter__` noted in `_before`, a stack."""

    __slots__ = ()
    _before: list[Any]
    __exit__: Any = Leaving()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = object.__new__(cls)
        made._before = []  # a stack: the block may enter the same object again
        return made

    def _will_restore(self, *names: str) -> None:
        self._before.append({name: getattr(state, name) for name in names})

    def _close(self) -> Callable[[], Any]:
        return map(vars(state).update, iter(self._before.pop, None)).__next__


class Unrecorded(Block):
    """A block in which nothing is recorded, for the package's own code: users have `no_grad`, `is_grad_enabled` too."""

    def __enter__(self) -> None:
        self._before.append({"grad_enabled": state.grad_enabled})
        state.grad_enabled = False


class Recorded(Block):
    """A block in which operations are recorded, except in inference mode, for the package's own code."""

    def __enter__(self) -> None:
        self._before.append({"grad_enabled": state.grad_enabled})
        state.grad_enabled = not state.inference


class Generated(Block):
    """A block of a generator, `_block()`: it switches modes, yields, and restores them in a `finally`.

    C code closes it, which enters the `finally` without a look at signals: modes are restored there without a call
    before.
    """

    _block: Callable[..., Iterator[Any]]

    def __enter__(self) -> Any:
        entered: Any = self._block()
        self._before.append(entered.close)
        try:
            for value in entered:  # not a call, after which an interrupt could come
                return value
        except BaseException:
            self._before.pop()
            raise

    def _close(self) -> Callable[[], Any]:
        return map(call, iter(self._before.pop, None)).__next__


class _Decorating(Generated, ContextDecorator):
    def __init__(self, block: Callable[[], Any]) -> None:
        self._block = block


def block(function: Callable[..., Iterator[Any]]) -> Callable[..., _Decorating]:
    """Decorate a generator function as `contextlib.contextmanager` does.  Errors of the block do not come to it."""

    @wraps(function)
    def made(*args: Any, **kwargs: Any) -> _Decorating:
        return _Decorating(lambda: function(*args, **kwargs))

    return made


class Settings:
    """Settings of the process."""

    default_dtype: Any = jnp.dtype("float32")
    check_sparse = False  # True if sparse constructors check all invariants
    warn_always = False  # True if a warning that is given once is given each time
    torch_names = False  # True within `as_torch()`
    # Of operators and their formulas (xgrad.library), of divergences and transforms, and changes of switches, so far:
    # programs that are older are stale.
    registrations = 0
    narrow = "warn"  # the setting `xgrad.config.narrow`
    narrowing_said = False  # True once the warning that belongs to it was given
    # True if the user has chosen the thread that runs a CPU's programs
    dispatch_chosen = "JAX_CPU_ENABLE_ASYNC_DISPATCH" in os.environ

    def changed(self) -> None:
        """Make programs stale that were compiled before: what is registered, or a switch of the process, is another."""
        self.registrations += 1


settings: Settings = Settings()


_NARROW = ("warn", "error")


class _Config(types.ModuleType):
    """The class of this module: its attributes that are settings are checked when they are assigned."""

    @property
    def narrow(self) -> str:
        """Say what becomes of 64-bit floats while JAX's 64-bit mode is off: "warn" or "error".

        "warn", the default, makes float32 of float64 and complex64 of complex128, with one warning in a process, which
        names the switch.  "error" raises `xgrad.errors.DtypeDisabledError`.  Integers of 64 bits become integers of 32
        with both, without a word; where their values are at hand, `OverflowError` says that one of them does not fit,
        and so it is for a finite float, and for a sum or product of integers that PyTorch would compute in int64.
        With x64 on nothing is narrowed.  XGRAD_NARROW=error in the environment sets it.

        >>> import xgrad
        >>> xgrad.config.narrow
        'warn'
        """
        return settings.narrow

    @narrow.setter
    def narrow(self, value: str) -> None:
        if value not in _NARROW:
            raise ValueError(f"xgrad.config.narrow is 'warn' or 'error', but got {value!r}")
        if value != settings.narrow:
            settings.narrow = value
            settings.changed()
            jax.clear_caches()  # some kernels ask for a dtype when they are traced


sys.modules[__name__].__class__ = _Config


def async_dispatch(enabled: bool) -> None:
    """Choose the thread that runs a CPU's programs: the calling thread (False), or a thread of JAX's (True).

    It is JAX's option `jax_cpu_enable_async_dispatch`, for the whole process, and takes effect if it is called before
    the process makes its first array.  JAX's default is True.  Before its first tensor xgrad sets it to False, as
    PyTorch's operators run in the calling thread, unless this function was called or the environment variable
    JAX_CPU_ENABLE_ASYNC_DISPATCH is set.  With True an operator on 64x64 elements takes 1.8 times as long, a step of a
    small perceptron 1.6 times; a step of a wide one, and writes through views, take the same time (time of the process,
    medians of runs in turns).

    >>> import xgrad
    >>> xgrad.config.async_dispatch(False)
    """
    settings.dispatch_chosen = True
    with suppress(AttributeError):  # an option that a later release of JAX may not have
        jax.config.update("jax_cpu_enable_async_dispatch", enabled)


if "XGRAD_NARROW" in os.environ:
    if os.environ["XGRAD_NARROW"] not in _NARROW:
        raise ValueError(f"XGRAD_NARROW is 'warn' or 'error', but got {os.environ['XGRAD_NARROW']!r}")
    settings.narrow = os.environ["XGRAD_NARROW"]


@block
def narrowing_refused() -> Iterator[None]:
    """Within the block `narrow` is "error", for all threads."""
    before, settings.narrow = settings.narrow, "error"
    try:
        yield
    finally:
        settings.narrow = before


def __dir__() -> list[str]:
    """Return the names that users may use."""
    return ["async_dispatch", "narrow"]
