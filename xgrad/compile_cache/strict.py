"""Strict: programs in which XLA keeps to IEEE arithmetic, as one program of many operators must give what many give.

XLA's algebraic simplifier takes real numbers for granted: it makes x of `(x + c) - c` and of `log(exp(x))`,
`a / (b * c)` of `(a / b) / c`, which is 0 or inf where `b * c` leaves the range, and `a * (1 / b)` of a division by one
number.  It is off for all programs of xgrad's, and so is XLA's right to skip a rounding to half precision between two
operations.  XGRAD_ALGEBRA=fast in the environment leaves both on in all programs; `xgrad.compile(options=
{"xla_disable_hlo_passes": ""})` leaves the simplifier on in one.
(XLA: xla/hlo/transforms/simplifiers/algebraic_simplifier.cc; xla/xla.proto.)
"""

import os
from collections.abc import Callable
from typing import Any

import jax
from jax.core import Tracer
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir

_ALGEBRA = ("strict", "fast")
_asked: str = os.environ.get("XGRAD_ALGEBRA", "strict")
if _asked not in _ALGEBRA:
    raise ValueError(f"XGRAD_ALGEBRA is 'strict' or 'fast', but got {_asked!r}")
# XLA takes these names on CPUs, GPUs and TPUs.
OPTIONS: dict[str, Any] = (
    {} if _asked == "fast" else {"xla_disable_hlo_passes": "algsimp", "xla_allow_excess_precision": False}
)


def _pad(context: Any, array: Any, value: Any, *, padding_config: Any) -> Any:
    """Lower `lax.pad`; a negative padding as a slice, of which the simplifier would make one for XLA's CPU compiler."""
    low, high, between = zip(*padding_config) if padding_config else ((), (), ())
    grown = [[max(n, 0) for n in low], [max(n, 0) for n in high], between]
    out = stablehlo.pad(array, value, *map(ir.DenseI64ArrayAttr.get, grown))
    if min((0, *low, *high)) < 0:
        starts = [max(-n, 0) for n in low]
        ends = [start + n for start, n in zip(starts, context.avals_out[0].shape)]
        out = stablehlo.slice(out, *map(ir.DenseI64ArrayAttr.get, (starts, ends, [1] * len(starts))))
    return [out]


mlir.register_lowering(jax.lax.pad_p, _pad)


def strict_jit(function: Callable[..., Any], options: dict[str, Any] | None = None, **jit_options: Any) -> Any:
    """Return `jax.jit` of a function that no trace of JAX's calls; `options` are further options of XLA's."""
    return jax.jit(function, compiler_options={**OPTIONS, **(options or {})}, **jit_options)


def is_nested(error: Exception) -> bool:
    """Return True for JAX's error of a program with options within a trace: JAX takes them for the outermost only."""
    return isinstance(error, ValueError) and "compiler_options" in str(error)


class Strict:
    """A jitted function of arrays and numbers, which may also be called within a trace of JAX's.

    There `inner` is called, `jax.jit`'s function without options, which becomes a part of the outermost program.
    """

    __slots__ = ("_inner", "_options", "function", "run")
    function: Callable[..., Any]
    run: Any  # `jax.jit`'s function with options

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.function, self._options, self._inner = function, options, None
        self.run = strict_jit(function, **options)

    @property
    def inner(self) -> Any:
        """`jax.jit`'s function for a trace."""
        if self._inner is None:
            self._inner = jax.jit(self.function, **self._options)
        return self._inner

    def now(self, *operands: Any) -> Any:
        """Run the program, or make it a part of the trace."""
        if self._inner is not None and any(isinstance(x, Tracer) for x in operands):
            return self._inner(*operands)
        try:
            return self.run(*operands)
        except ValueError as error:
            if not is_nested(error):
                raise
        return self.inner(*operands)

    __call__ = now

    @property
    def lower(self) -> Any:
        """`jax.jit`'s `lower`."""
        return self.run.lower
