"""The programs of views, compiled for a TPU that is not here, stay within the bytes and seconds of `views.json`."""

import json
from pathlib import Path

import pytest

from scripts.chips_views import measure

pytest.importorskip("libtpu")

FIGURES = json.loads(Path(__file__).with_name("views.json").read_text())


@pytest.mark.parametrize("program", FIGURES)
def test_a_program_moves_no_more_bytes_than_its_figure(program):
    name, kind = program.rsplit(" | ", 1)
    found = measure(name, kind, "float32")
    assert "error" not in found
    assert found["bytes"] <= 1.05 * FIGURES[program]
    assert found["seconds"] < 20
    assert found["aliased"] == (kind == "write")
