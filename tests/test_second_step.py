"""The second step of a training compiles nothing: tensors that a user cannot tell apart never make two programs.

JAX compiles a program again where an operand is committed to its device, and commits the results.  A factory's
`device=`, `to`, a loaded file and an optimizer's state commit nothing where the process has one device; where it has
several, the device of a tensor that is not committed commits nothing.  A shared array is copied where a write would
give its memory away, so the program of the first write is that of the next ones.
"""

import os
import subprocess
import sys

import pytest

COUNTED = """
import copy, io, os, pickle, sys
import jax, numpy as np, xgrad
from xgrad import nn
import xgrad.nn.functional as F

file = os.open(os.environ["COUNTED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def compiled(event, seconds, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        os.write(file, b".")

jax.monitoring.register_event_duration_secs_listener(compiled)
xgrad.manual_seed(0)

def run(step, mode):
    losses = []
    for _ in range(3):
        os.write(file, b"|")
        if mode == "lazy":
            with xgrad.lazy():
                losses.append(step().item())
        else:
            losses.append(step().item())
    return losses
"""

STEPS = """
mode, name, where = sys.argv[1:]
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
losses = run(step, mode)
assert losses[2] < losses[0], losses
assert not any(p._read().committed for p in model.parameters())
"""


@pytest.mark.parametrize("where", ["default", "cpu:0"])
@pytest.mark.parametrize("mode", ["eager", "lazy", "compiled"])
@pytest.mark.parametrize("name", ["AdamW", pytest.param("SGD", marks=pytest.mark.exhaustive)])
def test_the_second_step_compiles_nothing(tmp_path, mode, name, where):
    first, *others = compiled_in_steps(tmp_path, STEPS, mode, name, where)
    assert first
    assert others == ["", ""]


KINDS = """
mode, kind = sys.argv[1:]
model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
x, y = xgrad.randn(8, 64), xgrad.randn(8, 64)

def finish(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()

def average():  # a deep copy shares the arrays of the model
    loss = finish(F.mse_loss(model(x), y), sgd)
    with xgrad.no_grad():
        for a, p in zip(averaged.parameters(), model.parameters()):
            a.mul_(0.9).add_(p, alpha=0.1)
    return loss

def target():
    with xgrad.no_grad():
        wanted = averaged(x)
    loss = finish(F.smooth_l1_loss(model(x), wanted), sgd)
    state = model.state_dict()
    averaged.load_state_dict({k: v * 0.01 + state[k] * 0.99 for k, v in averaged.state_dict().items()})
    return loss

def foreign():  # weights in the memory of NumPy
    return finish(F.mse_loss(F.linear(x, weight), y), given)

def viewed():  # the first operator of the step reads a view of an array, the next one the whole of it
    return finish(F.mse_loss(model(h[0].view(8, 64)) + h[0].relu(), y), sgd)

def mixed():  # gradients are cast to the dtype of the weights, and summed to the shape of a bias
    with xgrad.autocast("cpu", dtype=xgrad.bfloat16):
        loss = F.mse_loss(model(x) + bias, y)
    return finish(loss, both)

h = [xgrad.randn(8, 64)]
averaged = copy.deepcopy(model)
weight = nn.Parameter(xgrad.from_numpy(np.ones((64, 64), np.float32)))
bias = nn.Parameter(xgrad.zeros(64))
sgd = xgrad.optim.SGD(model.parameters(), lr=0.1)
given, both = xgrad.optim.SGD([weight], lr=0.1), xgrad.optim.AdamW([*model.parameters(), bias], lr=1e-3)
assert np.isfinite(run(globals()[kind], mode)).all()
"""


SEVERAL = """
mode = sys.argv[1]
assert jax.device_count() == 4
model = nn.Sequential(nn.Embedding(9, 16), nn.Linear(16, 9))
optimizer = xgrad.optim.AdamW(model.parameters(), lr=1e-2)
words, target = xgrad.arange(10) % 9, xgrad.arange(10) % 3

def step():
    optimizer.zero_grad()
    out = model(words)
    masked = out.masked_fill(xgrad.ones(10, 9, device=out.device).tril() == 0, -1e4)
    noise = xgrad.rand(9, device=model[1].weight.device) + xgrad.tensor([0.5], device=xgrad.get_default_device())
    loss = F.cross_entropy(masked + noise, target)
    loss.backward()
    optimizer.step()
    return loss.detach()

run(step, mode)
weight = model[1].weight
saved = io.BytesIO()
xgrad.save(optimizer.state_dict(), saved)
same = pickle.loads(pickle.dumps(weight.device))
here = lambda storage, place: storage
for places in (weight.device, {"cpu:0": weight.device}, lambda storage, place: weight.device, here, same):
    saved.seek(0)
    optimizer.load_state_dict(xgrad.load(saved, map_location=places))
    assert not optimizer.state[weight]["exp_avg"]._read().committed
run(step, mode)
assert not weight._read().committed
for elsewhere in (xgrad.ones(2, device="cpu:1"), xgrad.ones(2).to("cpu:1")):
    assert elsewhere.device == xgrad.device("cpu:1") and xgrad.ones(2, device=elsewhere.device)._read().committed
with xgrad.device("cpu:1"):  # tensors that do not say otherwise are there
    assert xgrad.ones(2, device=weight.device).device == weight.device
with jax.default_device(jax.devices()[2]):
    assert xgrad.ones(2, device=weight.device).device == weight.device
assert xgrad.ones(2, device="cpu:0")._read().committed
os.write(file, b"|")
assert not pickle.loads(pickle.dumps(weight))._read().committed
assert xgrad.ones(2, device=pickle.loads(pickle.dumps(xgrad.device("cpu:0"))))._read().committed
there = xgrad.device("cpu:1")
for moved in (xgrad.ones(2, device=there), xgrad.ones(4, device=there)[:2], nn.Parameter(xgrad.ones(2).to(there))):
    again = pickle.loads(pickle.dumps(moved))
    assert again.device == there and again.tolist() == [1, 1] and again._read().committed
"""


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_the_device_of_a_tensor_that_nobody_put_there_commits_nothing(tmp_path, mode):
    flags = "--xla_force_host_platform_device_count=4"
    first, *others = compiled_in_steps(tmp_path, SEVERAL, mode, flags=flags)
    assert first
    assert (others[0], *others[3:5]) == ("", "", "")


def compiled_in_steps(tmp_path, script, *arguments, flags=""):
    """Run COUNTED and a script in a process of their own; return a dot for each program that each step compiled."""
    counted = tmp_path / "counted"
    settings = {"XLA_FLAGS": flags, "COUNTED": str(counted), "XGRAD_COMPILE_CACHE": "0", "XGRAD_LAZY": "0"}
    environment = os.environ | settings
    subprocess.run([sys.executable, "-c", COUNTED + script, *arguments], env=environment, check=True, timeout=300)
    return counted.read_text().split("|")[1:]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("kind", ["average", "target", "foreign", "viewed", "mixed"])
def test_a_shared_or_cast_array_makes_no_second_program(tmp_path, mode, kind):
    first, *others = compiled_in_steps(tmp_path, KINDS, mode, kind)
    assert first
    assert others == ["", ""]
