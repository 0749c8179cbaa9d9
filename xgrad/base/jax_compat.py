"""Collects the undocumented parts of JAX that xgrad uses, so that one file is read when JAX changes.

`CANARIES` has functions that test if JAX still behaves as xgrad expects, and what follows if not; a test and
`python -m xgrad doctor` call them.
"""

import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray as ShapedArray
from jax.core import Tracer as Tracer
from jax.experimental.xla_metadata import set_xla_metadata

# JAX's events, in the thread that compiles: a function was traced, and lowered; a program is sought in the compile
# cache; it was compiled, or loaded from there, and how much longer than that compiling had taken.
# A scalar of the same name as a duration says when that begins.
TRACED = "/jax/core/compile/jaxpr_trace_duration"
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
SOUGHT = "/jax/compilation_cache/compile_requests_use_cache"
COMPILED = "/jax/core/compile/backend_compile_duration"
SAVED = "/jax/compilation_cache/compile_time_saved_sec"

# Its setting of the compile cache: a program that took fewer seconds to compile is not stored.
ENABLED = "jax_enable_compilation_cache"
LEAST_TIME = "jax_persistent_cache_min_compile_time_secs"
XLA_CACHES = "jax_persistent_cache_enable_xla_caches"  # the names of XLA's own caches in the same folder

# Parameters of a traced program's equations: the program that one calls, also of a custom derivative, and its name.
INNER, CUSTOM_INNER, NAME = "jaxpr", "call_jaxpr", "name"

NOT_INLINED = {"inlineable": "false"}  # of a call: XLA's CPU compiler keeps it as a function

user_context: Callable[..., Any] = jax.make_user_context  # its value is part of the keys of JAX's caches


def jaxprs() -> Any:
    """Return the module of `ClosedJaxpr`, `Literal` and `jaxpr_as_fun`."""
    from jax.extend import core  # at first use: it takes 18 ms

    return core


def scan_counts(eqn: Any) -> tuple[int, int]:
    """Return how many operands of a scan are constants, and how many are carried: those that have no dimension more.

    From jax 0.12 on no parameter of the equation says so.
    """
    inner = eqn.params[INNER].jaxpr
    whole, carried = [
        sum(outer.aval.ndim == v.aval.ndim for outer, v in zip(*pair))
        for pair in ((eqn.invars, inner.invars), (eqn.outvars, inner.outvars))
    ]
    return whole - carried, carried


def stablehlo() -> Any:
    """Return jaxlib's module of the StableHLO dialect, which writes modules in the form that `jax.export` reads."""
    from jaxlib.mlir.dialects import stablehlo as dialect  # at first use: few need it

    return dialect


_trace_state: Any = None
_untraced: Any = None


def trace_state() -> Any:
    """Return a value that identifies the traces (`jax.jit`, `vmap`, `lax.scan`, ...) that this thread runs in."""
    global _trace_state
    if _trace_state is None:
        try:
            from jax.extend.core import get_opaque_trace_state  # at first use, as in `jaxprs`
        except ImportError:
            from jax.core import get_opaque_trace_state  # jax before 0.8
        _trace_state = get_opaque_trace_state
    return _trace_state(convention="nnx")


def in_trace() -> bool:
    """Return True within a trace of this thread.  It takes 2 µs."""
    global _untraced
    if _untraced is None:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(trace_state()))  # traces belong to threads
        thread.start()
        thread.join()
        _untraced = found[0]
    return trace_state() != _untraced


_traced: Any = None


def caches() -> Any:
    """Return what stands for JAX's caches: another object after `jax.clear_caches()`.

    Each program's next call goes through Python then, also of one that was compiled ahead, and no event says so.
    A trace that nothing else refers to is in the caches until they are cleared.
    """
    global _traced
    found = _traced
    if found is None or found() is None:
        found = _traced = weakref.ref(_empty.trace().jaxpr.jaxpr)
    return found


_empty: Any = jax.jit(lambda: None)

_BETWEEN = {"jax", "jaxlib", "contextlib", "functools"}  # packages whose frames are between a compile and its caller


def xgrad_compiles() -> bool:
    """Return True if xgrad called the program that JAX compiles, seeks or stores now in this thread.

    A program that another package calls is that package's, also if it computes with xgrad (`jax.jit(to_jax(f))`).
    """
    frame, in_jax = sys._getframe(1), False
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package in _BETWEEN:
            in_jax = True
        elif in_jax:
            return package == "xgrad"
        frame = frame.f_back
    return False


class OwnPrograms(float):
    """A value of LEAST_TIME: 0 for programs that xgrad calls, and endless for others.

    JAX has one compile cache for a process, and compares this number where it has compiled a program.  Printed, and for
    a JAX that does otherwise, it is the number that was set before.
    """

    __slots__ = ()

    def __gt__(self, seconds: float) -> bool:
        return not xgrad_compiles() or seconds < 0


# -- canaries ---------------------------------------------------------------------------------------------------------


@cache
def _events() -> deque[str]:
    """Return JAX's last events since the first call."""
    seen: deque[str] = deque(maxlen=64)
    jax.monitoring.register_scalar_listener(lambda event, value, **_: seen.append(f"begin {event}"))
    jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
    jax.monitoring.register_event_duration_secs_listener(lambda event, duration_secs, **_: seen.append(event))
    return seen


def _compile() -> None:
    """Compile a program that no cache has."""
    now = time.time_ns() % 1_000_003
    jax.jit(lambda x: x + now)(0.5)


def _events_fire() -> bool:
    seen = _events()
    seen.clear()
    _compile()
    phases = {TRACED, LOWERED, COMPILED}
    expected = phases | {f"begin {phase}" for phase in phases} | {SOUGHT}
    return expected <= {*seen} or not jax.config.values["jax_enable_compilation_cache"]


def _least_time_is_compared() -> bool:
    asked = []

    class Asked(float):
        def __gt__(self, seconds: float) -> bool:
            return asked.append(seconds) is None  # True: it is not stored

    before = jax.config.values[LEAST_TIME]
    try:
        jax.config.update(LEAST_TIME, Asked(before))
        _compile()
    finally:
        jax.config.update(LEAST_TIME, before)
    return bool(asked) or not jax.config.values["jax_enable_compilation_cache"]


def _traces_differ() -> bool:
    found = [trace_state()]

    def look(x: Any) -> Any:
        found.append(trace_state())
        return x

    jax.jit(lambda x: jax.vmap(look)(look(x)))(np.ones(2))
    return len(found) == 3 and all(a != b for a, b in combinations(found, 2)) and trace_state() == found[0]


def _contexts_are_in_keys() -> bool:
    context, traced = user_context(0), []
    program = jax.jit(lambda x: traced.append(context.value) or x)
    for value in (1, 2, 1):
        with context(value):
            program(0.5)
    return traced == [1, 2]


def _equations_have_parameters() -> bool:
    (custom,) = jax.make_jaxpr(jax.nn.relu)(0.5).jaxpr.eqns
    (call,) = custom.params[CUSTOM_INNER].jaxpr.eqns
    loop = jax.make_jaxpr(lambda x: jax.lax.scan(lambda carry, y: (carry + x * y, carry), 0.0, np.ones(2)))(0.5)
    reads = call.params[NAME] == "relu" and len(call.params[INNER].jaxpr.eqns) > 0
    return reads and scan_counts(loop.jaxpr.eqns[-1]) == (1, 1)


def _traces_are_kept() -> bool:
    return _empty.trace().jaxpr.jaxpr is _empty.trace().jaxpr.jaxpr


def _calls_are_kept() -> bool:
    def program(x: Any) -> Any:
        (call,) = jax.make_jaxpr(jax.jit(lambda x: x * 2 + 1))(x).jaxpr.eqns
        with set_xla_metadata(**NOT_INLINED):
            return call.primitive.bind(x, **call.params)[0] * 3

    return " call(" in (jax.jit(program).lower(0.5).compile().as_text() or "") or jax.devices()[0].platform != "cpu"


# {what is expected: (a function that returns True if it is so, what follows if not)}
CANARIES: dict[str, tuple[Callable[[], bool], str]] = {
    "JAX's events of compiling fire": (_events_fire, "each write copies first, and the compile cache stays off"),
    "JAX compares times of compiling": (_least_time_is_compared, "others' programs may be in the compile cache"),
    "JAX's traces can be distinguished": (_traces_differ, "do not use xgrad within jax.jit, jax.vmap and their like"),
    "JAX's caches know user contexts": (_contexts_are_in_keys, "programs for chips that are not here may be wrong"),
    "JAX's equations have their parameters": (_equations_have_parameters, "compiled functions copy, or raise KeyError"),
    "JAX keeps a function's trace": (_traces_are_kept, "each write of many tensors copies first"),
    "XLA keeps calls that are not to be inlined": (_calls_are_kept, "deep chains take minutes to compile"),
}


def changed(canary: Callable[[], bool]) -> bool:
    """Return True if JAX has changed what a canary looks at."""
    try:
        return not canary()
    except Exception:
        return True
