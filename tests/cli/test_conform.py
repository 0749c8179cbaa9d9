"""python -m xgrad conform: exit codes, files, and what it prints."""

import json
import sys

import pytest

from xgrad.cli import main
from xgrad.dispatch.tables import OPERATORS

from ..conformance import broken

ONE = ["conform", "--device", "cpu", "--dtypes", "float32"]


def test_it_prints_a_table_and_writes_json_and_html(capsys, tmp_path):
    data, page = tmp_path / "run.json", tmp_path / "run.html"
    assert main([*ONE, "--plain", "--operators", "tanh", "--json", str(data), "--html", str(page)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("xgrad ")
    assert any(line.startswith("  tanh") and " ok " in line for line in lines)
    assert lines[-1] == "1 row on cpu: 0 wrong, 1 right"
    found = json.loads(data.read_text())
    assert found["complete"]
    assert found["rows"][0]["cells"]["float32"]["state"] == "right"
    assert "<td>tanh</td>" in page.read_text()


def test_rich_draws_the_same_table(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*ONE, "--operators", "tanh"]) == 0
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    assert any(row[1:2] == ["tanh"] and row[2].startswith("ok ") for row in rows)


def test_it_exits_with_1_when_a_value_is_wrong(capsys, monkeypatch):
    monkeypatch.setitem(OPERATORS, "wrong_gradient", broken.wrong_gradient())
    assert main([*ONE, "--plain", "--operators", "wrong_gradient"]) == 1
    assert "wrong    wrong_gradient float32: gradient: " in capsys.readouterr().out


def test_what_is_refused_is_no_failure(capsys, monkeypatch):
    monkeypatch.setitem(OPERATORS, "lacking", broken.lacking())
    assert main(["conform", "--device", "cpu", "--plain", "--dtypes", "bfloat16", "--operators", "lacking"]) == 0
    assert "refused  lacking bfloat16: forward: NotImplementedError" in capsys.readouterr().out


def test_a_backend_of_a_file_is_the_device(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command puts the file's folder on it
    file = tmp_path / "their_chips.py"
    file.write_text("import xgrad\nchip = xgrad.Backend('chip')\nnumber = 3\n")
    options = ["--plain", "--operators", "item and tolist", "--dtypes", "int32"]
    assert main(["conform", "--backend", f"{file}:chip", *options]) == 0
    assert capsys.readouterr().out.endswith("1 row on chip:0: 0 wrong, 1 right\n")
    for name, message in (("nothing", "has no backend 'nothing'"), ("number", "expected a device such as")):
        with pytest.raises(SystemExit):
            main(["conform", "--backend", f"{file}:{name}", *options])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--operators", "nothing"], "no operator, view or group matches 'nothing'"),
        (["--dtypes", "float31"], "no dtype float31"),
        (["--device", "chip"], "Invalid device string: 'chip'"),
        (["--resume"], "name it, --json FILE"),
        (["--json", "no/such/folder.json"], "the folder no/such"),
        (["--backend", "chip"], "expected FILE.py:backend, but got 'chip'"),
        (["--device", "cpu", "--backend", "f.py:chip"], "not allowed with argument --device"),
    ],
)
def test_a_wrong_command_line_exits_with_2(capsys, argv, message):
    with pytest.raises(SystemExit) as exit_:
        main(["conform", *argv])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.exhaustive
def test_the_cpu_conforms(capsys):
    """Of the operators a tenth: tests/ops/test_table.py has them all."""
    groups = "views,memory,transfers,random numbers,execution"
    code = main(["conform", "--device", "cpu", "--plain", "--operators", f"{groups},conv*,re*,s[l-q]*,linalg_s*"])
    assert code == 0, capsys.readouterr().out
