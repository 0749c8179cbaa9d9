"""dependence: finds the arguments on which a JAX function's results depend, to decide if gradients require grad.

A backward takes all values that its formula names, though the gradient of `amax` is a mask, and the gradient of an
addend constant.  A recorded gradient must not require grad by an argument on which it does not depend: `requires_grad`
and the `strict` checks of `autograd.functional` show it, and PyTorch's formulas, which are written out, have no such
dependence.

PyTorch is as exact as a program in the first derivative, and in all of a multilinear operator; beyond, it goes on to
differentiate x**3 a fourth time, and so does xgrad.  A mask that a comparison made has no derivative.  PyTorch's
formulas end there for the operators in `MASKED`; for others (relu) it differentiates the mask, which gives zeros.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ..base.jax_compat import CUSTOM_INNER, INNER


def _named(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Operators whose gradient is the incoming one at elements that a comparison or an index selects.
MASKED = _named("""
    aminmax amax amin clamp clamp_max clamp_min embedding_bag fmax fmin frexp hinge_embedding_loss index_reduce
    margin_ranking_loss nanmean nansum scatter_reduce special_xlog1py
    max max.all max.dim maximum median.all min min.all min.dim minimum nan_to_num nanmedian.all nanquantile nextafter
    quantile sgn angle xlogy
""")

# Operators whose first derivative PyTorch differentiates, though it only selects elements.
DIFFERENTIATED = frozenset(
    f"{kind}max_pool{n}d{form}" for kind in ("", "adaptive_") for n in (1, 2, 3) for form in ("", "_with_indices")
)

_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call")  # equations that call a program with the same arguments


def dependence(
    function: Callable[..., Any], arguments: Sequence[Any], masked: bool = False
) -> tuple[tuple[bool, ...], list[tuple[bool, ...]]]:
    """Return for each argument (shape and dtype, a number, or None) whether any result depends on it; and the same for
    each result.

    `masked`: dependence through integers and bools, which have no derivative, does not count.  The answer may be true
    without need, but never false where a result depends on the argument.
    """
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    count = len(program.outvars)
    each = []
    for i in range(count):
        operands = iter(_live(program, [i == n for n in range(count)], masked))
        each.append(tuple(a is not None and next(operands) for a in arguments))
    return tuple(map(any, zip(*each, strict=True))), each


def _live(program: Any, wanted: Sequence[bool], masked: bool) -> list[bool]:
    """Return for each argument of a program whether one of the wanted results depends on it."""
    live = {id(v) for v, it in zip(program.outvars, wanted, strict=True) if it and _counts(v, masked)}
    for equation in reversed(program.eqns):
        needed = [id(v) in live for v in equation.outvars]
        if not any(needed):
            continue
        inner = equation.params.get(INNER, equation.params.get(CUSTOM_INNER))
        through = [True] * len(equation.invars)
        if equation.primitive.name in _CALLS and len(inner.jaxpr.invars) == len(equation.invars):
            through = _live(inner.jaxpr, needed, masked)
        live.update(id(v) for v, it in zip(equation.invars, through, strict=True) if it and _counts(v, masked))
    return [id(v) in live for v in program.invars]


def _counts(value: Any, masked: bool) -> bool:
    return not masked or jnp.issubdtype(value.aval.dtype, jnp.inexact)
