"""docs/parity.json has the marks that scripts/parity finds, and the script finds defects."""

import importlib.util
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
FIGURES = json.loads((ROOT / "docs" / "parity.json").read_text())

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("expecttest") is None, reason="torch's operator database needs it"),
    pytest.mark.skipif(torch.__version__.partition("+")[0] != FIGURES["torch"], reason="figures of another torch"),
]


def python(*arguments):
    """Run Python in a process of its own: the script has torch's functions take xgrad's tensors."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.exhaustive
def test_the_figures_of_a_few_entries_are_what_the_script_finds():
    names = [name for name in FIGURES["results"]["float64"] if zlib.crc32(name.encode()) % 60 == 0]
    code, said = python("-m", "scripts.parity", "--check", "--jobs", "1", *names)
    assert code == 0, said


PLANTED = """
from scripts.parity.libraries import join, xgrad, database
from scripts.parity.compare import compare
join()
(info,) = [info for info in database.op_db if info.name == "sin"]
right = xgrad.sin

class Twice(xgrad.autograd.Function):  # of sin: the gradient is too large by a thousandth
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return right(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * 1.001

for planted in (right, xgrad.cos, lambda x: right(x.detach()), Twice.apply):
    xgrad.sin = planted
    print(compare(info, "float64")[0][:3])
del xgrad.sin
print(compare(info, "float64")[0][:3])
"""


@pytest.mark.exhaustive
def test_a_wrong_value_a_wrong_gradient_and_a_missing_function_are_found():
    code, said = python("-c", PLANTED)
    assert code == 0, said
    assert said.split()[-5:] == ["+++", "xxx", "+xx", "+xx", "ooo"]
