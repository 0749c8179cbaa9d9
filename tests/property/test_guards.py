"""Whatever a compiled function reads changes at random between its calls: no stale program runs."""

import pytest

from ..lanes import budget
from . import guards


@budget(2, 12)  # seconds
@pytest.mark.unverified("the test compares with the eager run itself")
def test_no_change_leaves_a_stale_program(budget):
    counts = guards.run(budget, seed=13)
    assert not counts["failures"], "\n\n".join(counts["failures"])
    assert counts["changes"]


@pytest.mark.exhaustive
def test_a_stale_program_would_be_found_and_shrunk(monkeypatch):
    monkeypatch.setattr(guards.xgrad, "compile", traced_once)
    counts = guards.run(2, seed=0, kinds=("a global", "a list", "a closure"))
    assert counts["stale"]
    assert min(len(failure.splitlines()) for failure in counts["failures"]) < 12


def traced_once(function):
    """A compiled function that never looks at what has changed."""
    known = []

    def call(x):
        known.append(known[0] if known else guards.outcome(function, x))
        return known[-1]

    call.metrics = lambda: guards.types.SimpleNamespace(traces=1)
    return call
