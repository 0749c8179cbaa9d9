"""A Cost says what programs take: by dtype, by rules, in whole tiles, with a fast memory, between chips."""

import pickle
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import xgrad
from xgrad.backends.collectives import Collective, Schedule, collectives
from xgrad.backends.timeline import Timeline
from xgrad.chips.answers import Answer
from xgrad.chips.report import ChipReport

MB = 1 << 20
MEMORY = dict(launch=0, bandwidth=MB, flops=1e30, compile=0)  # a second for each MiB
ARITHMETIC = dict(launch=0, bandwidth=1e30, compile=0)


def reported(cost, call, *shapes, dtype=xgrad.float32, **declared):
    """The report of a call on tensors of these shapes, whose programs are compiled."""
    chip = xgrad.Backend("chip", cost=xgrad.Cost(**cost), **declared)
    tensors = [xgrad.ones(*shape, device=chip, dtype=dtype) for shape in shapes]
    for _ in range(2):
        with chip.report() as report:
            kept = call(*tensors)
            xgrad.sync()
        del kept
    return report


@pytest.mark.parametrize("execution", ["eager", "lazy"])
@pytest.mark.parametrize(
    ("call", "declared", "mebibytes"),
    [
        (lambda x: x.clone(), {}, 2),
        (lambda x: x.neg(), {}, 2),
        (lambda x: x.add_(1), {}, 2),
        (lambda x: x.add_(1), {"donation": False}, 4),  # and the copy
        (lambda x: x[0].add_(1), {}, 0),
        (lambda x: x[0].add_(1), {"donation": False}, 2),
    ],
    ids=["clone", "neg", "add_", "add_ copies", "row", "row copies"],
)
def test_what_moves_is_in_the_estimate(execution, call, declared, mebibytes):
    report = reported(MEMORY, call, (512, 512), execution=execution, **declared)
    assert report.estimate().memory == pytest.approx(mebibytes, abs=0.02)
    assert report.timeline().seconds == pytest.approx(mebibytes, abs=0.02)


def test_a_transposed_clone_moves_its_bytes():
    assert reported(MEMORY, lambda x: x.t().clone(), (512, 512)).estimate().memory == pytest.approx(4, abs=0.02)


def test_views_gradients_are_written_in_place():
    def step(x):
        x = x.detach().requires_grad_()
        y = x * 1
        for n in range(4):
            y[n].mul_(2)
        y.sum().backward()
        return x.grad

    chip = xgrad.Backend("chip")
    x = xgrad.ones(512, 512, device=chip)
    with chip.report() as report:
        grad = step(x)
    assert grad[:5, 0].tolist() == [2, 2, 2, 2, 1]
    written = [launch for launch, _ in report._events.launches.values() if launch.name == "write_back"]
    assert written
    assert all(launch.donate for launch in written)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_flops_by_dtype(execution):
    def mixed(x):
        return (x.bfloat16() @ x.bfloat16()).float() @ x

    cost = ARITHMETIC | dict(flops={"bfloat16": 64**3, "*": 2 * 64**3})
    report = reported(cost, mixed, (64, 64), execution=execution)
    assert report.estimate().compute == pytest.approx(2 + 1, rel=0.02)
    slowest = ARITHMETIC | dict(flops={"bfloat16": 64**3, "float16": 4 * 64**3})
    assert reported(slowest, lambda x: x @ x, (64, 64)).estimate().compute == pytest.approx(2)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
@pytest.mark.parametrize(
    ("formats", "dtype", "seconds"),
    [
        ({"products": "bfloat16"}, "float32", 1), ({"products": "bfloat16"}, "bfloat16", 1),
        ({"products": "float32"}, "bfloat16", 1), ({"products": "tf32"}, "float32", 2),
        ({"accumulate": "float32"}, "bfloat16", 1), ({"products": "float8_e4m3fn"}, "float32", 0.5),
    ],
)  # fmt: skip
def test_products_count_at_the_format_in_which_they_multiply(formats, dtype, seconds, execution):
    rates = {"float8_e4m3fn": 4 * 64**3, "bfloat16": 2 * 64**3, "*": 64**3}
    given = dict(execution=execution, dtype=getattr(xgrad, dtype), **formats)
    report = reported(ARITHMETIC | dict(flops=rates), lambda x: x @ x, (64, 64), **given)
    assert report.estimate().compute == pytest.approx(seconds, rel=0.25)
    shape = (1, 16, 8, 8), (16, 16, 3, 3)
    report = reported(ARITHMETIC | dict(flops=rates), xgrad.nn.functional.conv2d, *shape, **given)
    assert report.estimate().compute == pytest.approx(seconds * 36 * 16 * 16 * 9 / 64**3, rel=0.25)


def test_bandwidth_by_dtype():
    cost = MEMORY | dict(bandwidth={"float32": MB, "bfloat16": 2 * MB})
    assert reported(cost, lambda x: x + 1, (512, 512)).estimate().memory == pytest.approx(2, rel=1e-4)
    half = reported(cost, lambda x: x + 1, (512, 512), dtype=xgrad.bfloat16)
    assert half.estimate().memory == pytest.approx(0.5, rel=1e-4)
    both = reported(cost, lambda x: x.bfloat16(), (512, 512))
    assert both.estimate().memory == pytest.approx(1 + 0.25)


def test_a_convolution_counts_at_its_operands_dtype():
    def convolved(x, w):
        return xgrad.nn.functional.conv2d(x, w)

    flops = 2 * (6 * 6 * 4) * (3 * 3 * 2)
    cost = ARITHMETIC | dict(flops={"float32": flops})
    assert reported(cost, convolved, (1, 2, 8, 8), (4, 2, 3, 3)).estimate().compute == pytest.approx(1, rel=0.05)
    other = ARITHMETIC | dict(flops={"float32": 1e30, "bfloat16": flops})
    assert reported(other, convolved, (1, 2, 8, 8), (4, 2, 3, 3)).estimate().compute < 1e-3


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_rules_stand_in_place_of_arithmetic(execution):
    def work(x):
        return (x @ x).sort().values

    slow = ARITHMETIC | dict(flops=1.0)
    seen = []

    def product(op):
        seen.append(op)
        return 3.0

    rules = {"sort": 5.0, "stablehlo.dot_general": product}
    report = reported(slow | dict(rules=rules), work, (16, 16), execution=execution)
    assert report.estimate().compute == pytest.approx(8, abs=0.1)
    (op, *_) = seen
    assert (op.name, op.flops, op.bytes) == ("stablehlo.dot_general", 2 * 16**3, 3 * 4 * 256)
    assert [(*shaped,) for shaped in op.operands] == [((16, 16), "float32")] * 2
    by_name = reported(
        slow | dict(rules={"matmul": lambda op: op.flops, "sort": 0}), work, (16, 16), execution=execution
    )
    assert by_name.estimate().compute == pytest.approx(2 * 16**3, abs=0.1)
    derivative = slow | dict(rules={"MatmulBackward0": 7.0, "stablehlo.dot_general": 0.0})

    def backward(x):
        (x.detach().requires_grad_() @ x).sum().backward()

    assert reported(derivative, backward, (16, 16)).estimate().compute == pytest.approx(7, abs=300)


@pytest.mark.parametrize("execution", ["eager", "lazy"])
def test_padding_to_tiles_takes_memory_and_time(execution):
    tiles = MEMORY | dict(tiles=(8, 128))
    plain, padded = (reported(cost, lambda x: x + 1, (1024, 2), execution=execution) for cost in (MEMORY, tiles))
    assert padded.estimate().memory == pytest.approx(64 * plain.estimate().memory, rel=1e-3)
    chip = xgrad.Backend(
        "chip", cost=xgrad.Cost(tiles={"float32": (8, 128), "bfloat16": (16, 128)}), execution=execution
    )
    before = chip._runtime.memory.used
    kept = [xgrad.ones(3, 2, device=chip), xgrad.ones(3, 2, device=chip, dtype=xgrad.bfloat16)]
    kept.append(xgrad.ones(5, device=chip, dtype=xgrad.int8))
    xgrad.sync()
    with chip.report() as report:
        kept.append(xgrad.ones(4, device=chip))  # a vector is one row
        kept.append(xgrad.tensor(1.0, device=chip))  # a number is as it is
    assert chip._runtime.memory.used - before == 4096 + 4096 + 5 + 4096 + 4
    assert report.as_dict()["padding of tiles"] == {"count": 1, "bytes": 4096 - 16}
    assert "padding of tiles, of arrays made" in str(report)
    small = chip.replace(memory=4000)
    with pytest.raises(xgrad.errors.OutOfMemoryError, match="Tried to allocate 4096 bytes, in whole tiles, for"):
        xgrad.ones(3, 2, device=small).tolist()


def test_a_fast_memory_is_counted_by_what_moves():
    """Bytes in units of an array, which is a MiB: a second in the memory, nothing in the fast one."""
    cost = MEMORY | dict(fast=2 * MB, fast_bandwidth=1e30)
    chip = xgrad.Backend("chip", cost=xgrad.Cost(**cost))
    x = xgrad.ones(512, 512, device=chip)
    for _ in range(2):
        with chip.report() as report:
            y = x + 1  # x is moved in
            z = y + 1  # x goes out, which is no newer than outside
            w = z + 1  # y goes out, and is written
            v = y + 1  # y in again; z goes out, written
            del y, z, w, v
    found = report.timeline()
    ends = [round(span.end, 3) for span in found.spans]
    assert ends == [1, 1, 2, 5] or ends == [1, 1, 2, 4]
    assert found.moves["in"] == {"count": 2, "bytes": 2 * MB}
    assert report.estimate().memory == pytest.approx(found.seconds)
    assert "moved into the fast memory" in str(report)
    large = reported(cost, lambda x: x + 1, (1024, 1024))  # does not fit
    scalars = 16 if jax.__version_info__ >= (0, 12) else 0  # bytes that its program reads besides
    assert large.estimate().memory == pytest.approx(8 + scalars / MB)
    assert large.timeline().moves["in"]["count"] == 0


def test_what_is_dead_is_not_written_back():
    cost = MEMORY | dict(fast=2 * MB, fast_bandwidth=1e30)
    chip = xgrad.Backend("chip", cost=xgrad.Cost(**cost))
    x = xgrad.ones(512, 512, device=chip)
    with chip.report() as report:
        y = x + 1
        for _ in range(5):
            y = y + 1
    assert report.timeline().moves["out"]["count"] == 0
    assert report.timeline().seconds == pytest.approx(1, rel=1e-3)


def test_a_write_is_the_same_array_in_the_fast_memory():
    cost = MEMORY | dict(fast=2 * MB, fast_bandwidth=1e30)
    chip = xgrad.Backend("chip", cost=xgrad.Cost(**cost))
    x = xgrad.ones(512, 512, device=chip)
    with chip.report() as report:
        x.add_(1)
        x.add_(1)
        x.neg()
    assert [round(span.end, 3) for span in report.timeline().spans] == [1, 1, 1]


def test_two_chips_send_one_another():
    if len(jax.devices()) < 2:
        pytest.skip("needs two devices")
    cost = xgrad.Cost(launch=1e-3, bandwidth=1e30, flops=1e30, compile=0, chip_link=1e3, chip_latency=0)
    pod = xgrad.Backend("pod", on=jax.devices()[:2], cost=cost)
    with xgrad.mesh({"data": 2}, devices=pod):
        x = xgrad.ones(8, 4, device=P("data"))
        for _ in range(2):
            with pod.report() as report:
                kept = x.sum(), x * 2, x.to(P(None, "data"))
                kept = *kept, kept[2] * 3
    times = [(s.queue, round(s.start * 1e3, 6), round(s.end * 1e3, 6)) for s in report.timeline().spans]
    assert times == [
        ("compute", 0, 1),
        ("between chips", 1, 5),  # four bytes, which each sends once
        ("compute", 1, 2),
        ("between chips", 5, 37),  # half of 64 bytes is there already
        ("compute", 37, 38),
    ]
    assert report.estimate().between == pytest.approx(36e-3)
    assert report.as_dict()["between chips"] == {"count": 1, "bytes": 32}
    sent = [(s.name, s.bytes) for s in report.timeline().spans if s.queue == "between chips"]
    assert sent == [("all-reduce", 4), ("resharding", 32)]
    assert report.as_dict()["collectives"] == {"all-reduce": {"count": 1, "bytes": 4}}
    assert "all-reduce in programs" in str(report)
    found = report.timeline()
    assert found.exposed["between chips"] == pytest.approx(35e-3)
    with xgrad.mesh({"data": 2}, devices=pod):
        a, b = xgrad.ones(64, 64, device=P("data")), xgrad.ones(64, 64, device=P())
        with pod.report() as report:
            kept = a @ b
    by_dtype = xgrad.Cost(flops={"float32": 64**3}, bandwidth=1e30, launch=0, compile=0)
    assert report.estimate(by_dtype).compute == pytest.approx(1)  # half on each


@pytest.mark.parametrize(
    ("text", "sent", "steps"),
    [
        ("%r = f32[64]{0} all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add", 384, 6),
        ("%r = f32[64]{0} all-reduce(%x), replica_groups={}, to_apply=%add", 448, 14),  # all eight
        ("%r = bf16[64,2]{1,0} all-gather(%x), replica_groups=[2,4]<=[8], dimensions={0}", 192, 3),
        ("%r = f32[16]{0} reduce-scatter(%x), replica_groups={{0,1},{2,3}}, to_apply=%add", 64, 1),
        ("%r = s8[64]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}", 64, 1),
        ("%r = (f32[16]{0}, f32[64]{0}) all-gather-start(%x), replica_groups={{0,1,2,3}}", 192, 3),
        ("%r = (s8[64]{0}, s8[64]{0}) collective-permute-start(%x), source_target_pairs={{0,1},{1,0}}", 64, 1),
        ("%r = f32[64]{0} all-reduce-start(%x), replica_groups={{0,1}}, to_apply=%add", 256, 2),
        ("%r = (f32[4]{0}, f32[8]{0}, f32[4]{0}) all-reduce(%x, %y, %z), replica_groups={{0,1}}", 64, 2),
    ],
)
def test_collectives_of_a_compiled_program(text, sent, steps):
    (found,) = collectives(f"ENTRY %main (x: f32[4]) -> f32[4] {{\n  {text}\n}}", 8)
    assert (found.sent, found.steps) == (sent, steps)


SCHEDULE = """
%body (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %inside = f32[4]{0} fusion(%p), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"10"}
  ROOT %gathered = f32[500]{0} all-gather(%inside), replica_groups={{0,1}}, dimensions={0}
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  %a = f32[4]{0} fusion(%x), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"100"}
  %sum = f32[500]{0} all-reduce-start(%a), replica_groups={{0,1}}, to_apply=%add
  %b = f32[4]{0} fusion(%a), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"500"}
  %done = f32[500]{0} all-reduce-done(%sum)
  %now = f32[250]{0} all-reduce(%done), replica_groups={{0,1}}, to_apply=%add
  ROOT %loop = f32[4]{0} while(%b), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"3"}}
}
"""


def test_a_chips_schedule_hides_what_it_sends_meanwhile():
    """A cycle is a millisecond, and a byte on the links too."""
    found = Schedule(SCHEDULE, 2, 1e-3, lambda size, steps: size * 1e-3)
    times = [(span.name, round(span.start * 1e3), round(span.end * 1e3)) for span in found.spans]
    assert times[:5] == [
        ("fusion", 0, 100),
        ("all-reduce", 100, 2100),  # 1500 of it are not hidden
        ("fusion", 100, 600),
        ("all-reduce", 2100, 3100),
        ("fusion", 3100, 3110),
    ]
    assert times[5:] == [
        ("all-gather", 3110, 4110), ("fusion", 4110, 4120), ("all-gather", 4120, 5120),
        ("fusion", 5120, 5130), ("all-gather", 5130, 6130),
    ]  # fmt: skip
    assert found.end == pytest.approx(6.13)
    told = Timeline("step", found.spans, found.end, None, 1024)
    assert told.exposed == {"between chips": pytest.approx(1.5 + 1 + 3)}
    assert told.as_dict()["memory"] == 1024
    assert "memory of each chip  1 KiB" in str(told)


@pytest.mark.parametrize(
    "branches", ["branch_computations={%short, %long, %none}", "true_computation=%long, false_computation=%short"]
)
def test_a_chips_schedule_has_the_longest_branch_of_a_conditional(branches):
    names = {"short": ["10"], "long": ["20", "30"], "none": []}
    text = "".join(
        f"%{name} (p: f32[4]) -> f32[4] {{\n"
        + "".join(
            f'  %{name}.{i} = f32[4]{{0}} fusion(%p), calls=%f, backend_config={{"estimated_cycles":"{cycles}"}}\n'
            for i, cycles in enumerate(many)
        )
        + "}\n"
        for name, many in names.items()
    )
    text += f"ENTRY %main (x: f32[4]) -> f32[4] {{\n  ROOT %c = f32[4]{{0}} conditional(%i, %x, %x), {branches}\n}}\n"
    assert Schedule(text, 1, 1e-3, lambda size, steps: 0.0).end == pytest.approx(0.05)


def answer_of(**said):
    """A chip's report, as a compiler of 256 chips would give it."""
    answer = Answer("tpu:v5e:16x16", **said)
    return ChipReport(xgrad.target("tpu:v5e:16x16"), answer, SimpleNamespace(name="step", names=(), mesh=(), donate=()))


def test_a_program_for_many_chips_has_a_timeline():
    cost = xgrad.Cost(chip_link=1e3, chip_latency=0)
    memory = {"argument": 100, "output": 50, "temp": 25, "alias": 50}
    report = answer_of(state="compiles", hlo=SCHEDULE, cost={"optimal_seconds": 0.61}, memory=memory)
    found = cost.timeline(report)
    assert found.busy["compute"] == pytest.approx(0.61 * (600 + 30) / 610)
    assert found.memory == 125
    assert found.table().caption == "step on tpu:v5e:16x16: simulated time"
    for bad in (dict(state="refused", said="no"), dict(state="compiles", hlo=SCHEDULE)):
        with pytest.raises(ValueError, match=r"step on tpu:v5e:16x16: (no|its compiler estimates no time)"):
            cost.timeline(answer_of(**bad))


def test_one_chip_alone_sends_nothing():
    assert Collective("all-reduce", 64, 1).sent == 0


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (dict(flops={"float33": 1.0}), ValueError, "flops has 'float33', which is not a dtype's name"),
        (dict(flops={}), ValueError, "flops is empty"),
        (dict(bandwidth={"float32": 0}), ValueError, "bandwidth of float32 must be positive, but got 0"),
        (dict(flops={"float32": "fast"}), TypeError, "flops of float32 must be a number"),
        (dict(rules={"sortt": 1.0}), ValueError, "rules has 'sortt', which is not an operator. Near it: .*sort"),
        (dict(rules={"stablehlo.sortt": 1.0}), ValueError, "is not an operation of StableHLO"),
        (dict(rules={"sort": -1}), ValueError, "the rule of 'sort' must be positive"),
        (dict(rules=["sort"]), TypeError, "rules is {operator: seconds or function}"),
        (dict(tiles=8), TypeError, r"tiles are sizes of the last dimensions, such as \(8, 128\)"),
        (dict(tiles={"float32": (8, 0)}), TypeError, "tiles are sizes"),
        (dict(fast=1.5), TypeError, "fast must be an int"),
        (dict(queues=0), ValueError, "queues must be positive"),
        (dict(note=3), ValueError, "note is in seconds, and 3 are many"),
        (dict(host_link={"float32": 1}), TypeError, "host_link must be a number"),
    ],
)
def test_bad_costs_are_errors_at_once(given, error, words):
    with pytest.raises(error, match=words):
        xgrad.Cost(**given)


def test_a_rule_that_gives_no_time_is_an_error():
    report = reported(ARITHMETIC | dict(rules={"exp": lambda op: "long"}), lambda x: x.neg(), (2,))
    with pytest.raises(ValueError, match="the rule of 'exp' returned 'long', which is not a time"):
        reported(ARITHMETIC | dict(rules={"exp": lambda op: "long"}), lambda x: x.exp(), (2,)).estimate()
    assert report.estimate().compute >= 0


def test_a_cost_is_a_value():
    cost = xgrad.Cost(flops={"float32": 1e12}, tiles=[8, 128], rules={"sort": 1e-3})
    assert cost == pickle.loads(pickle.dumps(cost))
    assert hash(cost) == hash(xgrad.Cost(flops={"float32": 1e12}, tiles=(8, 128), rules={"sort": 1e-3}))
    assert cost.tiles == (8, 128)
    assert xgrad.Cost(host=1e-6).noting == 1e-6


def test_a_plot_without_a_cost_shows_bytes():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    chip = xgrad.Backend("chip")
    with chip.report() as report:
        xgrad.ones(4, device=chip)[:2].sum().item()
    drawn = report.plot()
    assert drawn.get_xlabel() == "bytes"
    lengths = {text.get_text(): bar.get_width() for text, bar in zip(drawn.get_yticklabels(), drawn.patches)}
    assert (lengths["views read"], lengths["to the host"]) == (8, 4)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32, np.bool_, np.complex64])
def test_dtypes_have_their_names_in_programs(dtype):
    cost = MEMORY | dict(bandwidth={np.dtype(dtype).name: MB, "*": 1e30}, flops={"*": 1e30}, rules={"sin": 0.0})
    chip = xgrad.Backend("chip", cost=xgrad.Cost(**cost))
    x = xgrad.tensor(np.ones((512, 512), dtype), device=chip)
    for _ in range(2):
        with chip.report() as report:
            x.clone()
    assert report.estimate().memory == pytest.approx(2 * x._array.nbytes / MB)
    work = report._works.of(next(iter(report._events.launches)))
    assert {shaped.dtype for each in work.operations for shaped in each.operands} == {x._array.dtype.name}


def test_a_write_that_is_refused_leaves_no_copy_to_the_next_program():
    chip = xgrad.Backend("chip", donation=False, without=["erfinv"], fallback="error", cost=xgrad.Cost(**MEMORY))
    x = xgrad.ones(512, 512, device=chip)
    for _ in range(2):
        with chip.report() as report:
            with pytest.raises(xgrad.errors.BackendError, match="erfinv"):
                x.erfinv_()
            x.neg()
    assert report.estimate().memory == pytest.approx(2)
