"""in_single: makes a function compute half precision in float32 and round once (PyTorch: `acc_type`, `opmath_type`).

A sum of 5000 ones in bfloat16 ends at 256, and squares in float16 are infinite from 256 on.  So an operator that does
more than move or compare numbers runs on float32 copies of its operands in half precision, as do its formulas; XLA
fuses the casts.  Float32 and float64 programs are as they were.

A product of two such copies is the exception: its operands stay halves, which matrix units take at twice the rate or
more, and only its sums are in float32.  That is the same number, as a product of two halves is exact in float32.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...base.dtypes import bfloat16, float16
from ...base.jax_compat import INNER, jaxprs
from ...base.platforms import traced_for
from .parts import run_equation

HALVES = frozenset((float16, bfloat16))
# Before jax 0.10 a convolution of halves with a result in float32 has no transpose: there its operands are copies.
_PRODUCTS = ("dot_general", "conv_general_dilated")[: 2 if jax.__version_info__ >= (0, 10) else 1]
_OLD = jax.__version_info__ < (0, 8, 3)
_CALLS = ("jit", "pjit")
# A float32 copy that is moved is the copy of the half that is moved.
_MOVES = ("transpose", "reshape", "broadcast_in_dim", "squeeze", "rev", "slice", "expand_dims")


def is_half(x: Any) -> bool:
    """Return whether an array has half precision."""
    return getattr(x, "dtype", None) in HALVES


def widen(x: Any) -> Any:
    """Cast half precision to float32."""
    return x.astype(jnp.float32) if is_half(x) else x


def precision_of(*operands: Any) -> Any:
    """Return the precision to ask for a product with sums in float32: halves need none, their products are exact.

    XLA's TPU compiler fails with attention in bfloat16 if more is asked for ("Bad lhs type").
    """
    return jax.lax.Precision.DEFAULT if all(map(is_half, operands)) else None


def _narrow(x: Any, dtype: Any, most: int) -> Any:
    """Round to a half what was computed of `most` numbers.

    Of a sum that is rounded at once XLA's TPU compiler makes one in bfloat16: the rounding is an operation of its own.
    """
    if dtype == bfloat16 and x.dtype == jnp.float32 and x.size < most:
        x = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return x.astype(dtype)


def summed(array: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    """Sum over `axes`, in float32 where the array is a half, to an array of its dtype."""
    wide = widen(array)
    return _narrow(jnp.sum(wide, axis=axes, keepdims=keepdims, dtype=wide.dtype), array.dtype, array.size)


def in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that computes half precision in float32, and gives results of the same dtypes.

    A static argument `dtype` that is a half is a cast to it of what is summed, and the dtype of the result.
    """
    pure, statics = getattr(function, "func", function), getattr(function, "keywords", {})
    to = statics.get("dtype")
    inner = functools.partial(pure, **{**statics, "dtype": jnp.dtype("float32")}) if to in HALVES else function

    def rounded(*args: Any) -> Any:
        if to in HALVES:
            args = tuple(x if x is None else jnp.asarray(x).astype(to) for x in args)
        leaves, tree = jax.tree.flatten(args)
        if not any(map(is_half, leaves)):
            return function(*args)
        with np.errstate(over="ignore"):  # a count of 70000 is infinite in float16, where only dtypes are wanted
            like = jax.eval_shape(function, *args)
        wide = [widen(x) for x in leaves]
        program, shapes = jax.make_jaxpr(inner, return_shape=True)(*jax.tree.unflatten(tree, wide))
        out, _ = _evaluate(program, wide, [x if is_half(x) else None for x in leaves])
        out = jax.tree.unflatten(jax.tree.structure(shapes), out)
        most = max(x.size for x in leaves if is_half(x))
        return jax.tree.map(lambda x, like: _narrow(x, like.dtype, most), out, like)

    rounded.__name__ = pure.__name__
    return rounded


def _evaluate(program: Any, operands: list, halves: list) -> tuple[list, list]:
    """Evaluate a program with products of halves; `halves`: the half-precision original of an operand that is a float32
    copy, else None.

    Returns the results, and the half-precision originals that they are copies of.
    """
    jaxpr, core = program.jaxpr, jaxprs()
    if not _multiplies(jaxpr):
        return core.jaxpr_as_fun(program)(*operands), [None] * len(jaxpr.outvars)
    on_cpu = traced_for() == "cpu"
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*program.consts, *operands), strict=True))
    narrow = dict(zip(jaxpr.invars, halves, strict=True))

    def half_of(v: Any) -> Any:
        return None if isinstance(v, core.Literal) else narrow.get(v)

    def read(v: Any) -> Any:
        return v.val if isinstance(v, core.Literal) else values[v]

    for equation in jaxpr.eqns:
        primitive, params, variables = equation.primitive, equation.params, equation.invars
        small, moved = [half_of(v) for v in variables], []
        if primitive.name in _CALLS:
            out, moved = _evaluate(params[INNER], [read(v) for v in variables], small)
        elif (
            None not in small
            and primitive.name in _PRODUCTS
            and small[0].dtype == small[1].dtype
            and not (on_cpu and _refused(equation))
        ):
            exact: dict[str, Any] = {"preferred_element_type": jnp.dtype("float32")}
            if not on_cpu:
                exact["precision"] = None
            out = [primitive.bind(*small, **{**params, **exact})]
        else:
            out = run_equation(jaxpr, equation, values)
            if primitive.name in _MOVES and small[0] is not None:
                moved = [primitive.bind(small[0], *[read(v) for v in variables[1:]], **params)]
        values.update(zip(equation.outvars, out, strict=True))
        narrow.update(zip(equation.outvars, moved, strict=False))
    return [read(v) for v in jaxpr.outvars], [half_of(v) for v in jaxpr.outvars]


def _refused(equation: Any) -> bool:
    """Return True for a product that XLA's CPU compiler may refuse, where the processor has bfloat16.

    ("BF16 x BF16 = F32".)  Those with one free dimension on a side and several on the other or several sums; before jax
    0.8.3 others too.
    """
    if equation.primitive.name != "dot_general":
        return False
    (sums, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = [v.aval.ndim - len(sums) - len(batch) for v in equation.invars]
    if _OLD and left + right + len(sums) + len(batch) > 3:
        return True
    return min(left, right) == 1 and (len(sums) > 1 or right > 1)


def _multiplies(jaxpr: Any) -> bool:
    """Return whether a program, or one that it calls, contains a product."""
    return any(
        e.primitive.name in _PRODUCTS or (e.primitive.name in _CALLS and _multiplies(e.params[INNER].jaxpr))
        for e in jaxpr.eqns
    )
