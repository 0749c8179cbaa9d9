"""What a long run stores is bounded, where shapes never repeat too."""

import numpy as np

import xgrad
from xgrad.execution import pending, shapes
from xgrad.execution.metrics import recorder


def test_shapes_that_never_repeat_are_forgotten(monkeypatch):
    monkeypatch.setattr(shapes, "MOST_KEYS", 8)
    monkeypatch.setattr(pending, "MOST_AVALS", 8)
    monkeypatch.setattr(pending, "_most", 8)
    monkeypatch.setattr(pending, "_avals", {})
    with xgrad.lazy():
        for n in range(2, 102):
            xgrad.tensor(np.ones(n)).neg()  # is noted, and dropped
            xgrad.sync()
    assert len(pending._avals) < 50
    assert len({id(pending.aval_of((3,), np.dtype(bool), False)) for _ in range(2)}) == 1


def test_an_aval_that_is_in_use_stays_the_one_of_its_shape(monkeypatch):
    monkeypatch.setattr(pending, "_avals", {})
    used = pending.aval_of((1, 2, 3), np.dtype(bool), False)
    monkeypatch.setattr(pending, "_most", 1)
    monkeypatch.setattr(pending, "MOST_AVALS", 1)
    for n in range(9):
        pending.aval_of((n,), np.dtype(bool), False)
    assert pending.aval_of((1, 2, 3), np.dtype(bool), False) is used
    assert len(pending._avals) <= 5


def test_metrics_count_all_programs_and_store_the_reasons_of_the_last():
    xgrad.sync()
    xgrad.lazy.reset()
    for n in range(1005):
        recorder.new(f"reason {n}", "file.py:1", False)
    metrics = xgrad.lazy.metrics()
    assert (metrics.compiled, len(metrics.programs)) == (1005, 1000)
    assert metrics.programs[-1] == "reason 1004, at file.py:1"
    assert "1005 programs" in str(metrics)
    assert "compiled: 5 programs before these" in str(metrics)
    xgrad.lazy.reset()
    assert xgrad.lazy.metrics().compiled == 0
