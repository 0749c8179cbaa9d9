"""Half precision accumulates in float32: values, gradients and second derivatives of every operator of the table.

Of each operator's program no sum, product or scan may have a half as its result: a half that sums to 5000 ones is 256
or 2048.  That is checked in the traced programs, of the samples that the table has.
"""

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr

from xgrad.autograd import forward_ad
from xgrad.dispatch.operator import Operator
from xgrad.dispatch.samples import FIRST_ORDER, SINGLE, Sample
from xgrad.tensor import from_array

from .test_table import Case, directions, gradient, read, rows

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
ACCUMULATING = {
    "reduce_sum", "reduce_prod", "dot_general", "conv_general_dilated", "cumsum", "cumprod", "cumlogsumexp",
    "reduce_window_sum", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul", "select_and_scatter_add",
}  # fmt: skip


def in_halves(program: Any) -> set[str]:
    """The names of what accumulates to a half in a program and in those that it calls."""
    found = set()
    for equation in program.eqns:
        if equation.primitive.name in ACCUMULATING and equation.outvars[0].aval.dtype in HALVES:
            found.add(equation.primitive.name)
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: isinstance(v, ClosedJaxpr | Jaxpr)):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                found |= in_halves(getattr(value, "jaxpr", value))
    return found


def value(case: Case) -> set[str]:
    return in_halves(jax.make_jaxpr(lambda *a: read(case.called(*map(from_array, a))))(*case.arrays))


def first(case: Case) -> set[str]:
    return in_halves(case.gradients.program)


def second(case: Case) -> set[str]:
    arrays, weights = [*case.arrays, *case.cotangents], directions(case.arrays, 40)
    n = len(arrays)

    def twice(*given: Any) -> list:
        _, leaves, found = case.recorded(*given[:n], create_graph=True)
        kept = [(g, from_array(w)) for g, w in zip(found, given[n:], strict=True) if g.requires_grad]
        return read(gradient([g for g, _ in kept], leaves, [w for _, w in kept]))

    return in_halves(jax.make_jaxpr(twice)(*arrays, *weights))


def tangent(case: Case) -> set[str]:
    n = len(case.arrays)

    def forward(*arrays: Any) -> list:
        with forward_ad.dual_level():
            duals = [forward_ad.make_dual(from_array(a), from_array(v)) for a, v in zip(arrays[:n], arrays[n:])]
            found = [forward_ad.unpack_dual(o) for o in case.with_gradient(case.called(*duals))]
            return read([f.primal if f.tangent is None else f.tangent for f in found])

    return in_halves(jax.make_jaxpr(forward)(*case.arrays, *case.along))
