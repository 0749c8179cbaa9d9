"""What lacking an operator costs, and what a declaration means: groups, dtypes, lowerings of what is lacking."""

import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.errors import BackendError

VALUES = np.array([3.0, 1.0, 2.0], np.float32)


def ten_exps(**declared):
    chip = xgrad.Backend("chip", **declared)
    x = xgrad.tensor(VALUES, device=chip)
    x.exp()
    with chip.report() as report:
        for _ in range(10):
            x.exp()
    return report


def test_a_fallback_costs_more_than_the_launch_that_it_replaces():
    cost = xgrad.Cost(launch=50e-6)
    has, lacks = (ten_exps(without=without, cost=cost).estimate() for without in ([], ["exp"]))
    assert lacks.total > 2 * has.launch
    assert lacks.link == pytest.approx(10 * (2 * 50e-6 + 24 / cost.host_link))
    assert lacks.fallback > 0 == has.fallback
    slow = ten_exps(without=["exp"], cost=xgrad.Cost(launch=50e-6, latency=1e-3)).estimate()
    assert slow.link == pytest.approx(10 * (2e-3 + 24 / cost.host_link))


def test_operators_in_each_launch_are_those_that_were_launched():
    report = ten_exps(without=["exp"])
    assert "10, 10 on the host" in str(report)
    assert "operators in each" not in str(report)
    chip = xgrad.Backend("chip", without=["exp"])
    x = xgrad.ones(3, device=chip)
    with chip.report() as report:
        _ = (x + 1).exp() * 2
    assert "3, 1 on the host" in str(report)
    assert "2, 1.0 operators in each" in str(report)


def test_a_launch_of_seconds_is_refused():
    with pytest.raises(ValueError, match=r"launch is in seconds, and 50 are many: 50 µs are launch=50e-6"):
        xgrad.Cost(launch=50)
    with pytest.raises(ValueError, match="latency must be positive"):
        xgrad.Cost(latency=-1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.topk(2), lambda x: x.argsort(), lambda x: x.kthvalue(2), lambda x: x.median(),
        lambda x: x.nanmedian(), lambda x: x.quantile(0.5), lambda x: x.mode(), lambda x: x.unique(),
        lambda x: xgrad.randperm(4, device=x.device), lambda x: xgrad.msort(x), lambda x: x.softmax(0).multinomial(2),
    ],
)  # fmt: skip
def test_without_sorting_is_without_all_that_sorts(call):
    strict = xgrad.Backend("chip", without=["sorting"], fallback="error")
    with pytest.raises(BackendError, match="lacks the operator"):
        call(xgrad.tensor(VALUES, device=strict))


def test_a_dtype_may_be_lacking_by_name():
    strict = xgrad.Backend("chip", without=["float16", "aten::sort"], fallback="error")
    x = xgrad.tensor(VALUES, device=strict)
    assert (x * 2).to(xgrad.bfloat16).dtype == xgrad.bfloat16
    with pytest.raises(BackendError, match="lacks the dtype float16"):
        x.half()
    with pytest.raises(BackendError, match="lacks the operator 'sort'"):
        x.sort()


def test_a_lowering_of_what_is_lacking_runs():
    chip = xgrad.Backend("chip", without=["e*"], lowerings={"exp": jnp.exp}, fallback="error")
    x = xgrad.tensor(VALUES, device=chip, requires_grad=True)
    x.exp().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(VALUES), rtol=1e-6)
    with pytest.raises(BackendError, match="'erf'"):
        x.erf()


def test_conformance_says_what_the_host_computed():
    chip = xgrad.Backend("chip", without=["tanh"])
    report = xgrad.conformance.run(chip, "tanh,exp", ["float32"])
    cells = {row.name: row.cells["float32"] for row in report.rows}
    assert (cells["tanh"].host, cells["exp"].host) == (True, False)
    assert "host" in next(line for line in str(report).splitlines() if line.strip().startswith("tanh"))
    assert report.summary.endswith("1 by the host")
    assert report.as_dict()["rows"][-1]["cells"]["float32"].get("host") in (None, True)


def test_an_estimate_says_a_run_and_compiling_apart():
    chip = xgrad.Backend("chip", cost=xgrad.Cost(launch=1e-3, compile=0.5))
    x = xgrad.tensor(VALUES, device=chip)
    with chip.report() as report:
        (x * 2).erfinv()
    estimate = report.estimate()
    assert estimate.compile > 0
    assert estimate.run == pytest.approx(estimate.total - estimate.compile)
    assert "each run" in str(estimate)
    assert "once, to compile" in str(report)


def test_an_error_in_a_lazy_report_says_what_the_block_needed():
    chip = xgrad.Backend("chip", execution="lazy", memory=200)
    x = xgrad.ones(16, device=chip)
    xgrad.sync()

    def reported():
        with chip.report():
            first = x + 1
            kept = first * 2, first * 3, first * 4
            return kept[0].tolist()

    with pytest.raises(xgrad.errors.OutOfMemoryError, match=r"Tried to allocate 256 bytes.*: 64 of 200 bytes") as e:
        reported()
    assert e.value.__context__ is None


def test_a_fallback_is_the_reason_of_an_evaluation():
    chip = xgrad.Backend("chip", execution="lazy", without=["sort"])
    x = xgrad.tensor(VALUES, device=chip)
    xgrad.lazy.reset()
    for _ in range(3):
        (x + 1).sort()
    metrics = xgrad.lazy.metrics()
    assert any(reason == "'sort', which falls back to the host" for reason, _ in metrics.evaluations)
    assert any("'sort', which falls back to the host at test_costs.py" in text for text in metrics.advice)
