"""The programs of views, compiled for a TPU that is not here, stay within the bytes and seconds of `views.json`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("libtpu")

FIGURES = json.loads(Path(__file__).with_name("views.json").read_text())
SCRIPT = Path(__file__).parents[2] / "scripts" / "chips_views.py"


WHOLE = {"t"}  # a write of all elements does not read the root, whose memory XLA leaves alone


@pytest.mark.parametrize("program", FIGURES)
def test_a_program_moves_no_more_bytes_than_its_figure(program):
    """A program of its own process: the compiler may end it."""
    name, kind = program.rsplit(" | ", 1)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, kind, "float32"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["bytes"] <= 1.05 * FIGURES[program]
    assert found["seconds"] < 20
    assert found["aliased"] == (kind == "write" and name not in WHOLE)
