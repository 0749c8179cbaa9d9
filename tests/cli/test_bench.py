"""python -m xgrad bench: its rows, its table, its picture.  Times are made up: nothing here depends on the machine."""

import json

import numpy as np
import pytest

import xgrad
from benchmarks import ratios
from benchmarks.ratios import Counted, Result, Row, Timed
from benchmarks.rows import ROWS
from xgrad.cli import main

from ..lanes import eager_cases

PNG = b"\x89PNG"


def made_up(row, rounds, seconds=0.01):
    """Every ratio is about 1.2."""
    return Result(row, [1.2, 1.1, 1.3][:rounds], [1.0, 1.0, 1.0][:rounds], "µs")


@pytest.fixture
def no_clock(monkeypatch):
    monkeypatch.setattr(ratios, "measure", made_up)


def row(make, **options):
    return Row("name", "group", "what", "against", make, **options)


# ---------------------------------------------------------------- the command


def test_bench_prints_a_line_with_spread_for_each_row(capsys, no_clock):
    assert main(["bench", "--rounds", "3"]) == 0
    text = capsys.readouterr().out
    for r in ROWS:
        (line,) = [x for x in text.splitlines() if x.startswith(f"{r.what}  ") and f"  {r.against}  " in x]
        assert "1.20      1.15 .. 1.25" in line
        assert line.endswith(("holds", "FALLS SHORT", "ahead")) == (r.bound is not None)


def test_rich_draws_the_same_rows(capsys, no_clock, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["bench", "--rounds", "3", "--rich"]) == 0
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    for r in ROWS:
        (found,) = [row for row in rows if row[1:3] == [r.what, r.against]]
        assert found[3:5] == ["1.20", "1.15 .. 1.25"]


@pytest.mark.exhaustive
def test_bench_draws_a_picture_and_writes_all_numbers(capsys, no_clock, tmp_path):
    pytest.importorskip("matplotlib")
    picture, numbers = tmp_path / "bench.png", tmp_path / "bench.json"
    assert main(["bench", "--rounds", "3", "--plot", str(picture), "--json", str(numbers)]) == 0
    assert picture.read_bytes().startswith(PNG)
    found = json.loads(numbers.read_text(encoding="utf-8"))["rows"]
    assert [r["name"] for r in found] == [r.name for r in ROWS]
    assert found[0]["ours"] == [1.2, 1.1, 1.3]


def test_bench_measures_the_rows_that_are_asked_for(capsys):
    assert main(["bench", "product*", "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[4:]] == ["4×4 product", "4×4 product"]


def test_bench_lists_its_rows(capsys):
    assert main(["bench", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [r.name for r in ROWS]


def test_bench_exits_with_1_when_a_row_fails(capsys, monkeypatch):
    def broken():
        raise ValueError("no such thing\nand more")

    monkeypatch.setattr("benchmarks.report.ROWS", [row(broken)])
    assert main(["bench"]) == 1
    assert capsys.readouterr().out.endswith("failed: ValueError: no such thing\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--rounds", "0"], "argument --rounds: must be at least 1, but got 0"),
        (["prodct"], "no row or group has the name 'prodct'; there are: eager, compiled, lazy, product, "),
        (["--plot", "a.xyz"], "argument --plot: a.xyz ends in none of .png, .svg, .pdf"),
        (["--plot", "no/such/folder/a.png"], "the folder no/such/folder for a.png does not exist"),
    ],
)
def test_bench_refuses_bad_values_with_a_usage_line(capsys, no_clock, argv, message):
    with pytest.raises(SystemExit) as exit_:
        main(["bench", *argv])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_a_picture_without_matplotlib_says_what_to_install(capsys, monkeypatch, no_clock, tmp_path):
    def missing(name):
        raise ImportError(name=name)

    monkeypatch.setattr("xgrad.cli.arguments.import_module", missing)
    with pytest.raises(SystemExit):
        main(["bench", "--plot", str(tmp_path / "a.png")])
    assert 'matplotlib is not installed; pip install "xgrad[viz]"' in capsys.readouterr().err


# ---------------------------------------------------------------- measuring


def test_a_row_whose_library_is_missing_says_so_and_is_not_made():
    result = ratios.measure(row(None, needs="no_such_library"), 1)
    assert (result.verdict, result.failed) == ("no_such_library is not installed", False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (lambda: xgrad.tensor([1.0, 2.5]), "failed: ValueError: the two sides disagree: result 0 by 0.5"),
        (lambda: [np.ones(2), 1.0], "failed: ValueError: the two sides give results of different shapes: [(2,)] and"),
        (lambda: xgrad.tensor([1.0, float("nan")]), "failed: ValueError: the two sides disagree: result 0 by nan"),
    ],
)
def test_sides_that_disagree_are_not_timed(theirs, message):
    result = ratios.measure(row(lambda: Timed(lambda: xgrad.tensor([1.0, 2.0]), theirs)), 1)
    assert result.failed
    assert result.verdict.startswith(message)


def test_both_sides_are_timed_in_turns(monkeypatch):
    calls = []
    monkeypatch.setattr(ratios, "timed", lambda function, n: function() or 2e-3)
    sides = Timed(lambda: calls.append("a"), lambda: calls.append("b"), tolerance=None)
    result = ratios.measure(row(lambda: sides), 3)
    assert "".join(calls[-6:]) == "ababab"
    assert result.ours == result.theirs == [2000.0] * 3
    assert result.unit == "µs"


def test_waiting_for_a_lazy_result_leaves_its_memory_to_the_next_write():
    x = xgrad.ones(3)
    with xgrad.lazy():
        x.mul_(2)
    ratios.wait_for([x])
    assert x._share().array.owned


def test_what_does_not_vary_is_counted_once_and_what_varies_in_each_round():
    counts = iter(range(1, 100))
    once = ratios.measure(row(lambda: Counted(lambda: 5, lambda: 10, "MB")), 3)
    assert (once.ratios, once.median, once.quartiles, once.unit) == ([0.5], 0.5, (0.5, 0.5), "MB")
    varying = ratios.measure(row(lambda: Counted(lambda: next(counts), lambda: 2, "s", varies=True)), 3)
    assert varying.ratios == [1.0, 1.5, 2.0]  # the first was to compile
    assert varying.quartiles == (1.25, 1.75)


@pytest.mark.parametrize(
    ("bound", "aim", "verdict"), [(2, 1.2, "ahead"), (1.3, 1, "holds"), (1.1, 1, "FALLS SHORT"), (None, None, "")]
)
def test_verdicts_go_by_the_median(bound, aim, verdict):
    assert made_up(row(None, bound=bound, aim=aim), 3).verdict == verdict


# Of these nothing is known before they are measured.
NUMBERS = ("write_1e8", "first_backward", "programs", "checkpoint_bytes")
# These count the launches of lazy blocks; in a lazy thread the end of a block launches nothing.
LAUNCHES = ("lazy_launches", "lazy_programs")


@pytest.mark.one_in(24)
@pytest.mark.parametrize(
    "name",
    eager_cases("launches", [r.name for r in ROWS if r.name not in NUMBERS], lambda name: name in LAUNCHES),
)
def test_both_sides_of_each_row_compute_the_same(name, monkeypatch):
    monkeypatch.setattr(xgrad, "compile", lambda function: function, raising=False)  # only what is computed matters
    (found,) = (r for r in ROWS if r.name == name)
    sides = found.make()
    if isinstance(sides, Counted):
        assert sides.ours() == sides.theirs()
    else:
        ratios.check_equal(sides.ours(), sides.theirs(), sides.tolerance)
