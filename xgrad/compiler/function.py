"""CompiledFunction: the function that `xgrad.compile` returns; a call finds its program, or traces one and says why.

More than 450 lines: what `xgrad.compile` takes and promises is said in one place.
"""

import functools
import importlib
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

from ..base.declared import DeclaredPlace
from ..base.jax_compat import Tracer
from ..base.tracebacks import shorten
from ..config import state
from ..dispatch.on_device import held_of
from ..engine.programs import segment
from ..execution.runner import runner, suspended, together
from ..execution.source import line_of, outside
from ..tensor import Tensor
from ..tensor_methods import pytrees
from .buckets import Buckets
from .compiled_program import Entry
from .guards import modes
from .shardings import Shardings, put_in, put_out_of_backend
from .trace_function import traced
from .trace_lock import turns
from .verify import asked, verified

_TRACES = 8  # the number of traces after which a warning comes
_PROGRAMS = 64  # the number of programs in memory: the newest
_TRIES = 3  # attempts to trace a call while another thread changes a value that it depends on
_log = segment.log


class Metrics(NamedTuple):
    """The number of calls and of traces of a compiled function, and the reason of each trace."""

    calls: int
    traces: int
    reasons: tuple[str, ...]  # why each trace but the first was needed
    seconds: float  # spent tracing; XLA compiles when a program is first run
    verified: int = 0  # calls that were compared with an eager run


class CompiledFunction:
    """A function that runs as one XLA program for each kind of arguments.  Made by `xgrad.compile`."""

    def __init__(
        self,
        function: Callable[..., Any],
        donate: bool,
        options: dict[Any, Any] | None,
        dynamic: dict[str, int] | None = None,
        buckets: Sequence[int] | None = None,
        check: bool = True,
        in_shardings: Any = None,
        out_shardings: Any = None,
        verify: Any = None,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._given = donate, options, dynamic, buckets, check, in_shardings, out_shardings, verify
        self._verify = asked(verify)
        self._in = None if in_shardings is None else Shardings("in_shardings", in_shardings)
        self._out = None if out_shardings is None else Shardings("out_shardings", out_shardings)
        self._buckets = Buckets(self, function, dynamic, buckets, check, options) if dynamic else None
        self._entries: list[Entry] = []
        self._lock = threading.RLock()  # for the counts, and values that guards cache
        self.reset()

    def __repr__(self) -> str:
        return f"<xgrad.compile of {self._function!r}>"

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of a compiled object."""
        if not name.startswith("_") and not hasattr(self._function, "__code__"):  # of functions and methods
            return getattr(self._function, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind a method: compile it once for each object; on a class, or with __slots__, the object is an argument."""
        if instance is None:
            return self
        if isinstance(instance, type) or not hasattr(instance, "__dict__"):
            return types.MethodType(self, instance)
        bound = instance.__dict__.get(key := f"compiled {id(self)}")
        if bound is None or bound._function.__self__ is not instance:  # from the object that this one was copied from
            made = CompiledFunction(self._function.__get__(instance, owner), *self._given)
            if bound is None:
                return instance.__dict__.setdefault(key, made)  # one for all threads, made by the first
            bound = instance.__dict__[key] = made
        return bound

    def __reduce__(self) -> Any:
        """Pickle and copy by name, as functions and methods do; the programs are not copied."""
        function: Any = self._function
        return (getattr, (function.__self__, function.__name__)) if hasattr(function, "__self__") else self.name()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if modes.inlined():
            return self._function(*args, **kwargs)
        run = self.run if self._buckets is None else self._buckets.call
        try:
            if not runner.plain and runner.queue() is not None:
                with suspended("a compiled function"):
                    return run(args, kwargs)
            return run(args, kwargs)
        except BaseException as error:
            shorten(error)
            raise

    def run(self, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
        """Run the program for these arguments, which are padded already where `dynamic` asks for it."""
        copies: list[Tensor] = []
        if self._in is not None:
            args, kwargs, copies = put_in(self._in, args, kwargs)
        leaves, tree = _flat(args, kwargs)
        if runner.backends and (isinstance(state.place, DeclaredPlace) or runner.on_backend(map(held_of, leaves))):
            with together("the end of a compiled function"):  # an `xgrad.Backend` asks of each operator what it lacks
                return put_out_of_backend(self._out, self._function(*args, **kwargs))
        now = modes.modes()
        found = None
        if not self._in_turns:
            with self._lock:
                found = self._known(args, kwargs, leaves, tree, now)
                if found is not None:
                    if copies:
                        found[0].check_unwritten(found[1], copies)
                    self._calls += 1
        if found is None and not modes.eager():
            done: list = []
            found = turns.take(self._in_turn, done, copies, args, kwargs, leaves, tree, now)
            if done:
                return done[0]
        if found is None:
            if runner.backends and not modes.eager():  # tensors of an `xgrad.Backend` that are not among the arguments
                with together("the end of a compiled function"):
                    return self._function(*args, **kwargs)
            return self._function(*args, **kwargs)
        entry, *given = found
        return entry.run(*given)

    def _in_turn(
        self, done: list, copies: list, args: tuple, kwargs: dict, leaves: list, tree: Any, now: tuple
    ) -> tuple | None:
        """Find or trace a program.  One that traces must not meet is run here, and its result goes into `done`."""
        found = self._find(args, kwargs, leaves, tree, now)
        if found is None:
            return None
        entry, *given = found
        if copies:
            entry.check_unwritten(given[0], copies)
        with self._lock:
            self._calls += 1
        if self._verify is not None:
            done.append(self._verified(args, kwargs, entry, given))
        elif entry.puts:
            done.append(entry.run(*given))
        return found

    def _verified(self, args: tuple, kwargs: dict, entry: Entry, given: list) -> Any:
        """Run a program and compare it with the eager run; compare its backward the first time."""
        assert self._verify is not None
        self._verifications += 1
        first = entry not in self._backwards
        self._backwards.add(entry)
        return verified(self._verify, self.name(), self._function, args, kwargs, entry, given, first)

    def alone(self) -> "CompiledFunction":
        """Return another compiled function of the same Python function, without programs."""
        donate, options, *_, ins, outs, verify = self._given
        return CompiledFunction(self._function, donate, options, in_shardings=ins, out_shardings=outs, verify=verify)

    def find(
        self, args: tuple[Any, ...], kwargs: dict[Any, Any]
    ) -> tuple[Entry, list[Any], list[Any], list[Any]] | None:
        """Return the entry for a call, traced if there is none; None if the function is to run uncompiled."""
        leaves, tree = _flat(args, kwargs)
        now = modes.modes()
        with self._lock:
            found = self._known(args, kwargs, leaves, tree, now)
        if found is not None or modes.eager():
            return found
        return turns.take(self._find, args, kwargs, leaves, tree, now)

    def _known(
        self, args: tuple, kwargs: dict, leaves: list, tree: Any, now: tuple
    ) -> tuple[Entry, list, list, list] | None:
        """Return the entry for a call that has been traced before, else None."""
        for entry in self._entries:
            match = entry.match
            if (match.tree is tree or match.tree == tree) and match.modes == now:
                found = match.find(leaves) if not match.orders or match.order(args, kwargs) is None else None
                if found is None:
                    continue
                if turns.owner is not None and any(isinstance(array, Tracer) for array in found[1]):
                    continue  # another thread's trace has put its tracer there
                return entry, *found, leaves
        return None

    def _find(
        self, args: tuple, kwargs: dict, leaves: list, tree: Any, now: tuple
    ) -> tuple[Entry, list, list, list] | None:
        """Return the entry for a call, traced if there is none.  Runs in this thread's turn."""
        with self._lock:
            known = self._known(args, kwargs, leaves, tree, now)  # traced by another thread meanwhile
        if known is not None:
            return known
        if any(map(_is_traced, leaves)):
            return None
        changed = ""
        for _ in range(_TRIES):
            made = self._traced(args, kwargs, leaves, tree, now)
            if made is None:
                _log.info("xgrad.compile: %s runs as it is: it uses values of another trace", self.name())
                return None
            entry, around = made
            found = entry.match.find(leaves)
            if found is not None:
                for put, holder, key, value in around.kept:
                    put(holder, key, value)
                return entry, *found, leaves
            changed = entry.match.why(leaves)
        raise RuntimeError(f"xgrad.compile: what {self.name()} depends on changes while it is traced: {changed}")

    def _traced(self, args: tuple, kwargs: dict, leaves: list, tree: Any, now: tuple) -> tuple[Entry, Any] | None:
        """Trace a new entry.  With it come the surroundings of the trace."""
        reason = self._reason(args, kwargs, leaves, tree, now)
        start = time.perf_counter()
        made = traced(self._function, args, kwargs, leaves, tree, now, *self._given[:2], self._out)
        if made is None:
            return None
        entry, _ = made
        self._seconds += time.perf_counter() - start
        with self._lock:
            self._entries.insert(0, entry)
            del self._entries[_PROGRAMS:]
        self._in_turns = self._in_turns or entry.puts
        self._traces += 1
        if reason is not None:
            self._reasons.append(reason)
        self._tell(reason)
        return made

    def name(self) -> str:
        """Return the function's name."""
        function = getattr(self._function, "func", self._function)  # of a partial
        return getattr(function, "__qualname__", type(function).__qualname__)  # a module's is its class's

    def _reason(self, args: tuple, kwargs: dict, leaves: list, tree: Any, now: tuple) -> str | None:
        """Return why no entry fits the call: the difference from the newest entry."""
        if not self._entries:
            return None
        entry = self._entries[0]
        match = entry.match
        if match.tree != tree:
            return f"the arguments have another structure: {tree}, before {match.tree}"
        if match.modes != now:
            changed = [f"{name} is {b!r} (was {a!r})" for name, a, b in zip(modes.NAMES, match.modes, now) if a != b]
            return "another mode: " + ", ".join(changed)
        return match.order(args, kwargs) or match.why(leaves)

    def _tell(self, reason: str | None) -> None:
        _log.info("xgrad.compile: %s traced (%d): %s", self.name(), self._traces, reason or "the first call")
        if self._traces == _TRACES:
            last = str(reason).rstrip(".")
            warnings.warn_explicit(
                f"xgrad.compile: {self.name()} has been traced {_TRACES} times, and each trace is compiled anew. The "
                f"last reason: {last}. Pass numbers that change as tensors and arrays as arguments, keep shapes the "
                "same (or give dynamic={{'parameter': dimension}}), and see metrics().reasons.",
                UserWarning,
                *line_of(outside(sys._getframe())),
            )

    # ------------------------------------------------------------ looking in

    def metrics(self) -> Metrics:
        """Return the numbers of calls and traces, and why each trace was needed."""
        found = Metrics(self._calls, self._traces, tuple(self._reasons), self._seconds, self._verifications)
        for each in () if self._buckets is None else self._buckets.functions.values():
            found = Metrics(*[a + b for a, b in zip(found, each.metrics())])
        return found

    def reset(self) -> None:
        """Forget all programs and counts."""
        self._entries.clear()
        if self._buckets is not None:
            self._buckets.reset()
        self._calls = self._traces = self._verifications = 0
        self._backwards: WeakSet[Entry] = WeakSet()  # entries whose backward has been verified
        # True if calls take turns: they are verified, or put tensors into containers.
        self._in_turns = self._verify is not None
        self._seconds = 0.0
        self._reasons: list[str] = []

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return the program for these arguments as a `jax.stages.Lowered`.  Nothing is run."""
        entry, _, arrays, leaves = self._found(args, kwargs)
        return entry.lower(arrays, leaves)

    def compiled_for(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Compile the program for these arguments for a chip that need not be here, and return a report.

        `target`: such as `"tpu:v5e"`, or what `xgrad.target` returns; see there, and `compile` of the result.  Nothing
        is run or changed.
        """
        chips = importlib.import_module("xgrad.chips")  # at the call: few ask for it, and it imports this package
        return chips.target(target).compile(self, *args, **kwargs)

    def _compiled(self, args: tuple, kwargs: dict) -> Any:
        entry, _, arrays, leaves = self._found(args, kwargs)
        return entry.compiled(arrays, leaves)

    def _found(self, args: tuple, kwargs: dict) -> tuple[Entry, list, list, list]:
        if self._in is not None:
            args, kwargs, _ = put_in(self._in, args, kwargs)
        found = None if modes.inlined() else self.find(args, kwargs)
        if found is None:
            debugged = "where JAX is not to compile (disable_jit, debug_nans, anomaly mode)"
            where = debugged if modes.eager() else "inside of another trace"
            raise RuntimeError(f"xgrad.compile: {where} no program exists to look at")
        return found

    def as_text(self, *args: Any, **kwargs: Any) -> str:
        """Return XLA's optimized program for these arguments as text: the whole, also if it runs in parts."""
        return self._compiled(args, kwargs).as_text()

    def cost_analysis(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Return XLA's estimate of the program's operations and bytes."""
        found = self._compiled(args, kwargs).cost_analysis()
        return found[0] if isinstance(found, list) else found

    def memory_analysis(self, *args: Any, **kwargs: Any) -> Any:
        """Return the bytes that the program takes: arguments, results, temporaries."""
        return self._compiled(args, kwargs).memory_analysis()


def _is_traced(leaf: Any) -> bool:
    """Return True if an argument is a tracer of another trace, or a tensor with one."""
    if isinstance(leaf, Tensor):
        attributes = leaf.__dict__
        storage = attributes.get("_storage")
        leaf = attributes.get("_array") if storage is None else storage._array
    return isinstance(leaf, Tracer)


_trees: dict[int, Any] = {}  # by the number of tensors: the tree of a call with so many tensors and no other argument


def _flat(args: tuple, kwargs: dict) -> tuple[list, Any]:
    """Return the leaves of a call's arguments, and their tree."""
    if not kwargs:
        for a in args:
            if a.__class__ is not Tensor:
                break
        else:
            leaves = [*args]
            tree = _trees.get(len(leaves))
            if tree is None:
                tree = _trees[len(leaves)] = pytrees.flatten((args, kwargs))[1]
            return leaves, tree
    return pytrees.flatten((args, kwargs))


def compile(
    function: Callable[..., Any] | None = None,
    *,
    donate: bool = True,
    dynamic: dict[str, int] | bool | None = None,
    buckets: Sequence[int] | None = None,
    check: bool = True,
    options: dict[str, Any] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    verify: bool | dict[str, float] | None = None,
    disable: bool = False,
    mode: str | None = None,
    fullgraph: bool = False,
    backend: Any = "xla",
) -> Any:
    """Make a function that runs as one XLA program: forward, backward, in-place updates, optimizer, random numbers.

    `function` takes and returns tensors, in lists, tuples, dictionaries and other pytrees if you like, and may do what
    eager code does: read and change tensors from arguments, closures, globals, modules and objects, call `backward()`,
    use hooks, views, checkpoints and random numbers.  The first call *traces* it: it runs on tensors without values,
    and its changes of tensors become the program.  Later calls run the program, whose results go into the very same
    storages, `.grad`s, containers and generators; buffers that it replaces are donated where nothing else refers to
    them (`donate`).  On a CPU a deep program runs in parts, and equal parts compile once.  Other effects of the
    function, such as printing, happen in the trace only.

    A call is traced again when something that the trace relied on is different: structure, shapes, dtypes and
    shardings, requires_grad, the presence of a `.grad` if the function reads it, hooks, modes, numbers and strings
    among arguments, closures and globals.  `metrics().reasons` name the difference, and XGRAD_LOG=compile logs it.

    Results that require grad can be differentiated outside, once (no double backward).

    `dynamic` names parameters with a dimension that varies, {"x": 0, "y": 0}: sizes up to the next of `buckets`
    (default: powers of two) share a program, which masks what is padded, so that each value is right.
    The function is traced for each size, and compiled for each bucket; if values would depend on the padding (a sort
    along it), for each size, with a warning that says why, unless `check=False`.  The function gets its size as a
    0-dim tensor if it has a parameter `valid`.

    Tensors over a mesh make a program over the mesh; a storage that it writes keeps its sharding, and so do gradients.
    `in_shardings`, for the positional arguments, and `out_shardings` are as `jax.jit`'s: a sharding, None (as the
    argument is; as XLA chooses), or a tree of these that is a prefix of the arguments' or the result's; within
    `with xgrad.mesh(...)` also `PartitionSpec`s.  An argument without a placement is copied there; one that was placed
    elsewhere is a `PlacementError`.

    `verify=True` also runs each call eagerly, on the state before it, and compares: results, the tensors that
    are written, `.grad`s, flags, versions, generators, tensors in containers, and once for each program the gradients
    that a backward outside would give.  The first difference is a `CompiledMismatchError` that names it.  The eager run
    leaves no trace in tensors and containers, but other effects of the function happen twice.  It takes an eager
    call's time and twice the memory; another thread must not write to the same tensors meanwhile.  Numbers may differ
    by 1e-4 of the largest in float32 (1e-10 in float64, 2e-2 in 16 bits), integers not at all; {"rtol": .., "atol": ..}
    in place of True sets the tolerances.  XGRAD_COMPILE=verify in the environment is the default of `verify`.

    `options` are XLA's compiler options, for `jax.jit`.  `disable=True` returns the function as it is.  `mode`,
    `fullgraph`, `backend` and a `dynamic` of True or False are PyTorch's: a trace is always one graph, which XLA
    compiles for its shapes.  Without `function`, a decorator.  Inside of another trace or transform (`jax.jit`, `vmap`,
    `func.grad`, another compiled function) the function runs as it is.

    A compiled module is an `xgrad.nn.module.OptimizedModule`, a module with the same parameters.  The result has
    `metrics()`, `reset()`, and, for the same arguments, `lower()`, `as_text()`, `cost_analysis()` and
    `memory_analysis()`.

    Raises in the first call: `TracedValueError` where the function reads a value (`item()`, `if t:`), naming the line;
    `NotImplementedError` for effects that a program cannot repeat (a Python number that it counts up, hooks that it
    registers on tensors from outside, a generator that it returns, sparse arguments).  A trace that fails changes
    nothing, and other threads do not see it: when several threads make the first call, one traces and the others wait.
    (PyTorch: torch.compile.)

    >>> import xgrad
    >>> w = xgrad.ones(2, requires_grad=True)
    >>> @xgrad.compile
    ... def step(x):
    ...     w.grad = None
    ...     loss = ((w * x) ** 2).sum()
    ...     loss.backward()
    ...     with xgrad.no_grad():
    ...         w.sub_(w.grad, alpha=0.1)
    ...     return loss.detach()
    >>> step(xgrad.tensor([1.0, 2.0])), step(xgrad.tensor([1.0, 2.0]))
    (tensor(5.), tensor(0.8000))
    >>> w
    tensor([0.6400, 0.0400], requires_grad=True)
    >>> step.metrics().traces
    1
    """
    if function is None:
        given: dict[str, Any] = dict(
            donate=donate, dynamic=dynamic, buckets=buckets, check=check, options=options, disable=disable,
            in_shardings=in_shardings, out_shardings=out_shardings, verify=verify,
        )  # fmt: skip
        return functools.partial(compile, **given)
    if not callable(function):
        raise TypeError(f"xgrad.compile takes a function, but got a {type(function).__name__}")
    dynamic = None if isinstance(dynamic, bool) else dynamic
    if dynamic is not None and not isinstance(dynamic, dict):
        raise TypeError(
            "xgrad.compile: dynamic= takes the parameters and dimensions that vary, such as {'x': 0}, but got "
            f"{dynamic!r}"
        )
    if disable:
        return function
    made = CompiledFunction(function, donate, options, dynamic, buckets, check, in_shardings, out_shardings, verify)
    as_module = getattr(type(function), "_compiled_as", None)
    return made if as_module is None else as_module(function, made)
