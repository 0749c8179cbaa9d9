"""Raises `NumberOverflowError` for sums and products of integers beyond int32 while JAX's 64-bit mode is off.

PyTorch accumulates integers in int64.  An operator that does so has `overflows`, a function of its result, arrays and
static arguments: without x64 its program then has a second result, True if the first one is not the right number.  It
is read at once, which waits for the device, and evaluates a lazy block.  Under a trace there is nothing to read.

Invariant: `overflows` of a sum returns None, and adds nothing to the program, if size and dtype say that all sums fit.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..base import dtypes
from ..base.jax_compat import Tracer
from ..errors import NumberOverflowError
from ..tensor import Tensor, from_array
from .operator import Operator
from .promotion import wrap_dims

_HIGH = 2**31 - 1


def telling(op: Operator, function: Any, statics: dict[str, Any]) -> Any:
    """The operator's function, with the second result where one is needed."""

    def told(*arrays: Any) -> Any:
        out = function(*arrays)
        if dtypes.x64_enabled() or out.dtype != dtypes.int32:
            return out
        beyond = op.overflows(out, *arrays, **statics)
        return out if beyond is None else (out, beyond)

    told.__name__ = getattr(function, "func", function).__name__  # programs show it
    return told


def first_of(op: Operator, results: tuple[Any, Any]) -> Tensor:
    """The first of the two results; raises `NumberOverflowError` if the second one says that it is wrong."""
    beyond = from_array(results[1])._export("a sum of integers")
    if not isinstance(beyond, Tracer) and beyond.is_fully_addressable and np.asarray(beyond).any():
        raise NumberOverflowError(
            f"Overflow: {op.name}() of integers has a result that does not fit into int32, and JAX's 64-bit mode is "
            "off: enable it with jax.config.update('jax_enable_x64', True), or compute in floating point"
        )
    return from_array(results[0])


def sum_overflows(out: Any, self: Any, *, dim: Any = None, **_: Any) -> Any:
    """Add all numbers in 64 bits, of two halves: exact, for any number of them."""
    if self.dtype in dtypes.INEXACT:
        return None
    dims = wrap_dims(dim, self.ndim)
    if math.prod(self.shape[d] for d in dims) * _largest(self.dtype) <= _HIGH:
        return None
    low = self.astype(jnp.uint32)
    high = jnp.where(self < 0, -1, 0).astype(jnp.int32)

    def add(a: Any, b: Any) -> Any:
        total = a[0] + b[0]
        return total, a[1] + b[1] + (total < a[0]).astype(jnp.int32)

    low, high = jax.lax.reduce((low, high), (np.uint32(0), np.int32(0)), add, dims)
    return jnp.any(high != low.astype(jnp.int32) >> 31)


def cumsum_overflows(out: Any, self: Any, **_: Any) -> Any:
    """Look for the first sum whose sign differs from the sign of both its terms."""
    if self.dtype in dtypes.INEXACT or not self.ndim or self.size * _largest(self.dtype) <= _HIGH:
        return None
    x = self.astype(jnp.int32)
    return jnp.any(((((out - x) ^ out) & (x ^ out)) < 0) | ((x < 0) != (self < 0)))


# Operators that add products or what they scatter, and those that multiply.
_COMPARED = frozenset({
    "addbmm", "addmm", "addmv", "baddbmm", "bmm", "cumprod", "dot", "einsum", "_fit", "index_add", "index_put", "inner",
    "linalg_multi_dot", "linalg_vecdot", "linear", "matmul", "mm", "mv", "prod", "put", "scatter", "scatter_add",
    "scatter_reduce", "tensordot", "trace", "vdot",
})  # fmt: skip


def compared_overflows(op: Operator) -> Any:
    """The answer for these operators: the comparison of the result with that in floating point.

    What wrapped around is off by 2**32 or more; a result in floating point that fits by less than half of it, unless
    terms beyond 2**50 cancel.  A product with a zero may be NaN there, and is right.  None for other operators.
    """
    if op.name not in _COMPARED:
        return None

    def overflows(out: Any, *arrays: Any, **statics: Any) -> Any:
        if statics.get("accumulate") is False or statics.get("reduce", "sum") in (None, "amax", "amin"):
            return None
        if statics.get("reduce") == "mean":
            return overflows(op.function(*arrays, **(as_sum := {**statics, "reduce": "sum"})), *arrays, **as_sum)
        names = (*op.parameters, *[op.variadic] * len(arrays))
        about = op.function(
            *[a if a is None or name in ("index", "indices") else jnp.float32(a) for name, a in zip(names, arrays)],
            **({**statics, "dtype": jnp.float32} if "dtype" in statics else statics),
        )
        return jnp.any(jnp.abs(about - out) > 2.0**31)

    return overflows


def _largest(dtype: Any) -> int:
    return 1 if dtype == dtypes.bool else max(-int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
