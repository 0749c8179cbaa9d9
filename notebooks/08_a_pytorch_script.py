# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A PyTorch script on a TPU
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/08_a_pytorch_script.ipynb)
#
# A training script as people write it for PyTorch: a `Dataset`, a `DataLoader`, convolutions and a batch norm, Adam
# with a schedule, clipped gradients, `model.eval()`, a checkpoint. This notebook changes one line of it, the import,
# and runs it on what JAX finds here: a CPU, a GPU, or the TPU of a Colab runtime. Then it makes it fast: first as a
# lazy program, which keeps Python's line by line, then compiled, then on all devices at once.

# %%
# Only where xgrad is not there yet (on Colab); jax stays the one that is installed, so nothing has to be restarted.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("xgrad") is None:
    source = "xgrad[demo] @ git+https://github.com/xgrad/xgrad"
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", source], capture_output=True)
    if pip.returncode:
        sys.exit(f'xgrad cannot be installed here; this says why: %pip install "{source}"')
    importlib.invalidate_caches()

# Before JAX starts, for the last part: the CPU counts as eight devices. Other platforms don't look at it.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

# %% [markdown]
# ## The script
#
# The first line was `import torch`.

# %%
import xgrad as torch  # isort: skip
from xgrad import nn  # isort: skip
from xgrad.nn import functional as F  # isort: skip
from xgrad.utils.data import DataLoader, Dataset, random_split  # isort: skip

import tempfile
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits


class Digits(Dataset):
    def __init__(self):
        pixels, labels = load_digits(return_X_y=True)
        self.images = torch.from_numpy((pixels / 16).astype("float32").reshape(-1, 1, 8, 8))
        self.labels = torch.from_numpy(labels.astype("int64"))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(self.dropout(x.flatten(1)))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
train, test = random_split(Digits(), [1408, 389])
loader = DataLoader(train, batch_size=64, shuffle=True)
test_images, test_labels = (torch.stack(parts) for parts in zip(*[test[i] for i in range(len(test))], strict=True))


def new_training():
    torch.manual_seed(1)
    model = Net().to(device)
    return model, torch.optim.Adam(model.parameters(), lr=3e-3)


def step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def accuracy(model):
    model.eval()
    with torch.no_grad():
        right = (model(test_images).argmax(1) == test_labels).float().mean()
    model.train()
    return right.item()


# %%
model, optimizer = new_training()
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
for epoch in range(4):
    losses = []
    for images, labels in loader:
        losses.append(step(model, optimizer, images.to(device), labels.to(device)))
    scheduler.step()
    loss = torch.stack(losses).mean().item()
    print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy(model):.3f}, rate {scheduler.get_last_lr()[0]:.4f}")
print("on", next(model.parameters()).device)

# %% [markdown]
# PyTorch asks for labels of 64 bits. Where JAX's 64-bit mode is off, as it is here, integers that fit become `int32`,
# and floats become `float32` with a warning that names the switch.
#
# On a machine with a TPU the same cell says `tpu:0` if the device is asked for in xgrad's words, `torch.devices()[0]`,
# or not at all: JAX's default device is the accelerator.
#
# ## One program a step
#
# Each operator above was a program of its own: fine for looking into it, slow on an accelerator. In a lazy block the
# operators wait, and run as one program when the block ends. Nothing of the step changes: it still is Python, line by
# line. Under `xgrad.compile` Python runs once, in the trace. (Eager's programs have been compiled above, and the other
# two compile in their first step.)

# %%
batches = [(images, labels) for images, labels in loader if len(images) == 64]


def run(step_of):
    """Train, one epoch and another; return the losses and the seconds of each step."""
    model, optimizer = new_training()
    losses, seconds = [], []
    for images, labels in batches * 2:
        start = time.perf_counter()
        losses.append(step_of(model, optimizer, images, labels).item())
        seconds.append(time.perf_counter() - start)
    return np.array(losses), np.array(seconds)


ways = {"eager": step, "lazy": torch.lazy()(step), "compiled": torch.compile(step)}
runs = {name: run(way) for name, way in ways.items()}
for name, (losses, seconds) in runs.items():
    off = abs(losses - runs["eager"][0]).max()
    print(
        f"{name:9} first step {seconds[0]:5.2f} s, a later one {1e3 * np.median(seconds[5:]):5.2f} ms, off by {off:.1e}"
    )

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
for name, (losses, seconds) in runs.items():
    left.plot(losses, label=name, alpha=0.7)
    right.semilogy(1e3 * seconds, label=name, alpha=0.7)
left.set(xlabel="step", ylabel="loss", title="the same training")
right.set(xlabel="step", ylabel="ms", title="in other times")
right.legend()
figure.tight_layout()

# %% [markdown]
# What did the lazy block launch, and why? `torch.lazy.metrics()` says it, with the line that asked for a value.

# %%
print(torch.lazy.metrics())

# %% [markdown]
# ## On all devices
#
# In a mesh the devices have names, and a tensor is put on them by a `PartitionSpec` in place of a device. Data
# parallelism is two lines: the model everywhere, the batch split. XLA adds the sums of the gradients.

# %%
mesh = torch.mesh({"batch": len(jax.devices())})
with mesh:
    torch.manual_seed(1)
    model = Net().to(P())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    compiled = torch.compile(step)
    losses = [compiled(model, optimizer, x.to(P("batch")), y.to(P("batch"))).item() for x, y in batches[:10]]
print(f"{len(jax.devices())} devices, off by {abs(np.array(losses) - runs['eager'][0][:10]).max():.1e}")

# %% [markdown]
# ## Checkpoints
#
# `state_dict`s have PyTorch's names and shapes, of modules and of optimizers. `torch.save` and `torch.load` store
# them; files that PyTorch wrote are read too.

# %%
model, optimizer = new_training()
for images, labels in batches[:10]:
    step(model, optimizer, images, labels)
again, other = new_training()
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    stored = torch.load(file)
again.load_state_dict(stored["model"])
other.load_state_dict(stored["optimizer"])
print(accuracy(model), accuracy(again), other.state_dict()["state"][0]["step"])

# %% [markdown]
# Packages that `import torch` by themselves get xgrad from `xgrad.as_torch()`, a call or a block:
#
#     with xgrad.as_torch():
#         import some_package
#
# What to read next: [lazy tensors](06_lazy_tensors.ipynb) for what cuts a program,
# [backward as programs](03_compiled_backward.ipynb) for `compile`, [many chips](05_many_chips.ipynb) for meshes.
