"""The second step of a training compiles nothing: tensors that a user cannot tell apart never make two programs.

JAX compiles a program again where an operand is committed to its device, and commits the results.  A factory's
`device=`, `to`, a loaded file and an optimizer's state commit nothing where the process has one device.
"""

import os
import subprocess
import sys

import pytest

STEPS = """
import io, os, sys
import jax, xgrad
from xgrad import nn
import xgrad.nn.functional as F

mode, name, where = sys.argv[1:]
file = os.open(os.environ["COUNTED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def compiled(event, seconds, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        os.write(file, b".")

jax.monitoring.register_event_duration_secs_listener(compiled)
xgrad.manual_seed(0)
device = None if where == "default" else where
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2000), nn.ReLU(),
                      nn.Linear(2000, 10)).to("cpu")
if where != "default":
    saved = io.BytesIO()
    xgrad.save(model.state_dict(), saved)
    saved.seek(0)
    model.load_state_dict(xgrad.load(saved, map_location=device), assign=True)
optimizer = getattr(xgrad.optim, name)(model.parameters(), lr=1e-3)
x = xgrad.ones(2, 3, 8, 8, device=device)
y = xgrad.tensor([1, 2], device=device)

def step():
    optimizer.zero_grad()
    noise = xgrad.arange(8.0, device=device) * xgrad.tensor(0.01).to(device or "cpu")
    loss = F.cross_entropy(model(x + noise), y)
    loss.backward()
    optimizer.step()
    return loss.detach()

if mode == "compiled":
    step = xgrad.compile(step)
losses = []
for _ in range(3):
    os.write(file, b"|")
    if mode == "lazy":
        with xgrad.lazy():
            losses.append(step().item())
    else:
        losses.append(step().item())
assert losses[2] < losses[0], losses
assert not any(p._read().committed for p in model.parameters())
"""


@pytest.mark.parametrize("where", ["default", "cpu:0"])
@pytest.mark.parametrize("mode", ["eager", "lazy", "compiled"])
@pytest.mark.parametrize("name", ["AdamW", pytest.param("SGD", marks=pytest.mark.exhaustive)])
def test_the_second_step_compiles_nothing(tmp_path, mode, name, where):
    counted = tmp_path / "counted"
    environment = os.environ | {"XLA_FLAGS": "", "COUNTED": str(counted), "XGRAD_COMPILE_CACHE": "0", "XGRAD_LAZY": "0"}
    subprocess.run([sys.executable, "-c", STEPS, mode, name, where], env=environment, check=True, timeout=300)
    first, *others = counted.read_text().split("|")[1:]
    assert first
    assert others == ["", ""]
