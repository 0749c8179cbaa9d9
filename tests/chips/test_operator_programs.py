"""Operators, as a TPU's compiler makes them: a part of the table is held against its figures, `docs/chips.json`."""

import json
import subprocess

import pytest

from scripts import chip_table

pytest.importorskip("libtpu")

MOST = 40  # programs: three minutes of a busy core


def _part():
    """Return which part of the table this commit compiles: another one with each commit."""
    count = subprocess.run(["git", "rev-list", "--count", "HEAD"], capture_output=True, text=True, cwd=chip_table.ROOT)
    return int(count.stdout or 0)


def test_programs_are_no_worse_than_their_figures():
    figures = json.loads(chip_table.FIGURES.read_text())
    keys = sorted(key for key, row in figures.items() if row["state"] == chip_table.PLAIN and row["seconds"] < 5)
    chosen = [keys[(_part() * MOST + i) % len(keys)] for i in range(min(MOST, len(keys)))]
    found = chip_table.walk([tuple(key.rsplit(" ", 2)) for key in chosen], {})
    worse = {}
    for key in chosen:
        before, now = figures[key], found[key]
        more = now["state"] == chip_table.PLAIN and now["bytes"] > 1.25 * before["bytes"] + 4096
        if now["state"] != chip_table.PLAIN or more:  # 60 s to compile are another state; below that they vary
            worse[key] = before, now
    assert not worse
