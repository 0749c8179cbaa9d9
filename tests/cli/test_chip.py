"""python -m xgrad chip."""

import json
import sys
from pathlib import Path

import pytest

import xgrad
from xgrad.chips import targets
from xgrad.chips.process import Compiler
from xgrad.cli import main

FILE = """
import xgrad

def product(x, w):
    return (x @ w).tanh().sum()

def whole():
    w = xgrad.ones(8, 8, requires_grad=True)
    optimizer = xgrad.optim.SGD([w], lr=0.1, momentum=0.9)

    @xgrad.compile
    def step(x):
        optimizer.zero_grad()
        (x @ w).square().mean().backward()
        optimizer.step()

    return step, xgrad.ones(4, 8)

def fails(x):
    return x.item()
"""


@pytest.fixture
def chip(tmp_path, monkeypatch):
    """Run the command on a name in FILE, with the stand-in for a chip's compiler."""
    compiler = Compiler()
    stand_in = Path(__file__).parents[1] / "chips" / "stand_in.py"
    compiler.command = (sys.executable, str(stand_in))
    monkeypatch.setattr(targets, "compiler_of", lambda platform: compiler)
    monkeypatch.setattr(targets, "missing", lambda platform: None)
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    yield lambda name, *more: main(["chip", f"{file}:{name}", *more])
    compiler.stop()


def test_it_prints_the_report_of_a_step_and_writes_files(chip, capsys, tmp_path):
    assert chip("whole", "--json", str(tmp_path / "out.json"), "--hlo", str(tmp_path / "out.txt")) == 0
    told = capsys.readouterr().out
    assert told.startswith("whole.<locals>.step on tpu:v5e:1x1\nfits")
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["donated"] == 2
    assert (tmp_path / "out.txt").read_text().startswith("HloModule")
    mesh = ("--target", "tpu:v5e:2x2", "--mesh", "data=2,model=2", "--shard", "x=data", "--shard", "*=-,model")
    assert chip("product", *mesh) == 0
    told = capsys.readouterr().out
    assert told.startswith("product on tpu:v5e:2x2, data=2, model=2\nfits")
    assert "all-reduce along" in told


def test_a_program_that_does_not_compile_is_a_failure(chip, capsys):
    assert chip("product", "--target", "tpu:v2") == 1
    assert "ends the compiler  F0101" in capsys.readouterr().out
    assert chip("fails", "--shapes", "") == 1
    assert "fails failed: TracedValueError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--target", "tpu:v9"], "argument --target: unknown target 'tpu:v9'"),
        (["--mesh", "data"], "'data' is not a list of axes"),
        (["--mesh", "data=4"], "but the mesh {'data': 4} 4"),
        (["--shard", "data"], "'data' is not a name with axes"),
    ],
)
def test_what_is_wrong_with_the_command_line(chip, capsys, arguments, told):
    with pytest.raises(SystemExit) as error:
        chip("product", *arguments)
    assert error.value.code == 2
    assert told in capsys.readouterr().err


def test_it_says_what_to_install(chip, capsys, monkeypatch):
    monkeypatch.setattr(targets, "missing", lambda platform: "its compiler is not installed: pip install X")
    with pytest.raises(SystemExit) as error:
        chip("product")
    assert error.value.code == 2
    assert "tpu:v5e:1x1: its compiler is not installed: pip install X" in capsys.readouterr().err
    assert xgrad.target("tpu:v5e").missing
