"""A chip without runtime starts: starts of slices are constants of their programs, and what that costs is counted."""

import numpy as np
import pytest

import xgrad

MODES = [
    {}, {"execution": "lazy"}, {"strides": True}, {"donation": False}, {"execution": "lazy", "fuse": "operator"},
    {"aliasing": "regenerate"}, {"aliasing": "copy_on_write"},
]  # fmt: skip


def work(device):
    """Read, write and differentiate views with many starts; return loss, gradient and value."""
    x = xgrad.arange(48.0, device=device).reshape(6, 8).requires_grad_()
    y = x.clone()
    for i in range(3):
        y[i].mul_(i + 1)
        y[1:, i].add_(y[i, 2:7])
    y[2:5, ::2] = 3
    loss = sum((y[i] * i).sum() + y.narrow(1, i, 2).tanh().sum() + y.diagonal(i).sum() for i in range(3))
    loss.backward()
    return [t.detach().cpu().numpy() for t in (loss, x.grad, y)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("declared", MODES, ids=str)
def test_values_are_the_same_without_a_slice_at_runtime(declared):
    seen = []

    def spy(closed):
        seen.append(str(closed.jaxpr))
        return closed

    chip = xgrad.Backend("npu", runtime_starts=False, passes=[spy], **declared)
    for ours, theirs in zip(work(chip), work("cpu"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    assert "dynamic_slice" not in "\n".join(seen)
    before = []
    work(chip.replace(runtime_starts=True, passes=[lambda closed: [before.append(str(closed.jaxpr)), closed][1]]))
    assert "dynamic_slice" in "\n".join(before)


def compiled(runtime_starts, work, **declared):
    chip = xgrad.Backend("npu", runtime_starts=runtime_starts, **declared)
    with chip.report() as report:
        work(chip)
    found = report.as_dict()
    return len(found["programs"]), found["programs that runtime starts would have saved"], report


def test_the_report_counts_each_program_that_it_costs_with_its_line():
    many, costs, _ = compiled(False, work)
    few, none, _ = compiled(True, work)
    assert none == []
    assert sum(cost["count"] for cost in costs) == many - few > 0
    assert all(cost["line"].startswith("test_starts.py:") for cost in costs)


def test_a_loop_over_rows_is_a_program_for_each():
    def rows(chip):
        x = xgrad.ones(5, 3, device=chip)
        for _ in range(2):
            for i in range(5):
                x[i].add_(i)

    _, (cost,), report = compiled(False, rows)
    assert (cost["view"], cost["count"]) == ("update", 4)
    assert f"programs for other starts: update at {cost['line']}" in str(report)
    assert "update for other starts, at test_starts.py" in str(report)


def test_a_queue_is_compiled_again_for_other_starts():
    def rows(chip):
        x = xgrad.ones(5, 3, device=chip)
        xgrad.sync()
        for _ in range(2):
            for i in range(3):
                x[i].mul_(2)
                (x[i] + 1).sum()
                xgrad.sync()

    many, costs, _ = compiled(False, rows, execution="lazy")
    few, _, _ = compiled(True, rows, execution="lazy")
    assert sum(cost["count"] for cost in costs) == many - few == 2


def test_a_compiled_function_has_constants_too():
    step = xgrad.compile(lambda x, i: (x[i] * 2).sum())
    many, costs, _ = compiled(False, lambda chip: [step(xgrad.ones(4, 3, device=chip), i).item() for i in range(3)])
    assert many == 4
    assert sum(cost["count"] for cost in costs) == 2


def test_a_write_that_is_refused_changes_nothing():
    strict = xgrad.Backend("npu", runtime_starts=False, without=["exp"], fallback="error")
    x = xgrad.ones(4, 3, device=strict)
    with pytest.raises(xgrad.errors.BackendError, match="exp"):
        x[1].exp_()
    assert x.tolist() == [[1] * 3] * 4
    with pytest.raises(TypeError, match="runtime_starts must be True or False"):
        strict.replace(runtime_starts=None)
