"""Computes gradcheck's numerical Jacobians by central differences along u: (f(x + eps u) - f(x - eps u)) / (2 eps).

Invariant: the input is changed in place and has its old value again afterwards, also when the function raises.  It is
changed behind autograd's back (`.data`), so that the function may differentiate with respect to it.

A complex input z = x + iy is moved along x and along y.  For a real function the two slopes make one number,
ds/dx + i ds/dy: the conjugate Wirtinger derivative times two, which is what backward gives
(Boeddeker et al., arXiv:1701.00392, section 3.5.3).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...execution.runner import transferred
from ...ops.create.factories import like as placement
from ...tensor import Tensor, from_foreign
from .entries import entries, host

Evaluate = Callable[[], Sequence[Tensor]]


def placed(values: np.ndarray, like: Tensor) -> Tensor:
    """Return a tensor of these values, on the devices of `like`; replicated there, if the shape is another."""
    return from_foreign(transferred(values, placement(like, values.shape == tuple(like.shape))))


def jacobians(evaluate: Evaluate, target: Tensor, outputs: Sequence[Tensor], eps: float) -> list[np.ndarray]:
    """Return a matrix for each output: a row for each element of `target`, a column for each element of the output."""
    data, places = entries(target)
    values = host(data)
    step = np.zeros_like(values)
    rows = []
    for place in np.ndindex(values.shape):
        step[place] = eps
        rows.append(_slopes(evaluate, data, values, (step, step), eps, place))
        step[place] = 0
    dtypes = [target.dtype if target.is_complex() else o.dtype for o in outputs]
    matrices = [np.zeros((target.numel(), o.numel()), dtype) for o, dtype in zip(outputs, dtypes, strict=True)]
    for place, row in zip(places, rows, strict=True):
        for matrix, slope in zip(matrices, row, strict=True):
            matrix[place] = slope
    return matrices


def slopes(evaluate: Evaluate, target: Tensor, direction: tuple[Any, ...], eps: float) -> list[np.ndarray]:
    """Return each Jacobian times `direction`, which is (u,), or (u, v) for a complex target.

    For a complex target the result is the slope along u plus i times the slope along iv.
    """
    data, places = entries(target)
    values = host(data)
    again = np.ones(places.size, bool)
    again[np.unique(places, return_index=True)[1]] = False  # if a sparse tensor has an entry twice, one is changed
    steps = tuple((eps * np.where(again, 0, part[places])).reshape(values.shape) for part in direction)
    return _slopes(evaluate, data, values, steps, eps, None)


def _slopes(evaluate: Evaluate, data: Tensor, values: np.ndarray, steps: Any, eps: float, place: Any) -> list:
    along_x = _quotients(evaluate, data, values, steps[0], eps, place)
    if not np.iscomplexobj(values):
        return along_x
    if any(np.iscomplexobj(slope) for slope in along_x):
        raise AssertionError("Expected ds_dx to be real-valued, not complex: take real or imag of the output")
    along_y = _quotients(evaluate, data, values, 1j * steps[1], eps, place)
    return [x + 1j * y for x, y in zip(along_x, along_y, strict=True)]


def _quotients(evaluate: Evaluate, data: Tensor, values: np.ndarray, step: Any, eps: float, place: Any) -> list:
    try:
        data.copy_(placed((values - step).astype(values.dtype), data))
        before = [host(o) for o in evaluate()]
        data.copy_(placed((values + step).astype(values.dtype), data))
        after = [host(o) for o in evaluate()]
    finally:
        data.copy_(placed(values, data))
    where = "" if place is None else f"on index {place} "
    for a, b in zip(before, after, strict=True):
        for what, mine, other in (("shape", a.shape, b.shape), ("dtype", a.dtype, b.dtype)):
            if mine != other:
                raise AssertionError(
                    f"Expected `func` to return outputs with the same {what} when inputs are perturbed {where}by "
                    f"{eps}, but got: {what}s {mine} and {other}."
                )
    return [((b - a) / (2 * eps)).reshape(-1) for a, b in zip(before, after, strict=True)]
