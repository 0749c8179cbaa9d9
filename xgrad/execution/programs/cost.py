"""Cost: gets from XLA the FLOPs, operations, memory traffic and temporary memory of a compiled program.

XLA's reports differ between backends and releases of JAX: a number that is missing is None here, never a guess.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ...base.jax_compat import user_context
from .folder import cache_off

_fresh: Any = user_context()  # with a new value, JAX knows no trace that was made before

# Instructions that name, pass or regroup values, and compute none.
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "fusion", "call"}
# `ROOT %name = f32[4,4]{1,0} add(...)`; of a tuple-shaped result the shape stands in parentheses.
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([\w\-]+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """The cost of one compiled program, or of several together; None where XLA does not say.

    `operations`: HLO instructions after optimization, inside of fusions too, without those that compute nothing.
    `flops`, `bytes_accessed`: XLA's own estimates.  `temporary_bytes`: scratch memory beside arguments and results.
    `compile_seconds`: the median time to trace, lower and compile it, without any cache.
    """

    operations: int | None = None
    flops: float | None = None
    bytes_accessed: float | None = None
    temporary_bytes: int | None = None
    compile_seconds: float | None = None


def together(costs: Sequence[tuple[Cost, int]]) -> Cost:
    """Return the cost of several programs, each compiled once and run `n` times, one after the other."""

    def total(parts: list) -> Any:
        return None if None in parts else sum(parts)

    temporary = [c.temporary_bytes for c, _ in costs]
    return Cost(
        operations=total([c.operations and c.operations * n for c, n in costs]),
        flops=total([c.flops and c.flops * n for c, n in costs]),
        bytes_accessed=total([c.bytes_accessed and c.bytes_accessed * n for c, n in costs]),
        temporary_bytes=None if None in temporary else max((t for t in temporary if t is not None), default=0),
        compile_seconds=total([c.compile_seconds for c, _ in costs]),
    )


def operations_of(hlo: str) -> Counter:
    """Count each operation in the text of an HLO module, without those that compute nothing.

    >>> operations_of('''
    ... ENTRY %main (x: f32[4]) -> f32[4] {
    ...   %x = f32[4]{0} parameter(0)
    ...   ROOT %y.1 = f32[4]{0} add(%x, %x), metadata={op_name="add"}
    ... }''')
    Counter({'add': 1})
    """
    return Counter(name for name in _INSTRUCTION.findall(hlo) if name not in _FREE)


def compiled(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    donate: Sequence[int] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Any, float]:
    """Compile a new program of `function`; return it and the seconds that it took without any cache.

    Neither what JAX has in memory, of `function` and of all that it calls, nor the compile cache's folder is looked at.
    """

    def fresh(*args: Any) -> Any:  # JAX caches by function: a new one is traced and compiled again
        return function(*args)

    fresh.__name__ = getattr(function, "__name__", "program")
    with cache_off(), _fresh(object()):
        start = clock()
        program = jax.jit(fresh, donate_argnums=tuple(donate)).lower(*arguments).compile()
        return program, clock() - start


def cost_of(program: Any, compile_seconds: float | None = None) -> Cost:
    """Return the cost of a result of `jax.jit(...).lower(...).compile()`."""
    text = _asked(program.as_text)
    analysis = _asked(program.cost_analysis)
    if isinstance(analysis, (list, tuple)):  # one for each device, or for each program, on some releases
        analysis = analysis[0] if analysis else None
    analysis = analysis or {}
    memory = _asked(program.memory_analysis)
    return Cost(
        operations=operations_of(text).total() if text else None,  # a program that a chip refuses has no text
        # XLA omits what is zero, if it reports anything.
        flops=float(analysis.get("flops", 0.0)) if analysis else None,
        bytes_accessed=float(analysis.get("bytes accessed", 0.0)) if analysis else None,
        temporary_bytes=getattr(memory, "temp_size_in_bytes", None),
        compile_seconds=compile_seconds,
    )


def _asked(question: Callable) -> Any:
    """Return the answer, or None if the backend does not implement it."""
    try:
        return question()
    except (NotImplementedError, RuntimeError):  # XlaRuntimeError is a RuntimeError
        return None
