"""Simulated time: each test computes by hand when programs, transfers and events begin and end."""

import json

import numpy as np
import pytest

import xgrad

# A launch takes 1 ms, a byte over the host's link 1 ms, a chip computes at once, and Python takes no time.
CLOCK = dict(launch=1e-3, bandwidth=1e30, flops=1e30, compile=0, host_link=1e3, latency=0)
MS = 1e3


def chip_of(execution="eager", **cost):
    return xgrad.Backend("chip", execution=execution, cost=xgrad.Cost(**(CLOCK | cost)))


def spans(report, **options):
    """What happened, with its first and last millisecond."""
    return [
        (span.queue, span.name, round(span.start * MS, 6), round(span.end * MS, 6))
        for span in report.timeline(**options).spans
    ]


def small(chip):
    return xgrad.tensor(np.array([1, 2, 3, 4], np.int8), device=chip)


def test_transfers_and_programs_overlap():
    chip = chip_of()
    x = small(chip)
    with chip.report() as report:
        y = small(chip)  # four bytes
        z = x * 3
        w = y * 2  # waits for the bytes
        z.numpy()
        w.numpy()
    assert spans(report) == [
        ("host to device", "host to device", 0, 4),
        ("compute", "mul", 0, 1),
        ("compute", "mul", 4, 5),
        ("device to host", "device to host", 1, 5),
        ("device to host", "device to host", 5, 9),
    ]
    found = report.timeline()
    assert found.seconds == pytest.approx(9e-3)
    assert found.busy == pytest.approx({"compute": 2e-3, "host to device": 4e-3, "device to host": 8e-3})
    assert found.exposed == pytest.approx({"host to device": 3e-3, "device to host": 7e-3})
    assert report.estimate().run == pytest.approx(14e-3)  # without overlap


def test_python_runs_ahead_of_the_device_until_it_reads():
    chip = chip_of(host=0.25e-3)
    x = small(chip)
    with chip.report() as report:
        y = x * 2 + 1
        y.numpy()
        y * 3
    assert [span for span in spans(report) if span[0] == "compute"] == [
        ("compute", "mul", 0.25, 1.25),
        ("compute", "add", 1.25, 2.25),
        ("compute", "mul", 6.5, 7.5),  # it has read four bytes, and noted the product
    ]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_queue_and_a_compiled_step_are_one_launch(compiled):
    chip = chip_of("eager" if compiled else "lazy", host=1e-3, note=0.5e-3)

    def step(x):
        return (x * 2 + 1).sum()

    run = xgrad.compile(step) if compiled else step
    x = xgrad.ones(4, device=chip)
    for _ in range(3):
        run(x).item()
    with chip.report() as report:
        run(x).item()
    named = [span for span in spans(report) if span[0] != "host"]
    assert named == [("compute", "3 operations", 1.5, 2.5), ("device to host", "device to host", 2.5, 6.5)]
    assert report.estimate().host == pytest.approx(1.5e-3)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
@pytest.mark.parametrize(("queues", "end"), [(1, 4), (2, 3)])
def test_streams_run_at_once_and_an_event_is_between(execution, queues, end):
    chip = chip_of(execution, queues=queues)
    x = small(chip)
    a, b = xgrad.Stream(chip), xgrad.Stream(device=chip)
    kept = []
    with chip.report() as report:
        with a:
            kept.append(x * 2)
            xgrad.sync()
            kept.append(kept[0] * 2)
            done = a.record_event()
        with b:
            kept.append(x * 3)
            xgrad.sync()
            done.wait()
            kept.append(x * 4)
            xgrad.sync()
    found = report.timeline()
    times = [(round(span.start * MS), round(span.end * MS), span.stream) for span in found.spans]
    one, other = a.number, b.number
    first = 2 if queues == 1 else 0
    assert times == [(0, 1, one), (1, 2, one), (first, first + 1, other), (first + 1 if queues == 1 else 2, end, other)]
    assert [name for name, _ in found.lanes()] == [f"compute, stream {one}", f"compute, stream {other}"]


def test_a_stream_that_waits_leaves_the_device_to_others():
    chip = chip_of()
    x, side = small(chip), xgrad.Stream(chip)
    with chip.report() as report:
        with side:
            small(chip) * 2  # waits for its four bytes
        x * 3
    assert spans(report) == [
        ("host to device", "host to device", 0, 4),
        ("compute", "mul", 4, 5),
        ("compute", "mul", 0, 1),
    ]


def test_events_measure_simulated_time():
    chip = chip_of()
    x = small(chip)
    start, middle, end = (xgrad.Event(chip, enable_timing=True) for _ in range(3))
    assert end.query()  # it was never recorded
    start.record()
    y = x * 2
    middle.record()
    for _ in range(3):
        y = y + 1
    end.record()
    assert not end.query()
    with pytest.raises(RuntimeError, match="must be completed before calculating elapsed time"):
        start.elapsed_time(end)
    end.synchronize()
    assert end.query()
    assert start.elapsed_time(middle) == pytest.approx(1)
    assert start.elapsed_time(end) == pytest.approx(4)
    assert end.elapsed_time(start) == pytest.approx(-4)
    end.record()  # anew
    assert start.elapsed_time(end) == pytest.approx(4)


def test_streams_wait_and_tell():
    chip = chip_of(queues=2)
    x = small(chip)
    a, b = xgrad.Stream(chip), xgrad.Stream(chip)
    with a:
        y = x * 2
    assert not a.query()
    assert b.query()
    b.wait_stream(a)
    with chip.report() as report, b:
        x * 3
    assert spans(report) == [("compute", "mul", 0, 1)]  # the report begins with free queues
    assert not b.query()
    b.synchronize()
    assert b.query()
    assert a.query()
    assert y.tolist() == [2, 4, 6, 8]
    assert a.device == chip.device == xgrad.Event(chip).device


def test_a_stream_is_a_decorator_and_ends_with_an_error():
    chip = chip_of()
    side = xgrad.Stream(chip)

    @side
    def twice(x):
        return x * 2

    x = small(chip)
    with chip.report() as report:
        twice(x)
        with pytest.raises(ZeroDivisionError), side:
            raise ZeroDivisionError
        x * 2
    assert [span.stream for span in report.timeline().spans] == [side.number, 0]


def test_wrong_uses_of_streams_and_events():
    plain = xgrad.Backend("plain")
    for device in (plain, "cpu", None):
        with pytest.raises(NotImplementedError, match="a declared backend with a Cost has streams"):
            xgrad.Stream(device)
        with pytest.raises(NotImplementedError, match="there are no streams"):
            xgrad.Event(device)
    chip, other = chip_of(), chip_of()
    timed, untimed = xgrad.Event(chip, enable_timing=True), xgrad.Event(chip)
    with pytest.raises(RuntimeError, match="must be recorded before calculating elapsed time"):
        timed.elapsed_time(timed)
    timed.record()
    untimed.record()
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        timed.elapsed_time(untimed)
    with pytest.raises(ValueError, match="of two backends"):
        timed.elapsed_time(xgrad.Event(other, enable_timing=True))
    with pytest.raises(ValueError, match="of two backends"):
        timed.record(xgrad.Stream(other))
    with chip.activate():
        assert xgrad.Stream().device == chip.device


def test_what_the_host_computes_is_two_transfers():
    chip = xgrad.Backend("chip", without=["sort"], cost=xgrad.Cost(**CLOCK, host_bandwidth=1e30, host_flops=1e30))
    x = xgrad.tensor(np.array([2, 1], np.int8), device=chip)
    with chip.report() as report:
        x.sort()
    assert spans(report)[0] == ("device to host", "device to host", 0, 2)
    (back,) = (span for span in spans(report) if span[0] == "host to device")
    assert back[3] - back[2] == 2 + 2 * 8 or back[3] - back[2] == 2 + 2 * 4  # values, and int64 or int32 indices


def test_compiling_counts_if_asked():
    chip = chip_of(compile=0.5)
    x = xgrad.ones(19, device=chip)
    with chip.report() as report:
        x.sinh()
    assert report.timeline().seconds == pytest.approx(1e-3)
    assert report.timeline(compiles=True).seconds == pytest.approx(0.501)
    assert spans(report, compiles=True)[0] == ("host", "compile sinh", 0, 500)


def test_other_costs_are_asked_of_the_same_report():
    chip = chip_of()
    x = small(chip)
    with chip.report() as report:
        x * 2
    assert report.timeline(xgrad.Cost(**CLOCK | dict(launch=5e-3))).seconds == pytest.approx(5e-3)
    plain = xgrad.Backend("plain")
    with plain.report() as report:
        xgrad.ones(2, device=plain)
    with pytest.raises(ValueError, match="a timeline needs what was noted in its order"):
        report.timeline(xgrad.Cost())


def test_a_timeline_is_drawn_and_written_for_perfetto(tmp_path):
    chip = chip_of(host=1e-4)
    x, side = small(chip), xgrad.Stream(chip)
    with chip.report() as report:
        with side:
            y = x * 2
        y.numpy()
    found = report.timeline()
    for ending in ("svg", "html", "txt", "json"):
        found.save(tmp_path / f"time.{ending}")
    told = json.loads((tmp_path / "time.json").read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in told if event["name"] == "thread_name"}
    assert [*rows.values()] == ["host", f"compute, stream {side.number}", "device to host"]
    (program,) = (event for event in told if event["ph"] == "X" and event["cat"] == "compute")
    assert (program["name"], program["ts"], program["dur"]) == ("mul", pytest.approx(100), pytest.approx(1000))
    picture = (tmp_path / "time.svg").read_text()
    assert "device to host" in picture
    assert ">mul</text>" in picture
    assert "0 to 5.1 ms" in picture
    assert "device to host" in (tmp_path / "time.txt").read_text()
    assert "<svg" in found._repr_html_()
    assert "simulated, with overlap" in str(report)
    assert report.as_dict()["timeline"]["seconds"] == pytest.approx(found.seconds)
    with pytest.raises(ValueError, match="a timeline is not a graph"):
        found.save(tmp_path / "time.dot")


def test_a_registered_backend_has_streams_by_its_name():
    chip = chip_of().register()
    try:
        assert isinstance(xgrad.chip.Stream(), xgrad.Stream)
        event = xgrad.chip.Event(enable_timing=True)
        event.record()
        x = xgrad.ones(2, device="chip")
        default = xgrad.chip.current_stream()
        assert (default.stream_id, default is xgrad.chip.default_stream()) == (0, True)
        with xgrad.chip.stream(xgrad.chip.Stream()) as side:
            x * 2
            assert xgrad.chip.current_stream() is side
            side.wait_stream(default)
            with default:
                assert xgrad.chip.current_stream() is default
        default.synchronize()
        assert default.query()
        xgrad.chip.synchronize()
        end = xgrad.chip.Event(enable_timing=True)
        end.record()
        end.synchronize()
        assert event.elapsed_time(end) == pytest.approx(2)
    finally:
        chip.unregister()


def test_a_long_run_with_events_keeps_little(monkeypatch):
    monkeypatch.setattr("xgrad.backends.clock.MOST", 8)
    chip = chip_of()
    x = small(chip)
    start, end = (xgrad.Event(chip, enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(40):
        x = x + 1
    live = chip._runtime.clock.live
    assert len(live.events.log.entries) <= 9
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(40)
    assert len(live.simulation._ready) <= 12


def test_without_a_cost_nothing_is_noted():
    plain = xgrad.Backend("plain")
    assert plain._runtime.clock is None
    with plain.report() as report:
        x = xgrad.ones(2, device=plain) * 2
    assert report._events.log is None
    assert x._array.serial == 0
