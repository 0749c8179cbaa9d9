"""Which tests `python -m pytest` runs: the quick lane, which is all tests but the `exhaustive` ones.

Exhaustive are the tests that are marked so, and most cases of a matrix, which is a test that is parametrized over
several things in all combinations.  The quick lane has each path, each dtype and each operator of a matrix in one case
at least.  `@pytest.mark.one_in(n)` has one in n of these again, and so for any list of cases.  The choice depends on
the names of the cases only.

XGRAD_LAZY=1 runs the same tests with every thread lazy.  A test of what differs then (docs/concepts/lazy.md) is marked
`eager(difference)`, one of DIFFERENCES, and is skipped; tests/execution/test_differences.py has what it is instead.
"""

import math
import os
import zlib
from collections import defaultdict

import pytest

QUICK = "not exhaustive"  # as in pyproject.toml
MATRIX = 8, 0.6  # cases of one decorator that are so many, and this part of all combinations, are a matrix too
PLAIN = (str, int, float, complex, type(None), tuple)

LAZY = os.environ.get("XGRAD_LAZY", "") not in ("", "0")  # every thread is lazy
DIFFERENCES = {
    "arrays": "a tensor has a Pending where the test asks for JAX's array",
    "addresses": "the test compares the memory before and after a write, which is noted and not run",
    "lifetimes": "the test asks what is freed while the queue holds it",
    "launches": "the test counts the programs of single operators, notes thousands for one, or asks for the mode",
    "failures": "the test has an operator fail at its call, by its values, an interrupt, or a switch of JAX's",
}


def covering(cases: dict[str, dict]) -> list[str]:
    """Names of cases that together have each value of each axis, the ones with the most new values first.

    `cases` is {name: {axis: value}}.
    """
    names = sorted(cases, key=lambda name: zlib.crc32(name.encode()))
    waiting = {name: set(cases[name].items()) for name in names}
    chosen: list[str] = []
    while waiting:
        name = max(waiting, key=lambda name: len(waiting[name]))  # the first of those with the most
        chosen.append(name)
        seen = waiting.pop(name)
        waiting = {other: rest for other, values in waiting.items() if (rest := values - seen)}
    return chosen


def axes(family: list) -> dict[str, dict]:
    """Return {name of a case: {axis: value}} of a test's cases.

    Parameters that one decorator gives are one axis, unless their values are a matrix in themselves.
    """
    groups = defaultdict(list)  # parameters whose values change together
    for name in family[0].callspec.params:
        groups[tuple(item.callspec.indices[name] for item in family)].append(name)
    found: dict[str, dict] = {item.nodeid: {} for item in family}
    for indices, names in groups.items():
        rows = [tuple(_value(item.callspec.params[name]) for name in names) for item in family]
        combinations = math.prod(len(set(column)) for column in zip(*rows))
        different = len(set(rows))
        matrix = len(names) > 1 and different >= MATRIX[0] and different >= MATRIX[1] * combinations
        for item, index, row in zip(family, indices, rows):
            found[item.nodeid].update(zip(names, row) if matrix else [(names[0], index)])
    return found


def _value(value):
    """Return what two cases have in common if they have the same value."""
    return (type(value), repr(value)) if isinstance(value, PLAIN) else id(value)


def budget(quick, exhaustive):
    """Parametrize a test with `budget`: how many cases it draws, in the quick lane and in the exhaustive one."""
    return pytest.mark.parametrize("budget", [quick, pytest.param(exhaustive, marks=pytest.mark.exhaustive)])


def eager_cases(difference, cases, chosen):
    """Return cases to parametrize a test with; those for which the function `chosen` is true are marked `eager`."""
    marks = pytest.mark.eager(difference)
    return [pytest.param(case, marks=marks) if chosen(case) else case for case in cases]


def mark_exhaustive(items: list) -> None:
    """Mark the cases that the quick lane leaves out."""
    families = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("exhaustive") is None:
            families[item.nodeid.partition("[")[0]].append(item)
    for family in families.values():
        chosen = covering(axes(family))
        if one_in := family[0].get_closest_marker("one_in"):
            chosen = chosen[: math.ceil(len(chosen) / one_in.args[0])]
        for item in family:
            if item.nodeid not in chosen:
                item.add_marker(pytest.mark.exhaustive)


def skip_eager(items: list) -> None:
    """Skip the tests that every thread being lazy would make fail."""
    for item in items:
        for mark in item.iter_markers("eager"):
            item.add_marker(pytest.mark.skip(reason=f"XGRAD_LAZY: {DIFFERENCES[mark.args[0]]}"))
