"""A report counts what a backend did, with lines and bytes, and estimates the time by XLA's cost analysis."""

import json

import jax.numpy as jnp
import pytest

import xgrad
from xgrad.backends.cost import PROGRAMS, tiny_step

COST = xgrad.Cost(launch=1e-3, bandwidth=1e9, flops=1e9, compile=0.5, host_link=1e6)


def work(chip):
    """One view that is read, written through, and stale once; one fallback; 256 bytes each way over the link."""
    x = xgrad.ones(64, device=chip)
    base = x + 1
    row = base[:16]
    row.sum()
    base.mul_(2)
    row.exp()
    row.add_(1)
    base.sort()
    return base.cpu().to(chip)


def reported(chip):
    work(chip)
    with chip.report() as report:
        work(chip)
    return report


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_what_a_report_counts(execution):
    chip = xgrad.Backend("chip", execution=execution, without=["sort"], donation=False, cost=COST)
    told = reported(chip).as_dict()
    assert told["backend"] == "chip"
    assert {"add", "sum", "exp", "sort"} <= set(told["operators"])
    assert told["views"]["read"] == {"count": 1, "bytes": 64}
    assert told["views"]["refreshed"] == {"count": 1, "bytes": 64}
    assert told["views"]["written back"]["count"] == 1
    (fallback,) = told["fallbacks"]
    line = fallback.pop("line")
    assert line.startswith("test_report.py:")
    assert fallback == {"operator": "sort", "lack": "the operator 'sort'", "count": 1, "bytes": 256 + 256 + 512}
    assert told["link"] == {
        "to the backend": {"count": 1, "bytes": 256},
        "from the backend": {"count": 1, "bytes": 256},
    }
    assert told["peak memory"] >= 3 * 256
    assert told["launches"] == 8 if execution == "eager" else 0 < told["launches"] < 4
    assert told["programs"] == []
    estimate = told["estimate"]
    assert estimate["launch"] == pytest.approx(told["launches"] * 1e-3)
    assert estimate["link"] == pytest.approx((512 + 1024) / 1e6 + 4 * 1e-3)  # two transfers, and two of the fallback
    assert (estimate["compile"], estimate["memory"] > 0) == (0, True)
    json.dumps(told)


def test_programs_are_compiled_for_a_reason():
    for execution in ("eager", "lazy"):
        chip = xgrad.Backend("chip", execution=execution)
        with chip.report() as report:
            for n in (17, 17, 19):
                (xgrad.ones(n, device=chip).erfc() * 3).tolist()
        told = report.as_dict()["programs"]
        assert any("for the first time" in reason and "test_report.py:" in reason for reason in told)
        assert len(told) >= 2
        assert execution == "lazy" or any("for other shapes" in reason for reason in told)


def test_copies_that_donation_would_have_saved():
    chip = xgrad.Backend("chip", donation=False)
    x = xgrad.ones(64, device=chip)
    with chip.report() as report:
        x.add_(1)
    assert report.as_dict()["copies that donation would have saved"] == {"count": 1, "bytes": 256}
    x = x.cpu().to(chip.replace(donation=True)) + 1
    with chip.report() as report:
        x.add_(1)
    assert report.launches == 0  # of another backend
    assert report.as_dict()["copies that donation would have saved"]["count"] == 0


def test_reports_may_be_open_at_once_and_count_nothing_outside():
    chip = xgrad.Backend("chip")
    with chip.report() as outer:
        x = xgrad.ones(4, device=chip)
        with chip.report() as inner:
            _ = x + 1
        _ = x + 2
    _ = x + 3
    assert (outer.launches, inner.launches) == (3, 1)


def test_a_slower_launch_is_one_run_of_the_same_report():
    chip = xgrad.Backend("chip")
    report = reported(chip)
    slow, fast = (report.estimate(xgrad.Cost(launch=launch, latency=1e-5)) for launch in (50e-6, 5e-6))
    assert slow.launch == pytest.approx(10 * fast.launch)
    assert slow.total - slow.launch == pytest.approx(fast.total - fast.launch)
    with pytest.raises(ValueError, match="no cost is declared"):
        report.estimate()
    assert report.as_dict()["estimate"] is None


def test_it_prints_as_text_html_rich_and_a_plot(capsys):
    chip = xgrad.Backend("chip", without=["sort"], cost=COST)
    report = reported(chip)
    text = str(report)
    for words in (
        "launches",
        "views replayed",
        "on the host: sort at test_report.py:",
        "peak memory",
        "estimated time, each run",
    ):
        assert words in text
        assert words.strip() in report._repr_html_()
    pytest.importorskip("rich")
    report.print()
    assert "estimated time" in capsys.readouterr().out
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert "backend chip" in report.plot().get_title()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (dict(launch="8us"), TypeError, "launch must be a number, but got '8us'"),
        (dict(bandwidth=0), ValueError, "bandwidth must be positive, but got 0"),
        (dict(launch=-1), ValueError, "launch must be positive"),
    ],
)
def test_bad_costs_are_errors_at_once(given, error, words):
    with pytest.raises(error, match=words):
        xgrad.Cost(**given)
    with pytest.raises(TypeError, match=r"cost is an xgrad\.Cost, but got 3"):
        xgrad.Backend("chip", cost=3)


def test_pythons_time_is_counted_for_each_operator():
    for execution in ("eager", "lazy"):
        chip = xgrad.Backend("chip", execution=execution)
        step = tiny_step(chip)
        step()
        with chip.report() as report:
            step()
        assert report.operators == PROGRAMS
        assert report.estimate(xgrad.Cost(host=1e-3)).host == pytest.approx(PROGRAMS * 1e-3)


def test_fused_operators_take_the_sum_of_arithmetic_and_memory():
    cost = xgrad.Cost(flops=1e9, bandwidth=1e9)
    found = []
    for execution in ("eager", "lazy"):
        chip = xgrad.Backend("chip", execution=execution)
        x = xgrad.ones(16, 16, device=chip)
        xgrad.sync()
        with chip.report() as report:
            y = (x @ x) @ x
            y.tolist()
        found.append(report.estimate(cost))
    assert found[0].compute == pytest.approx(2 * 2 * 16**3 / 1e9)
    assert found[0].memory == 0
    assert found[1].compute == pytest.approx(found[0].compute)
    assert found[1].memory > 0


def test_temporaries_of_xla_are_told():
    chip = xgrad.Backend("chip", execution="lazy")
    x = xgrad.ones(64, 64, device=chip)
    xgrad.sync()
    with chip.report() as report:
        y = (x @ x).tanh() @ x
        y.tolist()
    assert report.temporaries() >= x.nbytes


@pytest.mark.exhaustive
def test_costs_are_measured():
    cost = xgrad.Cost.measure()
    assert 0 < cost.launch < 1e-2
    assert 0 <= cost.host < 1e-2
    assert cost.bandwidth > 1e7
    assert cost.flops > 1e7
    with pytest.raises(TypeError, match="measures a device of JAX's"):
        xgrad.Cost.measure(xgrad.Backend("chip"))


def test_a_device_with_strides_launches_nothing_for_a_view_that_is_read():
    chip = xgrad.Backend("chip", cost=COST)
    without, having = reported(chip), reported(chip.replace(strides=True))
    assert having.as_dict()["views"]["read"] == {"count": 0, "bytes": 0}
    assert having.as_dict()["views"]["refreshed"] == {"count": 0, "bytes": 0}
    assert having.as_dict()["views"]["written back"] == without.as_dict()["views"]["written back"]
    assert having.launches == without.launches - 2
    assert having.estimate().total < without.estimate().total


def test_operators_are_listed_with_their_counts_and_lowerings_that_did_not_run():
    chip = xgrad.Backend(
        "chip", lowerings={"matmul": jnp.matmul, "exp": jnp.exp, "add": lambda self, other: self + other}
    )
    x = xgrad.ones(2, 2, device=chip)
    layer = xgrad.nn.Linear(2, 2).to(chip)
    with chip.report() as report:
        xgrad.add(layer(x).exp().exp(), x, alpha=2)
    rows = {row.label: row.cells for row in report.rows()}
    assert (rows["exp"], rows["linear"]) == (("2",), ("1",))
    assert report.as_dict()["lowerings that did not run"] == ["matmul", "add"]
    assert rows["the lowering of matmul"] == ("did not run: no operator of that name was called",)
    assert rows["the lowering of add"] == ("did not run: add was called with other arguments than it takes",)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_each_transfer_has_its_reason_and_line(execution):
    chip = xgrad.Backend("chip", execution=execution)
    x = xgrad.zeros(2, 3, device=chip, requires_grad=True)
    with chip.report() as report:
        labels = xgrad.tensor([0, 2]).to(chip)
        loss = xgrad.nn.functional.cross_entropy(x, labels)
        loss.item()
        str(x)
    found = report.as_dict()["transfers"]
    assert [(t["direction"], t["why"]) for t in found] == [
        ("from the host", "a tensor"), ("to the host", "a check of indices"), ("to the host", "item()"),
        ("to the host", "print"),
    ]  # fmt: skip
    assert all(t["line"].startswith("test_report.py:") for t in found)
    assert sum(t["count"] for t in found if t["direction"] == "to the host") == 3
    assert "a check of indices at test_report.py:" in str(report)


def test_what_is_not_listed_is_counted():
    chip = xgrad.Backend("chip")
    x = xgrad.ones(2, device=chip)
    with chip.report() as report:
        names = "exp sin cos tan tanh erf erfc sqrt rsqrt abs neg floor ceil sign square"
        for name in names.split():
            getattr(x, name)()
    assert "others" in {row.label for row in report.rows()}
    assert "3 more" in str(report)
