"""xgrad.conformance.run: what is right, wrong, refused and failed, and how an interrupted run goes on."""

import json
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import xgrad
from xgrad.conformance import Cell, Check, Row, execution, memory, selection, views
from xgrad.conformance.cases import fits, samples_of
from xgrad.conformance.operator_rows import operators
from xgrad.conformance.transfers import _same
from xgrad.dispatch.tables import OPERATORS
from xgrad.views import chain

from . import broken


@pytest.fixture(scope="module")
def report():
    return xgrad.conformance.run("cpu", operators="tanh,bitwise_and", dtypes=["float32", "int32"])


def cells(report, name):
    (row,) = [row for row in report.rows if row.name == name]
    return row.cells


def test_each_form_of_an_operator_is_compared(report):
    assert report.ok
    assert [c.name for c in cells(report, "tanh")["float32"].checks] == ["forward", "gradient", "in place", "out="]
    assert [c.name for c in cells(report, "bitwise_and")["int32"].checks] == ["forward", "in place", "out="]


def test_errors_are_in_roundings_and_integers_are_equal(report):
    assert 0 < cells(report, "tanh")["float32"].error < 8
    assert cells(report, "bitwise_and")["int32"].error == 0


def test_a_dtype_that_an_operator_does_not_take_has_no_cell(report):
    assert "float32" not in cells(report, "bitwise_and")


@pytest.mark.exhaustive
def test_an_operator_whose_results_shape_depends_on_values_runs_by_itself():
    report = xgrad.conformance.run("cpu", operators="_unique_consecutive", dtypes=["float32"])
    assert cells(report, "_unique_consecutive")["float32"].state == "right"


def test_an_operator_whose_result_has_64_bits_is_checked_with_64_bits():
    report = xgrad.conformance.run("cpu", operators="hash_tensor", dtypes=["float32"])
    assert cells(report, "hash_tensor")["float32"].state == "right"


def test_a_real_array_beside_complex_ones_stays_real():
    report = xgrad.conformance.run("cpu", operators="istft", dtypes=["complex64"])
    assert cells(report, "istft")["complex64"].state == "right"


def test_the_public_name_and_the_underscored_one_match():
    assert selection.chosen(["unique"]) == selection.chosen(["_unique"]) == [("operators", "_unique")]


@pytest.mark.parametrize("make", ["wrong_gradient", "wrong_value"])
def test_a_wrong_value_is_found(monkeypatch, make):
    monkeypatch.setitem(OPERATORS, make, getattr(broken, make)())
    report = xgrad.conformance.run("cpu", operators=make, dtypes=["float32"])
    cell = cells(report, make)["float32"]
    assert not report.ok
    assert cell.state == "wrong"
    assert {c.name for c in cell.checks if c.state == "wrong"} >= {"gradient"}
    assert cell.error > 1000
    assert "instead of" in cell.why


def test_what_is_refused_is_told_and_is_no_failure(monkeypatch):
    monkeypatch.setitem(OPERATORS, "lacking", broken.lacking())
    report = xgrad.conformance.run("cpu", operators="lacking", dtypes=["float32", "bfloat16"])
    found = cells(report, "lacking")
    assert [found[d].state for d in ("float32", "bfloat16")] == ["right", "refused"]
    assert found["bfloat16"].why == "forward: NotImplementedError: lacking() is not there for bfloat16"
    assert report.ok


def test_the_crash_of_one_operator_is_a_row(monkeypatch):
    monkeypatch.setitem(OPERATORS, "crashing", broken.crashing())
    report = xgrad.conformance.run("cpu", operators="crashing,zero", dtypes=["bfloat16"])
    assert cells(report, "crashing")["bfloat16"].state == "failed"
    assert cells(report, "zero")["bfloat16"].state == "right"
    assert not report.ok


def test_checks_run_one_by_one_where_one_program_fails(monkeypatch):
    """The device refuses the gradient alone: the forward value is still compared."""

    def refuse(*_):
        raise NotImplementedError("no programs here")

    alone = execution.alone

    def no_gradients(place, task, arrays):
        if task.func.__name__ == "gradient":
            raise NotImplementedError("no gradients here")
        return alone(place, task, arrays)

    monkeypatch.setattr("xgrad.conformance.operator_rows.together", refuse)
    monkeypatch.setattr("xgrad.conformance.operator_rows.alone", no_gradients)
    cell = cells(xgrad.conformance.run("cpu", operators="tanh", dtypes=["bfloat16"]), "tanh")["bfloat16"]
    assert {c.name: c.state for c in cell.checks} == {
        "forward": "right", "gradient": "refused", "in place": "right", "out=": "right",
    }  # fmt: skip


@pytest.mark.parametrize("strides", [False, True])
def test_a_declared_backend_is_checked_operator_by_operator(strides):
    chip = xgrad.Backend("chip", strides=strides)
    report = xgrad.conformance.run(chip, operators="tanh,select,base and views,transfers", dtypes=["float32"])
    assert report.ok, report
    assert report.facts["device"] == "chip:0"
    assert report.facts["kind"] == repr(chip)
    assert [c.name for c in cells(report, "tanh")["float32"].checks] == ["forward", "gradient", "in place", "out="]


def test_every_view_of_the_table_is_checked():
    assert set(chain._views) <= set(views.VIEWS)


def test_a_view_is_read_and_written_along_both_paths():
    report = xgrad.conformance.run("cpu", operators="select,expand", dtypes=["float32"])
    assert report.ok
    assert {c.name for c in cells(report, "select")["float32"].checks} == {
        f"{check}, {path}" for check in ("read", "write", "gradient", "base written") for path in ("replay", "geometry")
    }
    assert {c.name.split(",")[0] for c in cells(report, "expand")["float32"].checks} == {"read", "gradient"}


class Sharing:
    """A tensor whose memory is an array of NumPy's."""

    def __init__(self, array):
        self.array = array

    def __getitem__(self, i):
        return Sharing(self.array[i : i + 1])

    def zero_(self):
        self.array[:] = 0


def test_an_array_that_numpy_gave_and_a_write_changes_is_wrong(monkeypatch):
    monkeypatch.setattr(memory, "values", lambda tensors: [x.array for x in tensors])
    place = SimpleNamespace(tensors=lambda arrays: [Sharing(a.copy()) for a in arrays])
    checks = memory.host_array(place, np.dtype("float32"))
    assert [(check.name, check.state) for check in checks] == [("from NumPy", "wrong"), ("written", "right")]


def test_memory_transfers_and_random_numbers_are_checked():
    report = xgrad.conformance.run("cpu", operators="memory,transfers,random_", dtypes=["int32"])
    assert report.ok, report
    assert len(report.rows) == 9
    assert "saved tensors" not in [row.name for row in report.rows if row.cells]


def test_a_lost_bit_is_found():
    assert _same("zeros", np.float32([0.0]), np.float32([-0.0])).state == "wrong"
    assert _same("nans", np.float32([np.nan]), np.float32([np.nan])).state == "right"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operators": "nothing"}, "no operator, view or group matches 'nothing'"),
        ({"operators": "tanh", "dtypes": ["float31"]}, "no dtype float31; there are: float32"),
    ],
)
def test_a_selection_of_nothing_is_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        xgrad.conformance.run("cpu", **options)


def test_every_operator_is_a_row_with_some_dtype():
    rows = [name for group, name in selection.names() if group == "operators"]
    assert rows == list(operators())
    columns = selection.dtypes_of(None, False)
    for name, op in operators().items():
        assert any(fits(op, sample, dtype) for sample in samples_of(op) for dtype in columns), name


# ---------------------------------------------------------------- the file of a run


def interrupted(at):
    """A progress that is interrupted before a row."""

    def progress(done, total, name):
        if name == at:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_run_goes_on(tmp_path):
    file, made = tmp_path / "run.json", []
    options = {"operators": "donation,item and tolist,random_", "dtypes": ["int32"], "file": file}
    with pytest.raises(KeyboardInterrupt):
        xgrad.conformance.run("cpu", **options, progress=interrupted("item and tolist"))
    half = json.loads(file.read_text())
    assert [row["name"] for row in half["rows"]] == ["donation"]
    assert not half["complete"]
    report = xgrad.conformance.run("cpu", **options, resume=True, progress=lambda done, total, name: made.append(name))
    assert made == ["item and tolist", "random_", ""]
    whole = json.loads(file.read_text())
    assert whole["complete"]
    assert whole["summary"] == {"right": 3, "refused": 0, "failed": 0, "wrong": 0}
    assert [Row.of_dict(row).as_dict() for row in whole["rows"]] == report.as_dict()["rows"]


def test_the_cell_in_which_the_process_ended_is_told_and_passed_over(tmp_path):
    file = tmp_path / "run.json"
    options = {"operators": "donation,item and tolist", "dtypes": ["int32", "bool"], "file": file}
    with pytest.raises(KeyboardInterrupt):
        xgrad.conformance.run("cpu", **options, progress=interrupted("item and tolist"))
    state = json.loads(file.read_text())
    state["running"] = ["transfers", "item and tolist", "bool"]
    file.write_text(json.dumps(state))
    found = cells(xgrad.conformance.run("cpu", **options, resume=True), "item and tolist")
    assert [found[d].state for d in ("int32", "bool")] == ["right", "failed"]
    assert "the process ended" in found["bool"].why


def test_the_file_of_another_run_is_refused(tmp_path):
    file = tmp_path / "run.json"
    xgrad.conformance.run("cpu", operators="donation", dtypes=["int32"], file=file)
    with pytest.raises(ValueError, match=r"its dtypes is \['int32'\], and now it is \['bool'\]"):
        xgrad.conformance.run("cpu", operators="donation", dtypes=["bool"], file=file, resume=True)
    file.write_text("[]")
    with pytest.raises(ValueError, match="is not a file of xgrad's conformance"):
        xgrad.conformance.run("cpu", operators="donation", dtypes=["int32"], file=file, resume=True)


# ---------------------------------------------------------------- how it is shown


def made_up():
    facts = {
        "device": "chip:0", "kind": "a chip", "xgrad": "1", "jax": "2", "operators": [], "dtypes": ["float32", "bool"],
        "exhaustive": False, "samples": "all samples",
    }  # fmt: skip
    wrong = Cell((Check("forward"), Check("gradient", "wrong", 5120.0, "gradient: 1 instead of <2>")))
    refused = Cell((Check("forward", "refused", None, "forward: no bool"),))
    return xgrad.conformance.Report(
        facts, [Row("operators", "mul", {"float32": wrong, "bool": refused}), Row("views", "t")]
    )


def test_the_table_says_what_is_wrong_by_how_much_and_why():
    text = str(made_up())
    assert "  mul      WRONG 5.1e+03  refused" in text
    assert "wrong    mul float32: gradient: 1 instead of <2>" in text
    assert text.endswith("2 rows on chip:0: 1 wrong, 1 refused, 0 right")


def test_the_page_needs_no_other_file_and_escapes_its_text():
    page = made_up().as_html()
    assert page.startswith("<!doctype html>")
    assert "http" not in page
    assert "gradient: 1 instead of &lt;2&gt;" in page
    assert "<td class='wrong' title='forward: right&#10;gradient: wrong, 5.1e+03 roundings'>WRONG 5.1e+03</td>" in page
    assert made_up()._repr_html_() in page


def test_infinite_errors_are_json():
    row = Row("operators", "mul", {"bool": Cell((Check("forward", "wrong", float("inf"), "forward: 1 instead of 0"),))})
    text = json.dumps(row.as_dict(), allow_nan=False)
    assert Row.of_dict(json.loads(text)).as_dict() == row.as_dict()


def test_an_error_that_the_author_accepts_is_right_and_is_said(tmp_path):
    chip = xgrad.Backend("chip", lowerings={"tanh": lambda x: jnp.tanh(x) * 1.005})
    asked = dict(operators="tanh", dtypes=["float32"])
    assert not xgrad.conformance.run(chip, **asked).ok
    file = tmp_path / "run.json"
    report = xgrad.conformance.run(chip, **asked, tolerances={"tan*": 0.01}, file=file)
    assert report.ok
    assert "accepted: tan* within 0.01 of the largest element" in str(report)
    assert not xgrad.conformance.run(chip, **asked, tolerances={"tanh": 0.001}).ok
    assert not xgrad.conformance.run(chip, **asked).ok  # only that run
    with pytest.raises(ValueError, match="its accepted is"):
        xgrad.conformance.run(chip, **asked, file=file, resume=True)
    with pytest.raises(ValueError, match="no operator, view or group matches 'gelux'"):
        xgrad.conformance.run(chip, **asked, tolerances={"gelux": 0.01})
    for part in (0, -1, True, "1%", float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"tolerances\['tanh'\] is a part of the largest element"):
            xgrad.conformance.run(chip, **asked, tolerances={"tanh": part})


def test_the_legend_has_what_products_are_allowed():
    chip = xgrad.Backend("chip", products="bfloat16", accumulate="float32")
    report = xgrad.conformance.run(chip, operators="mv", dtypes=["float32"])
    assert "(allowed: 64 in float32; with products 524288 in float32)" in str(report)


def test_help_says_how_a_lowering_of_a_function_of_several_operators_is_called():
    text = str(xgrad.nn.functional.embedding.__doc__)
    assert "calls `f(weight, indices, *, padding_idx=" in text
