"""Runs an operator in each form that `python -m xgrad conform` checks: forward, gradient, in place and `out=`.

Each check returns the tensors that are compared with the reference.  Checks run on tensors of a device, or on tensors
over tracers, where all checks of an operator in one dtype become one program (execution.py).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd.backward import grad
from ..base import dtypes
from ..dispatch.call import call
from ..dispatch.inplace import call_inplace
from ..dispatch.out import call_out
from ..ops.create.factories import zeros
from ..tensor import Tensor
from .cases import Case, flat
from .phase import FIXED

FORWARD, GRADIENT, IN_PLACE, OUT = "forward", "gradient", "in place", "out="
Found = dict[str, list[Any]]


def fixed(case: Case, out: Any) -> list[Any]:
    """Return the results, freed from a choice of phases."""
    gauge = FIXED.get(case.op.name)
    return gauge(*out) if gauge else flat(out)


def forward(case: Case, tensors: list[Tensor]) -> Found:
    return {FORWARD: fixed(case, call(case.op, tuple(case.filled(tensors)), case.statics))}


def gradient(case: Case, tensors: list[Tensor]) -> Found:
    """The results and the gradients; the cotangents follow the arguments."""
    count = len(case.places)
    full = case.filled(tensors[:count])
    leaves = [full[i].requires_grad_() for i in case.moving]
    results = fixed(case, call(case.op, tuple(full), case.statics))
    outs = [o for o in results if o.requires_grad]
    found = grad(outs, leaves, tensors[count:], allow_unused=True) if outs else [None] * len(leaves)
    grads = [zeros(x.shape, dtype=x.dtype) if g is None else g for g, x in zip(found, leaves, strict=True)]
    return {FORWARD: results, GRADIENT: grads}


def in_place(case: Case, tensors: list[Tensor]) -> Found:
    args = case.filled(tensors)
    args[0] = args[0].clone()
    return {IN_PLACE: [call_inplace(case.op, tuple(args), case.statics)]}


def out(case: Case, tensors: list[Tensor]) -> Found:
    """The form `out=`, into empty tensors, which are resized."""
    args = tuple(case.filled(tensors))
    results = flat(call(case.op, args, case.statics))
    outs = [zeros((0,), dtype=r.dtype, device=r.device) for r in results]
    written = call_out(case.op, args, case.statics, outs[0] if case.op.outputs is None else tuple(outs))
    return {OUT: fixed(case, written)}


Function = Callable[[Case, list[Tensor]], Found]


def checks_of(case: Case, results: list[Any], forms: bool) -> list[Function]:
    """Return the checks that apply to a case; `results` are like its results, `forms`: with in-place form and out=."""
    found: list[Function] = [gradient if case.records and case.cotangents else forward]
    if forms and "inplace" in case.op.forms and _fits_in_place(case, results[0]):
        found.append(in_place)
    if forms and "out" in case.op.forms:
        found.append(out)
    return found


def _fits_in_place(case: Case, result: Any) -> bool:
    """Return True if the result has the shape of the first argument, and a dtype that can be written into it."""
    first = case.arguments[0]
    if not isinstance(first, np.ndarray):
        return False
    return result.shape == first.shape and (result.dtype == first.dtype or result.dtype == bool)


def with_gradient(case: Case, results: list[Any]) -> list[Any]:
    """Return the results that have a gradient."""
    return [o for i, o in enumerate(results) if o.dtype in dtypes.INEXACT and i not in case.op.constant]
