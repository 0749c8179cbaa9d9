"""Computes gradcheck's analytical Jacobians by backward and by forward mode: a row for each element of an input.

Backward gives a column at a time (the gradient of one element of the output), forward mode a row (the tangents that
one element of the input causes).
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...dispatch import tables
from ...tensor import Tensor
from ..backward import grad
from ..forward_ad import dual_level, make_dual, unpack_dual
from .entries import host
from .error import GradcheckError
from .numerical import placed
from .problem import Problem, floats, run

_zeros_like = tables.FUNCTIONS[""]["zeros_like"]


def units(like: Tensor) -> Iterable[np.ndarray]:
    """Yield each of the unit vectors, in the shape of a tensor."""
    for place in np.ndindex(tuple(like.shape)):
        unit = np.zeros(like.shape, like.dtype)
        unit[place] = 1
        yield unit


def by_backward(
    output: Tensor, wanted: Sequence[Tensor], cotangents: Sequence[np.ndarray], nondet_tol: float, check_dtypes: bool
) -> list[np.ndarray]:
    """Return a matrix for each input, with a column for each cotangent.  Raises if two runs of backward differ."""
    first = [_pulled(output, wanted, v, check_dtypes) for v in cotangents]
    second = [_pulled(output, wanted, v, False) for v in cotangents]
    matrices = [_columns(x, [row[i] for row in first]) for i, x in enumerate(wanted)]
    again = [_columns(x, [row[i] for row in second]) for i, x in enumerate(wanted)]
    for i, (a, b) in enumerate(zip(matrices, again, strict=True)):
        difference = np.abs(a - b).max(initial=0)
        if difference > nondet_tol:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                f"gives different values: the gradients of input {i} differ by {difference}. The tolerance for "
                f"nondeterminism was {nondet_tol}. If the operation is random by design, pass nondet_tol=<tol>."
            )
    return matrices


def _pulled(output: Tensor, wanted: Sequence[Tensor], v: np.ndarray, check_dtypes: bool) -> list[np.ndarray | None]:
    found = grad(output, wanted, placed(v, output), retain_graph=True, allow_unused=True)
    assert isinstance(found, tuple)
    for i, (gradient, x) in enumerate(zip(found, wanted, strict=True)):
        if check_dtypes and gradient is not None and gradient.dtype != x.dtype:
            raise GradcheckError(f"Gradient has dtype mismatch: {gradient.dtype.name} for input {i} of {x.dtype.name}")
    return [None if gradient is None else host(gradient) for gradient in found]


def _columns(x: Tensor, gradients: Sequence[np.ndarray | None]) -> np.ndarray:
    matrix = np.zeros((x.numel(), len(gradients)), x.dtype)
    for j, gradient in enumerate(gradients):
        if gradient is not None:
            matrix[:, j] = gradient.reshape(-1)
    return matrix


def tangents(problem: Problem, given: Mapping[int, Tensor], check_dtypes: bool = False) -> list[Tensor]:
    """Return the tangents of the outputs that can have one, from the inputs' tangents `given`; zeros for None."""
    with dual_level():
        arguments = list(problem.inputs)
        for i, x in problem.wanted:
            arguments[i] = make_dual(x.detach(), given[i]) if i in given else x.detach()
        found = []
        for _, output in floats(run(problem.function, arguments)):
            primal, tangent = unpack_dual(output)
            if check_dtypes and tangent is not None and tangent.dtype != primal.dtype:
                raise GradcheckError(
                    f"Forward AD gradient has dtype mismatch. The tangent is {tangent.dtype.name}, the output "
                    f"{primal.dtype.name}"
                )
            found.append(_zeros_like(primal.detach()) if tangent is None else tangent)
    return found


def still(problem: Problem) -> dict[int, Tensor]:
    """Return tangents of zeros for all inputs that require grad."""
    return {i: _zeros_like(x.detach()) for i, x in problem.wanted}


def by_forward(problem: Problem, place: int, directions: Iterable[np.ndarray], check_dtypes: bool) -> list[np.ndarray]:
    """Return a matrix for each output, with a row for each direction in which the input at `place` moves."""
    outputs = [x for _, x in floats(problem.returned)]
    rows: list[list[np.ndarray]] = [[] for _ in outputs]
    for direction in directions:
        given = still(problem) | {place: placed(direction, problem.inputs[place])}
        for row, tangent in zip(rows, tangents(problem, given, check_dtypes), strict=True):
            row.append(host(tangent).reshape(-1))
    return [
        np.stack(row) if row else np.zeros((0, output.numel()), output.dtype)
        for row, output in zip(rows, outputs, strict=True)
    ]
