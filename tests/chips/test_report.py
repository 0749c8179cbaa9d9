"""What reports show, from stored programs and answers."""

import json
from pathlib import Path

import pytest

import xgrad
from xgrad.chips import Answer, ChipReport
from xgrad.chips.programs import Asked

STEP = (Path(__file__).parent / "programs" / "step.txt").read_text()
MEMORY = {"argument": 110592, "output": 7168, "temp": 354304, "alias": 4096, "generated_code": 56320}
COST = {"flops": 314076.0, "bytes accessed": 723000.0, "optimal_seconds": 9.79e-7}


def report(state="compiles", said="", mesh=()):
    compiles = state == "compiles"
    answer = Answer(
        "tpu:v5e:1x1", state, said, 0.08, STEP if compiles else "", COST if compiles else {}, MEMORY if compiles else {}
    )
    names = ("inputs", "w", "w: momentum_buffer", "numbers")
    return ChipReport(xgrad.target("tpu:v5e"), answer, Asked("step", None, [], (1, 2), None, names, (), None, mesh))


def test_it_prints_as_a_table():
    text = str(report())
    lines = [line.split("  ")[0] for line in text.splitlines()]
    assert lines[0] == "step on tpu:v5e:1x1"
    for label in ("fits", "compiled in", "estimated time", "heaviest", "alive at the peak", "donated"):
        assert label in lines
    assert "512 KiB of 15.8 GiB" in text
    assert "store.py:23              matmul, tanh, square, mean" in text
    assert "2 operands are written in place" in text
    assert "inputs                        104 KiB  [256, 100]" in text


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("does not fit", "RESOURCE_EXHAUSTED: Ran out of memory on HBM (768.00G) exceeds available HBM (15.75G)."),
        ("refused", "UNIMPLEMENTED: complex128"),
        ("ends the compiler", "Check failed: rank == 2\n(exit code -6)"),
        ("slow", "the compiler took longer than 600 s"),
    ],
)
def test_a_program_that_does_not_compile(state, said):
    found = report(state, said)
    assert not found.fits
    assert str(found).splitlines()[1:] == [f"{state}  {' '.join(said.split())}"]
    assert json.loads(json.dumps(found.as_dict()))["state"] == state


def test_as_dict_is_for_programs():
    found = json.loads(json.dumps(report().as_dict()))
    assert found["fits"] is True
    assert (found["target"], found["name"], found["donated"]) == ("tpu:v5e:1x1", "step", 2)
    assert found["peak"] == sum(MEMORY.values()) - 2 * MEMORY["alias"]
    assert {p["line"] for p in found["parts"]} >= {"store.py:23", "store.py:24", "store.py:25"}
    assert found["alive"][0]["name"] == "inputs"


def test_a_mesh_is_named():
    assert str(report(mesh=(("data", 2), ("model", 2)))).splitlines()[0] == "step on tpu:v5e:1x1, data=2, model=2"


def test_a_notebook_shows_html():
    assert "<caption>step on tpu:v5e:1x1</caption>" in report()._repr_html_()


def test_nothing_of_it_can_be_set():
    with pytest.raises(AttributeError, match="not writable"):
        report().name = "another"


def test_bars_of_the_heaviest_parts():
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = report().plot()
    assert [bar.get_width() for bar in ax.patches] == [p.cycles for p in report().parts][::-1]
    assert "store.py:23" in ax.get_yticklabels()[-1].get_text() + ax.get_yticklabels()[-2].get_text()
    plt.close(ax.figure)
