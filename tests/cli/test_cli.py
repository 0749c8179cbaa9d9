"""python -m xgrad: exit codes, error messages, and that each command does what it says."""

import os
import re
import subprocess
import sys

import pytest

from xgrad.cli import demo, doctor, main


def refused(capsys, *argv):
    """The error text of a call that must exit with 2 and say how to call it."""
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("usage: python -m xgrad")
    return text


@pytest.fixture
def user_file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))  # the command puts the file's folder on it
    path = tmp_path / "their_functions.py"
    path.write_text(
        "import xgrad\n"
        "def in_place(x, w):\n"
        "    y = x.clone()\n"
        "    y[0].mul_(w)\n"
        "    return y\n"
        "def breaks(x):\n"
        "    return x.view(7)\n"
        "number = 3\n"
    )
    return path


# ---------------------------------------------------------------- doctor


@pytest.mark.parametrize("command", [["doctor"], ["bench", "product*", "--rounds", "1"], ["compare", "nothing.py:f"]])
def test_without_rich_a_command_says_what_to_install(capsys, monkeypatch, tmp_path, command):
    (tmp_path / "nothing.py").write_text("def f(x): return x", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert 'rich is not installed; pip install "xgrad[demo]"' in refused(capsys, *command, "--rich")


def test_rich_draws_the_same_findings(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(doctor, "findings", lambda: iter([doctor.Finding(False, "a [b] c", "mend it")]))
    assert main(["doctor", "--rich"]) == 1
    text = capsys.readouterr().out
    assert re.search(r"WRONG . a \[b\] c", text)
    assert "mend: mend it" in text
    assert text.endswith("1 thing is wrong\n")


def test_doctor_finds_nothing_wrong_here(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "WRONG" not in text
    assert "donation works" in text
    assert text.count("gradient of a write through a view is right") == 2
    assert text.endswith("all is well\n")


def test_doctor_exits_with_1_when_a_check_fails_or_raises(capsys, monkeypatch):
    def gradients():
        yield False, "the gradient is WRONG"

    def donation():
        raise RuntimeError("no such backend")

    monkeypatch.setattr(doctor, "gradients", gradients)
    monkeypatch.setattr(doctor, "donation", donation)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "WRONG  the gradient" in text
    assert "WRONG  donation: RuntimeError: no such backend" in text
    assert text.endswith("2 things are wrong\n")


# ---------------------------------------------------------------- demo


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--epochs", "0"], "argument --epochs: must be at least 1, but got 0"),
        (["--epochs", "many"], "argument --epochs: 'many' is not an integer"),
        (["--seed", "-1"], "argument --seed: must be at least 0, but got -1"),
        (["--path", "strides"], "argument --path: invalid choice: 'strides'"),
        (["--device", "abacus"], "argument --device: Invalid device string: 'abacus'"),
        (["--device", "cpu:99"], "argument --device: device 'cpu:99' is not available"),
    ],
)
def test_demo_refuses_bad_values_with_a_usage_line(capsys, argv, message):
    assert message in refused(capsys, "demo", *argv)


def test_demo_refuses_an_out_that_is_a_file(capsys, tmp_path):
    file = tmp_path / "file"
    file.touch()
    assert "cannot be a folder" in refused(capsys, "demo", "--out", str(file))


@pytest.mark.exhaustive
def test_demo_runs_an_epoch_and_leaves_a_picture(tmp_path):
    pytest.importorskip("optax")
    pytest.importorskip("sklearn")
    command = [sys.executable, "-m", "xgrad", "demo", "--epochs", "1", "--path", "geometry", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "after 1 epoch along the geometry path" in done.stdout
    assert "0 in float64" in done.stdout
    assert re.search(r"^training, 1 epoch along the geometry path +eager$", done.stdout, re.MULTILINE)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.exhaustive
def test_demo_trains_the_same_when_it_is_lazy_or_compiled(tmp_path):
    pytest.importorskip("optax")
    pytest.importorskip("sklearn")
    command = [sys.executable, "-m", "xgrad", "demo", "--epochs", "2", "--lazy", "--compiled", "--out", str(tmp_path)]
    environment = {**os.environ, "XGRAD_LOG": "compile"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("xgrad.compile: step_of.<locals>.step traced") == 1  # one program for all steps
    rows = {line[:42].strip(): line[42:].split() for line in done.stdout.splitlines()}
    assert rows["training, 2 epochs along the replay path"] == ["eager", "lazy", "compiled"]
    assert len(set(rows["test accuracy"])) == 1
    eager, *others = map(float, rows["cross entropy, mean of the last epoch"])
    assert others == pytest.approx([eager] * 2, rel=1e-4)
    for way in ("lazy", "compiled"):
        assert float(re.search(rf"eager and {way}: (\S+) of it", done.stdout)[1]) < 1e-4
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def training(*losses):
    return demo.Training(list(losses), per_epoch=2, accuracy=0.5, first=1.0, each=0.001, all=1.5)


def test_demo_tells_how_far_the_losses_are_apart():
    trainings = {"eager": training(4.0, 2.0, 1.0, 0.5), "compiled": training(4.0, 2.1, 1.0, 0.75)}
    assert demo.drift(trainings, "compiled") == pytest.approx(0.5)
    assert demo.drift(trainings, "compiled", 2) == pytest.approx(0.05)


def test_demo_shows_trainings_side_by_side():
    lines = list(
        demo.table({"eager": training(4.0, 2.0, 1.0, 0.5), "compiled": training(4.0, 2.0, 1.0, 0.0)}, "2 epochs")
    )
    assert lines[0].split() == ["training,", "2", "epochs", "eager", "compiled"]
    assert lines[4].split()[-2:] == ["0.75000", "0.50000"]
    assert len(set(map(len, lines))) == 1


# ---------------------------------------------------------------- compare


@pytest.mark.exhaustive
def test_compare_runs_a_function_on_random_inputs_of_given_shapes(capsys, user_file):
    assert main(["compare", f"{user_file}:in_place", "--shapes", "2,3;3", "--repeats", "1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("compare in_place: outputs and gradients are equal, bit for bit")
    assert "gradient of input 0 float32[2, 3]: equal" in text


def test_compare_takes_the_inputs_that_the_file_gives(capsys, user_file):
    user_file.write_text(user_file.read_text() + "def inputs():\n    return xgrad.ones(2, 5), xgrad.ones(5)\n")
    assert main(["compare", f"{user_file}:in_place", "--repeats", "1"]) == 0
    assert "output float32[2, 5]: equal" in capsys.readouterr().out


def test_compare_runs_on_declared_backends(capsys, user_file):
    chips = user_file.with_name("chips.py")
    chips.write_text(
        "import xgrad\n"
        "a = xgrad.Backend('a')\n"
        "b = a.replace(name='b', strides=True)\n"
        "bad = a.replace(name='bad', lowerings={'mul': lambda x, y: x})\n"
    )
    call = ["compare", f"{user_file}:in_place", "--shapes", "2,3;3", "--repeats", "1"]
    assert main([*call, "--backends", f"{chips}:a,b", "--backends", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["a", "b", "cpu"]
    assert main([*call, "--backends", f"{chips}:a,bad"]) == 1
    assert "values first differ at operator" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cpu", "two or more"),
        ("cpu,nowhere", "Invalid device string"),
        ("none.py:a,b", "does not exist"),
        (":", "--backends"),
    ],
)
def test_compare_refuses_bad_backends_with_a_usage_line(capsys, user_file, given, message):
    with pytest.raises(SystemExit):
        main(["compare", f"{user_file}:in_place", "--backends", given])
    assert message in capsys.readouterr().err


def test_compare_tells_a_failing_function_by_exit_code_1(capsys, user_file):
    assert main(["compare", f"{user_file}:breaks"]) == 1
    assert 'under xgrad.views.tracking("replay")' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spec", "extra", "message"),
    [
        ("their_functions.py", [], "expected FILE.py:function"),
        ("no_such.py:f", [], "the file no_such.py does not exist"),
        ("{file}:missing", [], "has no function 'missing'; it has: in_place, breaks"),
        ("{file}:number", [], "number in {file} is not a function, but a int"),
        ("{file}:in_place", ["--shapes", "4,x"], "argument --shapes: '4,x' is not a list of shapes"),
        ("{file}:in_place", ["--shapes", "4"], "argument --shapes: 1 inputs do not fit in_place()"),
        ("{file}:in_place", ["--repeats", "0"], "argument --repeats: must be at least 1"),
    ],
)
def test_compare_refuses_bad_values_with_a_usage_line(capsys, user_file, spec, extra, message):
    text = refused(capsys, "compare", spec.format(file=user_file), *extra)
    assert message.format(file=user_file) in text


def test_no_command_is_refused(capsys):
    assert "required: COMMAND" in refused(capsys)
