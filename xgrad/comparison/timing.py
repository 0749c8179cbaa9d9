"""Timing in turns: A B A B, so that a machine that slows down slows all."""

import time
from collections.abc import Callable

PATIENCE = 1.0  # seconds: after them, a measurement is repeated only as often as it must be


def interleaved(runs: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Time each run `repeats` times, A B A B, after one untimed turn; fewer if they take long, but three."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    for turn in range(-1, repeats):
        if turn >= 3 and time.perf_counter() - start > 2 * PATIENCE:
            break
        for name, run in runs.items():
            seconds = run()
            if turn >= 0:
                times[name].append(seconds)
    return times
