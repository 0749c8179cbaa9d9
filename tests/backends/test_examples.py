"""The examples of declared backends run, and print what they are for."""

import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "backends"
PRINTED = {
    "strides": "strides=True: AsStridedBackward0",
    "lazily": "lazy: 1 launches",
    "no_donation": "copies that donation would have saved",
    "no_sort": "on the host: sort at training.py:",
    "pallas_kernel": "gradient: True",
    "memory": "out of memory. Tried to allocate 4000 bytes",
    "faults": "to the same weights: True",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PRINTED)
def test_example_runs(name):
    done = subprocess.run([sys.executable, f"{name}.py"], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert PRINTED[name] in done.stdout
