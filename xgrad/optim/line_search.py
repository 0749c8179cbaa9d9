"""strong_wolfe: LBFGS's line search for the strong Wolfe conditions, by cubic interpolation (torch/optim/lbfgs.py).

Source: Nocedal and Wright, Numerical optimization, algorithms 3.5 and 3.6.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

_DECREASE, _CURVATURE = 1e-4, 0.9
_CHANGE = 1e-9  # a bracket in which the parameters change less is not looked into


class Point(NamedTuple):
    """A point on the line: its place, the loss, the gradient, and the gradient along the line."""

    t: float
    loss: float
    grad: Any
    slope: float


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, t: float, longest: float, most: int
) -> tuple[Point, int]:
    """Return a point that satisfies the conditions, or the lowest one that was found, and the number of evaluations.

    t: the first step.  longest: the largest element of the direction.  most: rounds.
    """

    def too_high(point: Point) -> bool:
        return point.loss > start.loss + _DECREASE * point.t * start.slope

    def flat(point: Point) -> bool:
        return abs(point.slope) <= -_CURVATURE * start.slope

    # A bracket around a point that satisfies them.
    before, now, count = start, evaluate(t), 0
    while count < most:
        if too_high(now) or (count > 1 and now.loss >= before.loss):
            bracket = [before, now]
            break
        if flat(now):
            return now, count + 1
        if now.slope >= 0:
            bracket = [before, now]
            break
        t = _cubic(before, now, (now.t + 0.01 * (now.t - before.t), now.t * 10))
        before, now, count = now, evaluate(t), count + 1
    else:
        bracket = [start, now]

    # The bracket becomes smaller.
    low = int(not bracket[0].loss <= bracket[1].loss)
    stuck = False
    while count < most:
        first, last = sorted(point.t for point in bracket)
        if (last - first) * longest < _CHANGE:
            break
        t = _cubic(bracket[0], bracket[1], (first, last))
        margin = 0.1 * (last - first)
        if min(last - t, t - first) < margin:
            # Close to an end a second time, or at it: a tenth away from it.
            if stuck or t >= last or t <= first:
                t = last - margin if abs(t - last) < abs(t - first) else first + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        now, count = evaluate(t), count + 1
        if too_high(now) or now.loss >= bracket[low].loss:
            bracket[1 - low] = now
            low = int(not bracket[0].loss <= bracket[1].loss)
            continue
        if flat(now):
            return now, count + 1
        if now.slope * (bracket[1 - low].t - bracket[low].t) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = now
    return bracket[low], count + 1


def _cubic(a: Point, b: Point, bounds: tuple[float, float]) -> float:
    """Return the place of the lowest point of the cubic through two points with their slopes, within bounds."""
    if a.t > b.t:
        a, b = b, a
    least, most = bounds
    try:
        d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
        d2 = math.sqrt(d1 * d1 - a.slope * b.slope)
        above, below = b.slope + d2 - d1, b.slope - a.slope + 2 * d2
        # A line has no lowest point but at an end: as PyTorch's tensors, which divide by zero.
        share = above / below if below or not above else math.copysign(math.inf, above)
        place = b.t - (b.t - a.t) * share
    except (ValueError, ZeroDivisionError, OverflowError):  # no lowest point
        return (least + most) / 2
    return min(max(place, least), most)
