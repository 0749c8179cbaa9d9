"""check: runs all checks of gradcheck; compares analytical with numerical derivatives, and raises if they differ.

Slow mode: each matrix J, element for element.  Fast mode: the numbers `v^T J u` for random u and v, which take two
runs of the function and one backward for each pair of input and output.  If every element of J may be off by `atol`,
such a number may be off by `atol * sum(u) * sum(v)`; the vectors are not negative, so that errors of one sign can't
cancel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tensor import Tensor, from_foreign
from .analytical import by_backward, by_forward, units
from .checks import check_batched, check_batched_forward, check_undefined, check_undefined_tangents, check_zero
from .entries import entries
from .error import GradcheckError
from .numerical import jacobians, slopes
from .problem import (
    Problem,
    backward_problems,
    check_inputs,
    check_outputs,
    differentiable,
    floats,
    forward_problems,
    run,
)

_SEED = 0  # for the random directions: a check that passes once always passes


@dataclass(frozen=True)
class Tolerances:
    """The arguments of gradcheck that define agreement."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    dtypes: bool
    fast: bool
    masked: bool

    def close(self, analytical: Any, numerical: Any, scale: float = 1.0) -> bool:
        """Return True if the numbers agree; `scale` multiplies the absolute tolerance."""
        return np.allclose(analytical, numerical, self.rtol, self.atol * scale)


def check(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    tolerances: Tolerances,
    *,
    backward: bool,
    forward: bool,
    batched: bool,
    batched_forward: bool,
    undefined: bool,
) -> None:
    """Run all checks that were asked for, the derivatives first.  Raises `GradcheckError`."""
    check_inputs(inputs)
    returned = run(func, inputs)
    check_outputs(returned)
    compare = _compare_fast if tolerances.fast else _compare
    if backward:
        for problem in backward_problems(func, inputs, returned):
            compare(problem, tolerances)
    if forward:
        problems = forward_problems(func, inputs, returned)
        for problem in problems:
            compare(problem, tolerances)
        if undefined:
            for problem in problems:
                check_undefined_tangents(problem)
    if batched_forward:
        check_batched_forward(Problem(func, inputs, returned, True))
    if not backward:
        return
    wanted = [x for _, x in differentiable(inputs)]
    outputs = [x for _, x in differentiable(returned)]
    if batched:
        for i, output in enumerate(outputs):
            check_batched(output, i, wanted)
    check_zero(outputs, wanted, tolerances.masked)
    if undefined:
        check_undefined(func, inputs, wanted)


def _compare(problem: Problem, tolerances: Tolerances) -> None:
    """Compare element for element."""
    moved = problem.moved(tolerances.masked)
    numerical = [jacobians(moved.evaluate, x, _floats(problem), tolerances.eps) for _, x in moved.wanted]
    if _constant(problem, numerical):
        return
    analytical = _analytical(problem, tolerances)
    for o, _ in enumerate(problem.outputs):
        for i, _ in enumerate(problem.wanted):
            a, n = analytical[i][o], numerical[i][_column(problem, o)]
            if not tolerances.close(a, n):
                raise GradcheckError(_mismatch(problem, o, i, a, n) + _largest(problem, o, i, a, n))


def _floats(problem: Problem) -> list[Tensor]:
    return [x for _, x in floats(problem.returned)]


def _column(problem: Problem, output: int) -> int:
    """Return the number of a differentiable output among those that can have derivatives."""
    place = problem.outputs[output][0]
    return [i for i, _ in floats(problem.returned)].index(place)


def _constant(problem: Problem, numerical: list[list[np.ndarray]], tolerance: float = 0.0) -> bool:
    """Return True if no output requires grad.  Raises `GradcheckError` if an output depends on inputs all the same."""
    if problem.outputs:
        return False
    if any(np.abs(n).max(initial=0) > tolerance for row in numerical for n in row):
        raise GradcheckError(
            "Numerical gradient for function expected to be zero, because none of its outputs requires grad"
        )
    return True


def _analytical(problem: Problem, tolerances: Tolerances) -> list[list[np.ndarray]]:
    """Return for each input and each differentiable output the matrix that autograd gives."""
    if problem.forward:
        chosen = [_column(problem, o) for o, _ in enumerate(problem.outputs)]
        found = [by_forward(problem, place, units(x), tolerances.dtypes) for place, x in problem.wanted]
        return [[row[k] for k in chosen] for row in found]
    wanted = [x for _, x in problem.wanted]
    columns = [
        by_backward(output, wanted, list(units(output)), tolerances.nondet_tol, tolerances.dtypes)
        for _, output in problem.outputs
    ]
    return [[column[i] for column in columns] for i, _ in enumerate(wanted)]


def _compare_fast(problem: Problem, tolerances: Tolerances) -> None:
    """Compare along one random direction of each input, and for backward one of each output."""
    random = np.random.default_rng(_SEED)
    moved = problem.moved(tolerances.masked)
    us = [tuple(_direction(random, x) for _ in range(2 if x.is_complex() else 1)) for _, x in moved.wanted]
    vs = [None if problem.forward else _direction(random, x) for _, x in problem.outputs]
    numerical = [slopes(moved.evaluate, x, u, tolerances.eps) for (_, x), u in zip(moved.wanted, us, strict=True)]
    if _constant(problem, numerical, tolerances.nondet_tol):
        return
    analytical = _analytical_fast(problem, us, vs, tolerances)
    for i, u in enumerate(us):
        for o, v in enumerate(vs):
            a, n = analytical[i][o], numerical[i][_column(problem, o)]
            scale = float(sum(part.sum() for part in u))
            if v is not None:
                n, scale = v @ n, scale * float(v.sum())
            if not tolerances.close(a, n, scale):
                raise GradcheckError(_mismatch(problem, o, i, a, n) + _elements(problem, o, i, tolerances))


def _direction(random: Any, x: Tensor) -> np.ndarray:
    """Return a random unit vector as long as `x`, without negative entries; zero where a sparse `x` has no entry."""
    vector = np.zeros(x.numel())
    vector[entries(x)[1]] = random.uniform(size=entries(x)[1].size)
    return (vector / max(float(np.linalg.norm(vector)), 1e-30)).astype(np.abs(np.zeros(0, x.dtype)).dtype)


def _analytical_fast(problem: Problem, us: list[tuple], vs: list, tolerances: Tolerances) -> list[list[Any]]:
    shapes = [tuple(x.shape) for _, x in problem.wanted]
    if problem.forward:
        chosen = [_column(problem, o) for o, _ in enumerate(problem.outputs)]
        found = [
            by_forward(problem, place, [u[0].reshape(shape)], tolerances.dtypes)
            for (place, _), u, shape in zip(problem.wanted, us, shapes, strict=True)
        ]
        return [[row[k][0] for k in chosen] for row in found]
    wanted = [x for _, x in problem.wanted]
    columns = [
        by_backward(output, wanted, [v.reshape(output.shape)], tolerances.nondet_tol, tolerances.dtypes)
        for (_, output), v in zip(problem.outputs, vs, strict=True)
    ]
    return [[_along(column[i][:, 0], u) for column in columns] for i, u in enumerate(us)]


def _along(gradient: np.ndarray, u: tuple) -> Any:
    """Return the gradient times the direction; for a complex input x + iy, that along x and i times that along y."""
    return gradient @ u[0] if len(u) == 1 else np.real(gradient) @ u[0] + 1j * (np.imag(gradient) @ u[1])


# -- the report -------------------------------------------------------------------------------------------------------


def _show(values: Any) -> Any:
    return from_foreign(values) if isinstance(values, np.ndarray) and values.ndim else values


def _mismatch(problem: Problem, output: int, input: int, analytical: Any, numerical: Any) -> str:
    mode = "computed with forward mode " if problem.forward else ""
    return (
        f"{problem}Jacobian {mode}mismatch for output {output} with respect to input {input},\n"
        f"numerical:{_show(numerical)}\nanalytical:{_show(analytical)}\n"
    )


def _largest(problem: Problem, output: int, input: int, analytical: np.ndarray, numerical: np.ndarray) -> str:
    """Return a text on the largest difference and its likely cause."""
    (place_in, x), (place_out, y) = problem.wanted[input], problem.outputs[output]
    gap = np.abs(analytical - numerical)
    worst = np.unravel_index(int(np.argmax(np.where(np.isnan(gap), np.inf, gap))), gap.shape)
    element_in, element_out = (
        tuple(int(k) for k in np.unravel_index(int(n), tuple(t.shape))) for n, t in zip(worst, (x, y), strict=True)
    )
    text = (
        f"The largest difference is {gap[worst]}: the derivative of element {element_out} of result {place_out} "
        f"with respect to element {element_in} of argument {place_in} is {analytical[worst]}, "
        f"and numerically {numerical[worst]}.\n"
    )
    if x.dtype.itemsize < (16 if x.is_complex() else 8):
        text += f"In {x.dtype.name} finite differences may be mostly rounding: give gradcheck float64 or complex128.\n"
    return text


def _elements(problem: Problem, output: int, input: int, tolerances: Tolerances) -> str:
    """Compare element for element, for the report of fast mode."""
    (place, x), (_, y) = problem.wanted[input], problem.outputs[output]
    column, moved = _column(problem, output), problem.moved(tolerances.masked)
    numerical = jacobians(moved.evaluate, moved.wanted[input][1], _floats(problem), tolerances.eps)[column]
    if problem.forward:
        analytical = by_forward(problem, place, units(x), False)[column]
    else:
        analytical = by_backward(y, [x], list(units(y)), float("inf"), False)[0]
    text = (
        "\nThese are along the random directions of fast mode. Below, numerical and analytical jacobians in slow mode:"
        f"\n\nNumerical:\n {_show(numerical)}\nAnalytical:\n{_show(analytical)}\n\n"
        f"The max per-element difference (slow mode) is: {np.abs(numerical - analytical).max(initial=0)}.\n"
    )
    if tolerances.close(analytical, numerical):
        text += "Fast gradcheck failed but element-wise differences are small: it would pass with fast_mode=False.\n"
        return text
    return text + _largest(problem, output, input, analytical, numerical)
