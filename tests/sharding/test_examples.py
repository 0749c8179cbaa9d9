"""The examples: placed in three ways, a small transformer trains as it does on one device."""

import re
import runpy
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(len(jax.devices()) < 8, reason="needs eight devices")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("transformer", "data_parallel", "fsdp_like", "tensor_parallel")


@pytest.fixture
def outputs(monkeypatch, capsys):
    """What each prints, of a model that compiles quickly."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", ["example", "--steps", "2"])
    import transformer  # pyright: ignore[reportMissingImports]

    for name, value in {"VOCABULARY": 16, "WIDTH": 32, "LAYERS": 1, "LENGTH": 8, "BATCH": 8}.items():
        monkeypatch.setattr(transformer, name, value)
    found = {}
    for name in NAMES:
        if name == "transformer":
            transformer.train(lambda name, shape: None, "cpu:0", "On one device.")
        else:
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        found[name] = capsys.readouterr().out
    sys.modules.pop("transformer")
    return found


@pytest.mark.exhaustive
def test_examples_agree_and_place_what_they_say(outputs):
    losses = {name: [float(x) for x in re.findall(r"loss (\S+)", out)] for name, out in outputs.items()}
    assert len(losses["transformer"]) == 2
    assert losses["transformer"][1] < losses["transformer"][0]
    for name in NAMES[1:]:
        np.testing.assert_allclose(losses[name], losses["transformer"], rtol=1e-4, err_msg=name)
    specs = {name: re.findall(r"sharding of .*: P(?:artitionSpec)?(\(.*\))", out) for name, out in outputs.items()}
    assert specs["data_parallel"] == ["()", "()"]
    assert specs["fsdp_like"] == ["(None, 'data')"] * 2
    assert specs["tensor_parallel"] == ["(None, 'model')"] * 2
    share = {name: float(re.search(r"per device, ([\d.]+) of", out)[1]) for name, out in outputs.items()}
    assert share["transformer"] == share["data_parallel"] == 1
    assert share["fsdp_like"] < 0.3
    assert share["tensor_parallel"] < 0.7
    held = {name: float(re.search(r"compiled step: ([\d.]+) MB", out)[1]) for name, out in outputs.items()}
    assert held["fsdp_like"] < held["data_parallel"]
