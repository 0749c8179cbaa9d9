"""autograd.profiler: what ran, how often, under which sequence number; and the names that JAX's own profiler gets."""

import gzip
import json
import re
import subprocess
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xgrad
from xgrad.autograd import profiler
from xgrad.config import state
from xgrad.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ..oracle import data, leaf


def _step(T):
    x, bias = data(T, (2, 3)), leaf(T, 3, seed=1)
    first, second = leaf(T, 3, 3, seed=2), leaf(T, 3, 3, seed=3)
    hidden = (x.mm(first) + bias).tanh()
    y = hidden.mm(second)
    ((y * y).sum() * 2).backward()


def _linked(events):
    """{sequence number: (names of the operators, names of the nodes)} of all that have one."""
    found = {}
    for event in events:
        if event.sequence_nr >= 0:
            found.setdefault(event.sequence_nr, ([], []))[event.kind == "backward"].append(event.name)
    return found


def test_counts_of_operators_and_nodes_are_torchs():
    with torch.autograd.profiler.profile() as theirs:
        _step(torch)
    with profiler.profile() as ours:
        _step(xgrad)
    # PyTorch says also what an operator is made of, and gives a node two events.
    expected = Counter()
    for event in theirs.function_events:
        name, parent = event.name.removeprefix("aten::"), event.cpu_parent
        if event.name.startswith("aten::") and parent is None and name not in ("lift_fresh", "ones_like"):
            expected[event.name] += 1
        elif event.name.startswith("autograd::engine::evaluate_function: "):
            expected[event.name.partition(" ")[2]] += 1
    assert {e.key: e.count for e in ours.key_averages()} == expected
    assert expected["aten::mm"] == expected["MmBackward0"] == 2
    assert expected["torch::autograd::AccumulateGrad"] == 3


def test_events_come_in_the_order_in_which_torch_begins_them():
    with torch.autograd.profiler.profile() as theirs:
        _step(torch)
    with profiler.profile() as ours:
        _step(xgrad)
    nodes = [e.name.partition(" ")[2] for e in theirs.function_events if "evaluate_function" in e.name]
    assert [e.name for e in ours.function_events if e.kind == "backward"] == nodes


class _Triple(xgrad.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("program", "operator", "node"),
    [
        (lambda x: x * x, "aten::mul", "MulBackward0"),
        (lambda x: x.exp(), "aten::exp", "ExpBackward0"),
        (lambda x: x.max(1)[0], "aten::max", "MaxBackward0"),
        (lambda x: x.select(0, 1), "aten::select", "SelectBackward0"),
        (lambda x: x.split(1)[0], "aten::split", "SplitBackward0"),
        (lambda x: x.clone().t_(), "aten::t_", "TBackward1"),
        (lambda x: x.clone().mul_(2), "aten::mul_", "MulBackward0"),
        (lambda x: (y := x.clone(), y[0].mul_(2))[0], "aten::mul_", "torch::autograd::CopySlices"),
        (_Triple.apply, "_Triple", "_TripleBackward"),
    ],
)
def test_an_operator_and_its_node_have_one_number(program, operator, node):
    x = leaf(xgrad, 2, 3)
    with profiler.profile() as prof:
        program(x).sum().backward()
    assert ([operator], [node]) in _linked(prof.function_events).values()
    assert all(len(set(makers)) == 1 for makers, _ in _linked(prof.function_events).values())


def test_what_is_not_recorded_has_no_number():
    x = leaf(xgrad, 2, 3)
    with profiler.profile() as prof:
        x.detach() * 2
        with xgrad.no_grad():
            x * x
        x.sum().backward()
    assert [e.sequence_nr for e in prof.function_events if e.name == "aten::mul"] == [-1, -1]
    assert [e.sequence_nr for e in prof.function_events if e.name.endswith("AccumulateGrad")] == [-1]


def test_operators_of_a_second_derivative_lie_in_the_node_that_records_them():
    x = leaf(xgrad, 3)
    with profiler.profile() as prof:
        (grad,) = xgrad.autograd.grad((x * x * x).sum(), x, create_graph=True)
        grad.sum().backward()
    linked = _linked(prof.function_events)
    recorded = [
        e for e in prof.function_events if e.kind == "forward" and e.cpu_parent and e.cpu_parent.kind != "range"
    ]
    assert {e.cpu_parent.name for e in recorded} >= {"MulBackward0"}
    second = [name for _, nodes in linked.values() for name in nodes if name == "MulBackwardBackward0"]
    assert second
    assert all(makers for makers, nodes in linked.values() if "MulBackwardBackward0" in nodes)


def test_ranges_nest_and_times_add_up():
    with profiler.profile() as prof:
        with profiler.record_function("outer"):
            with profiler.record_function("inner", "some text"):
                y = leaf(xgrad, 3) * 2
            y.sum().backward()
        y + 1
    events = {e.name: e for e in prof.function_events}
    assert events["inner"].cpu_parent is events["outer"]
    assert events["inner"].args == "some text"
    assert events["aten::mul"].cpu_parent is events["inner"]
    assert events["MulBackward0"].cpu_parent is events["outer"]
    assert events["aten::add"].cpu_parent is None
    for event in events.values():
        assert event.self_cpu_time_total >= 0
        for child in event.cpu_children:
            assert event.time_range.start <= child.time_range.start <= child.time_range.end <= event.time_range.end
    top = sum(e.cpu_time_total for e in prof.function_events if e.cpu_parent is None)
    assert prof.self_cpu_time_total == pytest.approx(top)
    assert prof.total_average().self_cpu_time_total == pytest.approx(top)
    assert prof.total_average().count == len(prof.function_events)


def test_record_function_decorates_recursive_functions():
    @profiler.record_function("countdown")
    def countdown(n):
        """Down to zero."""
        return n if n == 0 else countdown(n - 1)

    assert countdown(2) == 0
    with profiler.profile() as prof:
        countdown(2)
    assert [e.count for e in prof.key_averages()] == [3]
    assert [e.cpu_parent is None for e in prof.function_events] == [True, False, False]
    assert countdown.__doc__ == "Down to zero."


def test_table_sorts_limits_and_sums():
    with profiler.profile(record_shapes=True) as prof:
        _step(xgrad)
    averages = prof.key_averages()
    assert [e.count for e in averages if e.key == "aten::mul"] == [2]
    grouped = prof.key_averages(group_by_input_shape=True)
    assert [(e.count, e.input_shapes) for e in grouped if e.key == "aten::mul"] == [
        (1, [[2, 3], [2, 3]]),
        (1, [[], []]),
    ]
    lines = averages.table(sort_by="count", row_limit=2, header="A step").splitlines()
    assert lines[1] == "A step"
    assert lines[3].split("  ")[-1] == "# of Calls"
    assert len(lines) == 5 + 2 + 2
    largest = sorted((e.count for e in averages), reverse=True)[:2]
    assert [int(line.split()[-1]) for line in lines[5:7]] == largest
    shares = [float(line.split()[1][:-1]) for line in averages.table().splitlines()[3:-2]]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert "Input Shapes" in grouped.table()
    assert "Input Shapes" not in averages.table()
    assert re.search(r"Self CPU time total: [\d.]+(us|ms|s)\n$", str(prof))
    assert len(prof.table(row_limit=3).splitlines()) == 3 + 5
    with pytest.raises(AttributeError, match="nope"):
        prof.table(sort_by="nope")
    inside = {e.name for e in prof.function_events if e.cpu_parent is not None}
    assert not any(line.split()[0] in inside for line in prof.table(top_level_events_only=True).splitlines()[3:-2])


def test_chrome_trace_ties_operators_to_their_nodes(tmp_path):
    with profiler.profile(record_shapes=True) as prof, profiler.record_function("model"):
        x = leaf(xgrad, 2, 3)
        (x * x).sum().backward()
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert [e["name"] for e in spans] == [e.name for e in prof.function_events]
    assert {e["name"]: e["cat"] for e in spans}["model"] == "user_annotation"
    mul = next(e for e in spans if e["name"] == "aten::mul")
    assert mul["args"]["Input Dims"] == [[2, 3], [2, 3]]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    tied = {}
    for end in (e for e in events if e["ph"] == "f"):
        start = starts.pop(end["id"])
        (maker,) = (e for e in spans if (e["ts"], e["tid"]) == (start["ts"], start["tid"]))
        (node,) = (e for e in spans if (e["ts"], e["tid"]) == (end["ts"], end["tid"]))
        tied[maker["name"]] = node["name"]
        assert maker["args"]["Sequence number"] == node["args"]["Sequence number"]
    assert tied == {"aten::mul": "MulBackward0", "aten::sum": "SumBackward0"}
    assert not starts


@pytest.mark.parametrize("recorder", [profiler.emit_nvtx, profiler.profile])
def test_a_program_traced_under_a_recorder_names_operators_and_nodes(recorder):
    def gradient(array):
        with recorder():
            with profiler.record_function("net/first"):
                x = xgrad.as_tensor(array).requires_grad_()
                y = x.sin() * x
            y.sum().backward()
        return y._read(), x.grad._read()

    lowered = jax.jit(gradient).lower(jnp.ones(3))
    assert re.search(r'op_name="jit\(gradient\)/[^"]*, seq = ', lowered.compile().as_text())
    text = lowered.as_text(debug_info=True)
    numbers = {}
    for name in ("sin", "mul", "SinBackward0", "MulBackward0"):
        (numbers[name],) = set(re.findall(rf"/(?:aten::)?{name}, seq = (\d+)/", text))
    assert numbers["sin"] == numbers["SinBackward0"]
    assert numbers["mul"] == numbers["MulBackward0"]
    assert re.search(r"net\|first/(aten::)?sin, seq", text)
    assert not re.search(r"net\|first/SinBackward0", text)
    plain = jax.jit(lambda a: (xgrad.as_tensor(a).sin() * 2)._read()).lower(jnp.ones(3)).as_text(debug_info=True)
    assert "sin, seq" not in plain


def test_jax_profiler_shows_the_same_names_with_matching_numbers(tmp_path):
    x = leaf(xgrad, 2, 3)
    with jax.profiler.trace(str(tmp_path), create_perfetto_trace=True):
        with profiler.emit_nvtx(record_shapes=True), profiler.record_function("model"):
            y = x.clone()
            y[0].mul_(2)
            _Triple.apply(y).sum().backward()
        (x * 2).sum().backward()
    (file,) = tmp_path.rglob("perfetto_trace.json.gz")
    names = [e.get("name", "") for e in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]]
    assert "model" in names
    numbered = dict(
        re.match(r"([\w:]+), seq = (\d+), sizes = \[\[.*\]\]$", n).groups() for n in names if ", seq = " in n
    )
    assert numbered["clone"] == numbered["CloneBackward0"]
    assert numbered["mul_"] == numbered["torch::autograd::CopySlices"]
    assert numbered["_Triple"] == numbered["_TripleBackward"]
    assert numbered["sum"] == numbered["SumBackward0"]
    assert len(set(numbered.values())) * 2 == len(numbered) + 1  # `y[0]` is not in the graph of y
    assert "mul, seq" not in "".join(names)  # the line after the block


def test_nested_recorders_and_modes_are_all_asked():
    asked = []

    def policy(ctx, op, *args, **kwargs):
        asked.append(op.__name__)
        return op is xgrad.sin

    def contexts():
        return create_selective_checkpoint_contexts(policy)

    x = leaf(xgrad, 3)
    with profiler.profile() as outer:
        with profiler.profile() as inner:
            y = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False, context_fn=contexts)
            (_grad,) = xgrad.autograd.grad(y.sum(), x, create_graph=True)
        x * 2
    assert asked == ["sin", "exp"]  # and nothing of what backward runs
    names = Counter(e.name for e in inner.function_events)
    assert names["aten::exp"] == 2  # recomputed
    assert names["aten::sin"] == 1  # kept
    assert names["ExpBackward0"] == 1
    assert [e.name for e in outer.function_events] == [*(e.name for e in inner.function_events), "aten::mul"]


def test_an_error_ends_what_is_open():
    def hook(grad):
        raise RuntimeError("hook")

    y = leaf(xgrad, 3) * 2
    y.register_hook(hook)
    y = y.sum()
    with pytest.raises(RuntimeError, match="hook"), profiler.profile() as prof, profiler.record_function("range"):
        y.backward()
    assert state.recorder is None
    assert state.operator_mode is None
    assert [e.name for e in prof.function_events] == ["range", "SumBackward0", "MulBackward0"]
    assert all(e.time_range.end >= e.time_range.start for e in prof.function_events)
    with profiler.profile() as prof:
        block = profiler.record_function("longer")
        block.__enter__()
    block.__exit__(None, None, None)
    assert [e.name for e in prof.function_events] == ["longer"]


def test_recording_changes_no_gradient_and_holds_no_tensor():
    import gc
    import weakref

    x = leaf(xgrad, 2, 3)
    plain = xgrad.autograd.grad((x.t()[1].exp() * x[:, 0]).sum(), x)[0]
    gc.disable()
    try:
        with profiler.profile(record_shapes=True) as prof:
            y = (x.t()[1].exp() * x[:, 0]).sum()
            node = weakref.ref(y.grad_fn)
            grad = xgrad.autograd.grad(y, x)[0]
            del y
            assert node() is None
    finally:
        gc.enable()
    np.testing.assert_array_equal(grad.numpy(), plain.numpy())
    assert len(prof.function_events) > 5


def test_wrong_use_raises():
    prof = profiler.profile()
    with prof:
        with pytest.raises(RuntimeError, match="didn't finish"):
            prof.key_averages()
        assert repr(prof) == "<unfinished xgrad.autograd.profile>"
        with pytest.raises(RuntimeError, match="not reentrant"):
            prof.__enter__()
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()
    recorder = profiler.emit_nvtx()
    with recorder, pytest.raises(RuntimeError, match="not reentrant"):
        recorder.__enter__()
    with pytest.warns(UserWarning, match=r"jax\.profiler"):
        profiler.profile(use_cuda=True)
    assert state.recorder is None
    with profiler.profile(enabled=False) as off, profiler.emit_nvtx(enabled=False):
        assert state.recorder is None
        xgrad.ones(2) * 2
    assert off.function_events == []
    assert str(off) == off.table() == ""


@pytest.mark.eager("launches")
@pytest.mark.exhaustive
def test_until_the_first_recorder_operators_look_for_no_mode():
    code = """
import sys
import xgrad
from xgrad.execution.runner import runner
assert not {m for m in sys.modules if "profiler" in m and m.startswith("xgrad")}, sys.modules
from xgrad.autograd import profiler
with profiler.record_function("block"):
    pass
assert runner.plain
with profiler.profile():
    assert not runner.plain
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.exhaustive
@pytest.mark.one_in(2)
@pytest.mark.parametrize("first", ["from xgrad.interop import jax", "with xgrad.autograd.profiler.profile(): pass"])
def test_operators_of_from_jax_are_seen_whatever_was_imported_first(first):
    code = f"""
import jax.numpy as jnp
import xgrad
import xgrad.autograd.profiler
{first}
sine = xgrad.from_jax(jnp.sin)
x = xgrad.ones(2)
with xgrad.autograd.profiler.profile() as prof:
    sine(x) * x
    sine(x[:1])
assert [e.name for e in prof.function_events] == ["aten::sin", "aten::mul", "aten::getitem", "aten::sin"], prof.events()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_options_of_torch_are_taken():
    def names(T):
        x = leaf(T, 2, 3)
        with T.autograd.profiler.profile(
            use_kineto=False, with_stack=False, with_modules=False, acc_events=True
        ) as prof:
            x.mul(x).add_(1)
        return [e.name for e in prof.function_events if e.name in ("aten::mul", "aten::add_")]

    assert names(xgrad) == names(torch) == ["aten::mul", "aten::add_"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (dict(with_flops=True), r"with_flops has no effect.*cost_analysis\(\)"),
        (dict(profile_memory=True), r"profile_memory has no effect.*memory_analysis\(\)"),
        (dict(use_cpu=False), "use_cpu=False has no effect"),
    ],
)
def test_what_is_not_measured_is_warned_of(options, match):
    with pytest.warns(UserWarning, match=match):
        profiler.profile(**options)


def test_events_of_ones_own_find_their_parents():
    def program(T, module):
        times = [(0, 10), (1, 3), (4, 8), (5, 6), (12, 13)]
        events = module.EventList(
            module.FunctionEvent(id=i, node_id=0, name=str(i), thread=1, start_us=start, end_us=end)
            for i, (start, end) in enumerate(times)
        )
        events._populate_cpu_children()
        return [
            (e.name, e.node_id, [c.name for c in e.cpu_children], e.cpu_parent and e.cpu_parent.name, e.cpu_time_total)
            for e in events
        ]

    assert program(xgrad, profiler.events) == program(torch, torch.autograd.profiler_util)


def test_children_that_were_made_with_their_parent_count_once():
    outer = profiler.events.FunctionEvent(id=0, name="outer", thread=1, start_us=0, end_us=10)
    inner = profiler.events.FunctionEvent(id=1, name="inner", thread=1, start_us=1, end_us=3, parent=outer)
    profiler.events.EventList([outer, inner])._populate_cpu_children()
    assert outer.cpu_children == [inner]
    assert outer.self_cpu_time_total == 8


def test_tables_take_torchs_arguments():
    with profiler.profile() as prof:
        xgrad.ones(2) + 1
    table = prof.table("cpu_time_total", 5, 75, 8, 10, "head", True)
    assert table.splitlines()[1] == "head"
    assert prof.table(max_src_column_width=10) == prof.table()
    assert len(prof.key_averages(group_by_stack_n=4)) == len(prof.key_averages())
    with pytest.raises(NotImplementedError, match="no stacks are recorded"):
        prof.export_stacks("stacks")


def test_each_profile_has_a_file_of_its_own(tmp_path):
    for zipped in (False, False, True):
        ready = xgrad.profiler.tensorboard_trace_handler(str(tmp_path), "w", use_gzip=zipped)
        with xgrad.profiler.profile(on_trace_ready=ready):
            xgrad.ones(2).exp()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    (packed,) = [file for file in files if file.suffix == ".gz"]
    assert json.loads(gzip.decompress(packed.read_bytes()))["traceEvents"]


@pytest.mark.parametrize("wrong", [{"active": 0}, {"wait": -1}, {"warmup": -1}, {"repeat": -1}, {"skip_first": -1}])
def test_a_schedule_has_steps(wrong):
    with pytest.raises(ValueError, match="Invalid profiler schedule arguments"):
        xgrad.profiler.schedule(**{"wait": 0, "warmup": 1, "active": 1} | wrong)
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        torch.profiler.schedule(**{"wait": 0, "warmup": 1, "active": 1} | wrong)
