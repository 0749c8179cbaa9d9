"""compare and tracking: both paths side by side, and what the report says."""

import itertools
import json
import sys

import jax
import numpy as np
import pytest

import xgrad
from xgrad.comparison import timing
from xgrad.comparison.difference import difference
from xgrad.comparison.timing import Times, interleaved, slower
from xgrad.execution.programs.cost import Cost, operations_of, together


def sweep(x, w):
    x = x.clone()
    x[0].mul_(w)
    x.t()[1:3].add_(w)
    x.diagonal().mul_(3.0)
    return x * x


def inputs():
    w = xgrad.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    return xgrad.arange(16.0).reshape(4, 4).requires_grad_(), w


@pytest.fixture(scope="module")
def result():
    return xgrad.compare(sweep, *inputs(), repeats=2)


# ---------------------------------------------------------------- compare


def test_equal_paths_are_reported_equal_with_both_graphs(result):
    assert result.equal
    assert result.within_rounding
    assert result.max_difference == 0.0
    for path in ("replay", "geometry"):
        assert result.paths[path].nodes["CopySlices"] == 3
        assert result.paths[path].nodes["AccumulateGrad"] == 2


def test_gradients_are_those_of_a_plain_run(result):
    x, w = inputs()
    cotangent = xgrad.as_tensor(np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32))
    expected = xgrad.autograd.grad(sweep(x, w), (x, w), cotangent)
    for found, wanted in zip(result.paths["replay"].gradients, expected, strict=True):
        np.testing.assert_array_equal(found, wanted.numpy())


@pytest.mark.exhaustive
def test_each_view_program_and_the_whole_one_have_a_cost(result):
    for report in result.paths.values():
        assert sorted(p.role for p in report.programs) == ["read"] * 3 + ["write"] * 3
        for program in report.programs:
            assert program.cost.operations > 0
            assert program.cost.compile_seconds > 0
        assert report.whole.operations > 10
        assert report.untraceable is None
        assert report.eager_seconds > 0
        assert report.compiled_seconds > 0


def test_the_diagonal_is_where_the_paths_have_other_programs(result):
    steps = {path: {p.steps for p in report.programs} for path, report in result.paths.items()}
    assert "Diagonal" in steps["replay"]
    assert "AsStrided" in steps["geometry"]
    assert "AsStrided as Slice, Reshape" in steps["geometry"]


def test_stale_views_are_regenerated_along_their_own_path():
    def stale(x):
        base = x.clone()
        view = base.t()
        base.mul_(2.0)
        return view

    got = xgrad.compare(stale, xgrad.ones(2, 3, requires_grad=True), programs=False, timing=False)
    assert got.equal
    assert got.paths["replay"].nodes["TBackward0"] == 1
    assert got.paths["geometry"].nodes["AsStridedBackward0"] == 1


def test_it_prints_as_an_aligned_table(result):
    head, *lines = str(result).splitlines()
    assert head == "compare sweep: outputs and gradients are equal, bit for bit"
    (ruler,) = (line for line in lines if set(line) == {"-"})
    nodes = next(line for line in lines if line.startswith("nodes in the graph"))
    assert len(nodes) == len(ruler)
    assert nodes.split()[-2:] == ["7", "7"]
    assert "gradient of input 1 float32[4]: equal" in str(result)


def test_it_shows_as_html_without_unescaped_text(result):
    html = result._repr_html_()
    assert html.count("<tr>") == html.count("</tr>") > 10
    assert "-&gt;" in html
    assert "->" not in html


@pytest.mark.exhaustive
def test_it_draws_a_bar_for_each_path(result):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    ax = result.plot()
    assert len(ax.patches) == 2 * len(ax.get_yticks()) > 10
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["replay", "geometry"]
    plt.close(ax.figure)


def test_without_matplotlib_plot_says_what_to_install(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r'pip install "xgrad\[viz\]"'):
        result.plot()


def test_rich_prints_the_same_numbers(result, capsys):
    pytest.importorskip("rich")
    result.print(rich=True)
    assert "CopySlices" in capsys.readouterr().out


def test_the_users_inputs_stay_as_they_are():
    x = xgrad.ones(3)
    leaf = xgrad.ones(3, requires_grad=True)
    xgrad.compare(lambda a, b: a.mul_(2) * b, x, leaf, programs=False, repeats=1)
    assert x.tolist() == [1, 1, 1]
    assert x._version == 0
    assert leaf.grad is None


def test_random_numbers_are_the_same_in_both_paths():
    def noisy(x):
        return x * xgrad.rand(5)

    got = xgrad.compare(noisy, xgrad.ones(5, requires_grad=True), repeats=1)
    assert got.equal
    assert got.paths["replay"].untraceable is None


def test_a_function_that_asks_for_a_value_is_compared_without_the_whole_program():
    def branches(x):
        return x * 2 if x.sum().item() > 0 else x

    got = xgrad.compare(branches, xgrad.ones(2, requires_grad=True), repeats=1)
    assert got.equal
    assert got.paths["replay"].whole is None
    assert "not one program" in str(got)


def test_outputs_without_gradients_and_plain_arguments_are_compared_too():
    got = xgrad.compare(lambda x, n: (x * n, x.argmax()), np.arange(3.0, dtype=np.float32), 2, timing=False)
    assert got.equal
    assert [d.name for d in got.differences] == ["output 0", "output 1"]


def test_what_is_no_tensor_is_refused_by_name():
    with pytest.raises(TypeError, match="must return a Tensor or a tuple of them, but got float"):
        xgrad.compare(lambda x: x.sum().item(), xgrad.ones(2))
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        xgrad.compare(sweep, *inputs(), repeats=0)


def test_an_error_says_along_which_path_it_came():
    with pytest.raises(RuntimeError) as caught:
        xgrad.compare(lambda x: x.clone().view(7), xgrad.ones(6))
    assert 'tracking("replay")' in "".join(caught.value.__notes__)


def test_a_comparison_can_be_cited(result):
    """Versions, device, date and each time are in the table, in HTML and in the dictionary."""
    found = result.as_dict()
    assert found["circumstances"]["jax"] == jax.__version__
    assert "processors" in found["circumstances"]["device"] or xgrad.devices()[0].type != "cpu"
    assert len(found["replay"]["times"]["eager"]) == 2
    for form in (str(result), result._repr_html_()):
        assert f"jax {jax.__version__}" in form
        assert found["circumstances"]["date"] in form
        assert "A B B A" in form
    json.dumps(found)


def test_programs_that_are_not_listed_are_counted_and_the_dictionary_has_all():
    def many(x):
        y = x.clone()
        for rows in range(1, 8):
            y[:rows].mul_(2)
        return y

    got = xgrad.compare(many, xgrad.ones(8, 2, requires_grad=True), timing=False, repeats=1)
    assert len(got.as_dict()["replay"]["view programs"]) == len(got.paths["replay"].programs) == 14
    assert "replay    2 more programs, which as_dict() lists" in str(got)
    assert "compile time" not in str(got)


# ---------------------------------------------------------------- times


def noisy_clock(rng, seconds=1e-3, noise=0.2, busy=0.1):
    """Return a clock by which what is timed takes `seconds`, more or less; now and then another program interrupts."""
    now = itertools.count()

    def clock():
        clock.time += seconds * rng.lognormal(0, noise) * (10 if rng.random() < busy else 1) * (1 + next(now) / 1000)
        return clock.time

    clock.time = 0.0
    return clock


def timed_by(clock, repeats, factor=1.0):
    """Return the times of two runs that take a tick of the clock; the first takes `factor` ticks."""
    runs = {"a": lambda: factor * (-clock() + clock()), "b": lambda: -clock() + clock()}
    return interleaved(runs, repeats, patience=1e9)


def test_of_identical_programs_neither_is_slower_in_any_order():
    times = [timed_by(noisy_clock(np.random.default_rng(seed)), 8) for seed in range(300)]
    named = [slower(found["a"], found["b"]) for found in times]
    assert np.count_nonzero(named) <= 9  # one in a hundred is expected
    assert abs(sum(named)) <= 4  # and the first is not preferred


def test_what_takes_longer_is_said_to_although_runs_were_interrupted():
    times = timed_by(noisy_clock(np.random.default_rng(0), noise=0.05), 20, factor=1.5)
    assert slower(times["a"], times["b"]) == 1
    assert slower(times["b"], times["a"]) == -1
    (line, *_) = timing.said("run time", times)
    assert line.startswith("run time: a takes 1.")


def test_runs_take_turns_forth_and_back():
    order = []
    runs = {name: lambda name=name: order.append(name) or 1.0 for name in "AB"}
    interleaved(runs, 4)
    assert "".join(order) == "BA" + "ABBAABBA"


def test_few_runs_name_none_and_a_wide_spread_is_a_warning():
    times = {"a": Times([1.0, 2.0, 3.0]), "b": Times([7.0, 7.1, 7.2])}
    seldom, warning = timing.said("run time", times)
    assert seldom == "run time: measured too seldom to say which takes longer, a or b"
    assert warning.startswith("WARNING: run time varies widely, a ±25%: ")
    assert str(Times([0.5])) == "500 ms"


def test_two_paths_with_the_same_programs_are_not_told_apart(monkeypatch):
    """All of `compare`, by a clock of its own: only noise is measured."""
    monkeypatch.setattr(timing, "clock", noisy_clock(np.random.default_rng(1)))
    got = xgrad.compare(lambda x: x * 2, xgrad.ones(2, requires_grad=True))
    assert "times as long" not in str(got)
    assert str(got).count("no difference beyond chance between replay and geometry") == 3


def test_compiles_find_no_cache(tmp_path):
    """Each is traced, compiled and stored nowhere, although JAX has just compiled the same program."""
    from xgrad.execution.programs import cost

    traced = []
    inner = jax.jit(lambda x: traced.append(1) or x * 3 + 1)
    before = jax.config.values["jax_enable_compilation_cache"]
    used = xgrad.compile_cache.enable_compile_cache(tmp_path)
    stored = len(list(used.glob("*-cache")))
    for _ in range(2):
        cost.compiled(lambda x: inner(x), (np.float32(1),))
    assert len(traced) == 2
    assert len(list(used.glob("*-cache"))) == stored
    assert jax.config.values["jax_enable_compilation_cache"] == before
    xgrad.compile_cache.disable_compile_cache()


def test_the_cache_is_on_again_after_an_interrupt_and_after_blocks_that_cross():
    from xgrad.execution.programs import cost
    from xgrad.execution.programs.folder import cache_off

    def interrupted(x):
        raise KeyboardInterrupt

    before = jax.config.values["jax_enable_compilation_cache"]
    with pytest.raises(KeyboardInterrupt):
        cost.compiled(interrupted, (np.float32(1),))
    assert jax.config.values["jax_enable_compilation_cache"] == before
    first, second = cache_off(), cache_off()  # as in two threads
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not jax.config.values["jax_enable_compilation_cache"]
    second.__exit__(None, None, None)
    assert jax.config.values["jax_enable_compilation_cache"] == before


def test_an_interrupt_on_the_way_into_a_block_leaves_the_cache_on(monkeypatch):
    from xgrad.execution.programs import folder

    before = jax.config.values["jax_enable_compilation_cache"]
    enable = folder._set_enabled

    def interrupted(value):
        enable(value)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(folder, "_set_enabled", interrupted)
    with pytest.raises(KeyboardInterrupt), folder.cache_off():
        pass
    assert jax.config.values["jax_enable_compilation_cache"] == before
    with folder.cache_off():
        assert not jax.config.values["jax_enable_compilation_cache"]
        monkeypatch.setattr(folder, "_set_enabled", interrupted)
        with pytest.raises(KeyboardInterrupt), folder.cache_off():
            pass
        assert not jax.config.values["jax_enable_compilation_cache"]
    assert jax.config.values["jax_enable_compilation_cache"] == before


# ---------------------------------------------------------------- differences and costs


def test_differences_count_nan_as_equal_to_nan_and_one_sided_values_as_unequal():
    a = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference("a", a, a.copy()).equal
    assert difference("a", a, np.array([1.0, np.nan, -np.inf], np.float32)).largest == np.inf
    assert difference("a", a, None).largest is None
    near = difference("a", np.float32([1.0]), np.nextafter(np.float32([1.0]), np.float32(2)))
    assert not near.equal
    assert near.within_rounding
    assert not difference("a", np.float32([1.0]), np.float32([1.001])).within_rounding


def test_operations_are_counted_inside_of_fusions_without_what_computes_nothing():
    hlo = """
%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %c.1 = f32[] constant(2)
  %b = f32[4]{0} broadcast(%c.1), dimensions={}
  ROOT %m = f32[4]{0} multiply(%p, %b), metadata={op_name="jit(f)/mul"}
}

ENTRY %main (x: f32[4]) -> (f32[4], f32[4]) {
  %x = f32[4]{0} parameter(0)
  %f = f32[4]{0:T(128)} fusion(%x), kind=kLoop, calls=%fused
  %s = (f32[4]{0}, s32[4]{0}) sort(%f, %f), dimensions={0}
  ROOT %t = (f32[4]{0}, f32[4]{0}) tuple(%f, %x)
}
"""
    assert operations_of(hlo) == {"broadcast": 1, "multiply": 1, "sort": 1}


def test_what_is_not_known_of_one_program_is_not_known_of_all():
    known, unknown = Cost(2, 1.0, 8.0, 4, 0.5), Cost(3, None, None, None, 0.5)
    assert together([(known, 3), (known, 1)]) == Cost(8, 4.0, 32.0, 4, 1.0)
    assert together([(known, 1), (unknown, 1)]) == Cost(5, None, None, None, 1.0)


# ---------------------------------------------------------------- tracking


def path_of_a_view():
    base = xgrad.ones(2, 3, requires_grad=True).clone()
    view = base[0]
    view.mul_(2)
    return "geometry" if view.grad_fn.name() == "AsStridedBackward0" else "replay"


def test_tracking_is_a_block_and_a_decorator_and_nests():
    assert path_of_a_view() == "replay"
    with xgrad.views.tracking("geometry"):
        assert path_of_a_view() == "geometry"
        with xgrad.views.tracking("replay"):
            assert path_of_a_view() == "replay"
        assert path_of_a_view() == "geometry"
    decorated = xgrad.views.tracking("geometry")(path_of_a_view)
    assert decorated() == decorated() == "geometry"
    assert path_of_a_view() == "replay"


def test_tracking_refuses_other_paths():
    with pytest.raises(ValueError, match="not by 'strides'"):
        xgrad.views.tracking("strides")


def test_pytorchs_name_is_a_function_too_and_true_means_replay():
    force = xgrad.autograd._force_original_view_tracking
    with force(False):
        assert path_of_a_view() == "geometry"
        with force(True):
            assert path_of_a_view() == "replay"
    assert force(False)(path_of_a_view)() == "geometry"
    assert path_of_a_view() == "replay"
    with xgrad.views.tracking("replay"):  # puts back what the next line sets for good
        force(False)
        assert path_of_a_view() == "geometry"
    assert path_of_a_view() == "replay"
