"""conform for a chip that is not here: what its compiler says of operators, views, random numbers, transfers."""

import json

import pytest

import xgrad
from xgrad.chips import Answer, targets
from xgrad.cli import main
from xgrad.conformance import operator_rows
from xgrad.conformance.on_chip import judged

SIZES = {"argument": 1024, "output": 1024}


def run(compile_for="tpu:v5e", operators="tanh", dtypes=("float32",), **options):
    return xgrad.conformance.run(operators=operators, dtypes=dtypes, compile_for=compile_for, **options)


def states(report):
    return {row.name: {dtype: cell.state for dtype, cell in row.cells.items()} for row in report.rows}


def test_operators_views_and_random_numbers_are_compiled(compiler):
    report = run(operators="tanh,select,uniform_,item and tolist,host to device and back", dtypes=["float32", "int32"])
    assert states(report) == {
        "tanh": {"float32": "compiles", "int32": "compiles"},
        "select": {"float32": "compiles", "int32": "compiles"},
        "host to device and back": {},  # no program runs
        "item and tolist": {"float32": "compiles", "int32": "compiles"},
        "uniform_": {"float32": "compiles"},
    }
    assert report.ok
    assert report.summary == "5 rows on tpu:v5e:1x1: 7 compiles"
    checks = report.rows[0].cells["float32"].checks
    assert [c.name for c in checks] == ["forward", "gradient", "in place", "out="]
    assert all("of arguments and results" in c.why for c in checks)
    assert "compiled, not run" in str(report)
    assert "class='compiles'" in report.as_html()


def test_no_value_is_compared(compiler, monkeypatch):
    monkeypatch.setattr("xgrad.conformance.operator_rows.compare", None)
    assert states(run()) == {"tanh": {"float32": "compiles"}}


def test_a_compiler_that_ends_is_a_cell_and_not_the_end(compiler):
    report = run("tpu:v2", "select,item and tolist", ["int32"])
    ended = {"int32": "ends the compiler"}
    assert states(report) == {"select": ended, "item and tolist": ended}
    assert not report.ok
    assert report.of("ends the compiler")[0][1] == "int32"
    assert "layout.cc:12] Check failed: rank == 2" in str(report)
    assert "F0101" not in str(report)  # the time would differ in each run


def test_a_compiler_that_takes_for_ever_is_slow(compiler):
    report = run(xgrad.target("tpu:v3", limit=0.2), "uniform_")
    assert states(report) == {"uniform_": {"float32": "slow"}}
    assert "the compiler took longer than 0.2 s" in str(report)
    assert report.ok


def test_an_error_of_one_check_does_not_hide_the_others(compiler, monkeypatch):
    def failing(case, tensors):
        raise NotImplementedError("no such thing")

    monkeypatch.setattr("xgrad.conformance.operators.in_place", failing)
    monkeypatch.setitem(operator_rows._NAMES, failing, "in place")
    (row,) = run().rows
    assert {c.name: c.state for c in row.cells["float32"].checks} == {
        "forward": "compiles",
        "gradient": "compiles",
        "in place": "refused",
        "out=": "compiles",
    }


@pytest.fixture
def ending(compiler, monkeypatch):
    """A compiler that ends with each program, at once."""
    answer = Answer("tpu:v2:1x1", "ends the compiler", "Check failed")
    monkeypatch.setattr(targets.Target, "ask", lambda *args, **options: answer)


def test_an_interrupted_run_goes_on(ending, tmp_path):
    file = tmp_path / "run.json"
    run("tpu:v2", "tanh,uniform_", file=file)
    found = json.loads(file.read_text())
    assert found["summary"]["ends the compiler"] == 2
    found["rows"].pop()
    file.write_text(json.dumps(found))
    asked = []
    report = run(
        "tpu:v2", "tanh,uniform_", file=file, resume=True, progress=lambda done, total, name: asked.append(name)
    )
    assert asked == ["uniform_", ""]
    assert states(report)["tanh"] == {"float32": "ends the compiler"}
    with pytest.raises(ValueError, match="cannot be resumed: its compiled for is 'tpu:v2:1x1', and now it is None"):
        xgrad.conformance.run("cpu", operators="tanh,uniform_", dtypes=["float32"], file=file, resume=True)


@pytest.mark.parametrize(
    ("answer", "state", "why"),
    [
        (Answer("t", "compiles", cost={"bytes accessed": 4096.0}, memory=SIZES), "compiles", "4 KiB for 2 KiB of"),
        (Answer("t", "compiles", memory=SIZES), "compiles", "2 KiB of arguments"),  # a GPU's, which counts none
        (Answer("t", "compiles", cost={"bytes accessed": 1e6}, memory=SIZES), "gathers", "977 KiB for 2 KiB of"),
        (Answer("t", "compiles", seconds=11.0, memory=SIZES), "slow", "11 s to compile"),
        (Answer("t", "slow", "the compiler took longer than 60 s"), "slow", "the compiler took longer than 60 s"),
        (Answer("t", "refused", "UNIMPLEMENTED: X\nmore"), "refused", "UNIMPLEMENTED: X"),
        (Answer("t", "does not fit", "RESOURCE_EXHAUSTED"), "refused", "RESOURCE_EXHAUSTED"),
    ],
)
def test_an_answer_is_judged(answer, state, why):
    found = judged(answer)
    assert found[0] == state
    assert found[1].startswith(why)


def test_a_gather_of_elements_is_told():
    hlo = """HloModule taken, is_scheduled=true

ENTRY %main (x: f32[64], i: s32[5,1]) -> f32[5] {
  %x = f32[64]{0} parameter(0)
  %i = s32[5,1]{1,0} parameter(1)
  ROOT %g = f32[5]{0} gather(%x, %i), offset_dims={}, collapsed_slice_dims={0}, slice_sizes={1}
}
"""
    cost = {"bytes accessed": 4096.0}
    assert judged(Answer("t", "compiles", hlo=hlo, cost=cost, memory=SIZES)) == (
        "gathers",
        "gather of 5 slices of 1; 4 KiB for 2 KiB of arguments and results",
    )


COMMAND = ["conform", "--operators", "uniform_", "--dtypes", "float32", "--plain", "--compile-for"]


def test_the_command_line(compiler, capsys):
    assert main([*COMMAND, "tpu:v5e"]) == 0
    assert "1 row on tpu:v5e:1x1: 1 compiles" in capsys.readouterr().out


def test_the_command_line_fails_if_a_compiler_ends(ending, capsys):
    assert main([*COMMAND, "tpu:v2"]) == 1
    assert "ENDS" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--compile-for", "tpu:v99"], "unknown target 'tpu:v99'"),
        (["--compile-for", "tpu:v5e", "--device", "cpu"], "not allowed with argument"),
        (["--compile-for", "tpu:v5e"], "tpu:v5e:1x1: its compiler is not installed"),
    ],
)
def test_bad_command_lines(options, words, monkeypatch, capsys):
    monkeypatch.setattr(targets, "missing", lambda platform: "its compiler is not installed")
    with pytest.raises(SystemExit) as ended:
        main(["conform", *options])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_device_beside_a_chip():
    with pytest.raises(ValueError, match="compile_for is a chip that is not here: give no device"):
        xgrad.conformance.run("cpu", compile_for="tpu:v5e")
