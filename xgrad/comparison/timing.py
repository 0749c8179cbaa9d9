"""Times functions for `xgrad.compare` in turns (A B B A), so that a slow moment hits all, and says which is slower.

Invariant: which of two is slower is said only where chance hardly explains it.
"""

import math
import time
from collections.abc import Callable, Mapping
from statistics import median, quantiles
from typing import Any

from ..base.table import seconds

PATIENCE = 0.4  # seconds for each repeat: after them, a measurement is repeated only as often as it must be
WIDE = 0.2  # a spread of this part of the median has a warning
_CHANCE = 2.6  # standard deviations of the rank test: by chance, fewer than one comparison in a hundred

clock: Callable[[], float] = time.perf_counter


class Times(tuple[float, ...]):
    """The seconds of several runs of one thing, in order; it prints as their median and spread.

    >>> times = Times([0.010, 0.012, 0.011, 0.013])
    >>> times.median, f"{times.spread:.3f}", str(times)
    (0.0115, '0.065', '11.5 ms ±7%')
    """

    __slots__ = ()

    @property
    def median(self) -> float:
        return median(self)

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, as a part of the median; 0 for a single run."""
        if len(self) < 2 or not self.median:
            return 0.0
        low, _, high = quantiles(self, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    def __str__(self) -> str:
        return f"{seconds(self.median)} ±{self.spread:.0%}" if len(self) > 1 else seconds(self.median)


def slower(a: Times, b: Times) -> int:
    """Return 1 if `a` took longer than `b`, -1 if it took less, 0 if that cannot be said.

    It compares ranks, as Mann and Whitney do, so that a single interruption decides nothing.  If both are the same
    program, it gives another answer than 0 in less than one case of a hundred; with under five runs of each, always 0.
    """
    pairs = len(a) * len(b)
    won = sum((x > y) + (x == y) / 2 for x in a for y in b)
    z = (won - pairs / 2) / math.sqrt(pairs * (len(a) + len(b) + 1) / 12)
    return (z > _CHANCE) - (z < -_CHANCE)


def said(what: str, times: Mapping[str, Times]) -> list[str]:
    """Return lines about times by name: where the first and another differ, and where they vary widely."""
    (base, first), *others = times.items()
    found: dict[str, list[str]] = {}
    for name, other in others:
        if sign := slower(first, other):
            one, two = (base, name) if sign > 0 else (name, base)
            factor = times[one].median / times[two].median
            found[f"{what}: {one} takes {factor:.2f} times as long as {two}"] = []
        elif min(len(first), len(other)) < 5:
            found.setdefault(f"{what}: measured too seldom to say which takes longer, {base} or ", []).append(name)
        else:
            found.setdefault(f"{what}: no difference beyond chance between {base} and ", []).append(name)
    lines = [text + ", ".join(names) for text, names in found.items()]
    wide = [f"{name} ±{found.spread:.0%}" for name, found in times.items() if found.spread > WIDE]
    if wide:
        lines.append(f"WARNING: {what} varies widely, {', '.join(wide)}: measure on an idle machine, or raise repeats=")
    return lines


def interleaved(
    runs: dict[str, Callable[[], float]], repeats: int, least: int = 6, patience: float = PATIENCE, untimed: bool = True
) -> dict[str, Times]:
    """Time each run `repeats` times, A B B A, after an untimed turn; fewer if they take long, but `least`."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    start = clock()
    for turn in range(-untimed, repeats):
        if turn >= least and turn % 2 == 0 and clock() - start > patience * repeats:
            break
        order: Any = reversed(runs.items()) if turn % 2 else runs.items()
        for name, run in order:
            taken = run()
            if turn >= 0:
                times[name].append(taken)
    return {name: Times(found) for name, found in times.items()}
