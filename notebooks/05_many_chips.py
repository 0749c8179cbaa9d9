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
# # From one chip to many
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/05_many_chips.ipynb)
#
# In JAX where an array lies is *data*, not code: an array knows its sharding, and a program is compiled for the
# shardings of its inputs. XLA adds the communication. So the step that runs on one CPU runs on eight chips if its
# arrays are put there, and nothing else changes. xgrad passes that through: a `Sharding` is accepted wherever PyTorch
# takes a device, views and in-place writes work on sharded storages, and gradients are put where their variables lie.
#
# This notebook looks at that, tensor by tensor, and then trains one small transformer four times: on one device,
# data-parallel, with its parameters split over all devices, and with its layers split.
#
# On a Colab TPU runtime the devices are the TPU's chips. Elsewhere the CPU plays eight of them, which is how such
# programs are written and tested on a laptop.

# %%
# Only where xgrad is not there yet (on Colab); jax stays the one that is installed, so nothing has to be restarted.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("xgrad") is None:
    source = "xgrad[demo,orbax] @ git+https://github.com/xgrad/xgrad"
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", source], capture_output=True)
    if pip.returncode:
        sys.exit(f'xgrad cannot be installed here; this says why: %pip install "{source}"')
    importlib.invalidate_caches()

# Before JAX starts: the CPU counts as eight devices. Other platforms don't look at it.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

# %%
import tempfile
import warnings

import jax
import matplotlib.pyplot as plt
import numpy as np
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits

import xgrad
import xgrad.nn.functional as F

show = jax.debug.visualize_array_sharding
N = len(jax.devices())
N, jax.devices()[0].device_kind

# %% [markdown]
# ## A mesh, and where tensors lie
#
# A mesh gives the devices names: here one axis, `"chips"`. Within `with xgrad.mesh(...)` a `PartitionSpec` is a
# device: it says, dimension by dimension, over which axis of the mesh a tensor is split.

# %%
mesh = xgrad.mesh({"chips": N})

with mesh:
    rows = xgrad.arange(128.0, device=P("chips")).reshape(8, 16)
    columns = rows.to(P(None, "chips"))
    everywhere = rows.to(P())

for name, x in {"rows": rows, "columns": columns, "everywhere": everywhere}.items():
    print(name, "--", x.device)
    show(x)

# %% [markdown]
# Operators don't ask. XLA sees the shardings of what goes in, decides where the result lies, and inserts what has to
# be sent: the product of rows with rows needs nothing, a sum over the split dimension an all-reduce.

# %%
y = rows * rows
total = rows.sum(0)
for x in (y, total):
    print(tuple(x.shape), x.sharding.spec)

# %% [markdown]
# ## Views and in-place writes
#
# This is what xgrad is about. A view is a recorded chain of view operations, replayed on its base; the base may lie
# on many chips. A write through the view goes to the base, and **a write never changes where a storage lies**: the
# program is told to leave the result sharded as it was, and where nobody else holds the buffers, each chip writes in
# place.

# %%
base = xgrad.zeros(8, 16)
with mesh:
    base = base.to(P("chips"))
before = base.sharding

base[2:5].add_(1)  # three rows: of eight chips three are concerned
base.t()[3].mul_(10)  # a column, on all chips
base[:, ::2][1].fill_(7)  # a view of a view
print(base.sharding == before)
show(base)
plt.figure(figsize=(6, 3))
plt.imshow(base.numpy(), cmap="viridis", aspect="auto")
plt.title("written through three views, on all chips")
plt.xlabel("column")
plt.ylabel("row")
plt.colorbar()
plt.show()

# %% [markdown]
# And the gradient is right, because `CopySlices` is the same node as on one device:

# %%
x = xgrad.ones(8, 4, requires_grad=True)
with mesh:
    sharded = x.detach().to(P("chips")).requires_grad_()


def written(x):
    y = x * 1
    y[1:3].mul_(xgrad.arange(4.0))
    y.t()[0].zero_()
    return (y * y).sum()


written(x).backward()
written(sharded).backward()
print(bool((x.grad == sharded.grad.to("xla")).all()), "|", sharded.grad.sharding.spec)

# %% [markdown]
# ## Where gradients lie
#
# PyTorch promises of a gradient's strides that they are those of its variable, so that the optimizer's step is fast.
# Here the promise is about placement: a stored gradient lies where its variable does. If it arrives elsewhere, it is
# moved once, and there is one warning, for the move costs time in each step.

# %%
with mesh:
    w = xgrad.ones(8, 8, device=P()).requires_grad_()  # a copy on each chip
    x = xgrad.ones(8, 8, device=P("chips"))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        (x * w).sum().backward()  # each chip makes the rows of the gradient that it has of x
print(w.grad.sharding.spec, "|", *(str(c.message) for c in caught))

# %% [markdown]
# ## One transformer, four placements
#
# The model is a function of a dictionary of parameters; it reads a digit as a sequence of eight rows. The step below
# is written once: forward, backward, momentum in place. What differs between the four trainings is `specs`, which
# says how each parameter is split, and how a batch is.

# %%
WIDTH, HEADS, ROWS, BATCH, STEPS = 64, 8, 8, 128, 60

pixels, digits = load_digits(return_X_y=True)
images, labels = (pixels.reshape(-1, ROWS, 8) / 16).astype("float32"), digits.astype("int32")


def new_parameters():
    shapes = {"embed": (8, WIDTH), "place": (ROWS, WIDTH), "out": (WIDTH, 16)}
    for i in range(2):
        shapes |= {f"{i}.qkv": (WIDTH, 3 * WIDTH), f"{i}.merge": (WIDTH, WIDTH)}
        shapes |= {f"{i}.up": (WIDTH, 4 * WIDTH), f"{i}.down": (4 * WIDTH, WIDTH)}
    random = np.random.default_rng(0)
    values = {name: random.standard_normal(shape) * shape[0] ** -0.5 for name, shape in shapes.items()}
    return {name: value.astype("float32") for name, value in values.items()}


def normed(x):
    return F.layer_norm(x, x.shape[-1:])


def attention(x, qkv, merge):
    heads = (x @ qkv).reshape(*x.shape[:2], HEADS, 3, -1).permute(3, 0, 2, 1, 4)  # 3, batch, head, row, channel
    mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
    return mixed.transpose(1, 2).reshape(x.shape) @ merge


def loss_of(p, x, y):
    h = x @ p["embed"] + p["place"]
    for i in range(2):
        h = h + attention(normed(h), p[f"{i}.qkv"], p[f"{i}.merge"])
        h = h + F.gelu(normed(h) @ p[f"{i}.up"]) @ p[f"{i}.down"]
    return F.cross_entropy(normed(h).mean(1) @ p["out"], y)


# %%
def training(specs, batch_spec, compiled):
    """Losses, parameters and momenta; `specs` gives the PartitionSpec of a parameter by its name."""
    p = {name: xgrad.tensor(v, device=specs(name, v.shape)).requires_grad_() for name, v in new_parameters().items()}
    momenta = {name: xgrad.zeros_like(w) for name, w in p.items()}

    def step(x, y):
        loss = loss_of(p, x, y)
        loss.backward()
        with xgrad.no_grad():
            for name, w in p.items():
                momenta[name].mul_(0.9).add_(w.grad)
                w.sub_(momenta[name], alpha=0.05)
                w.grad = None
        return loss.detach()

    run = xgrad.compile(step) if compiled else step
    random, losses = np.random.default_rng(0), []
    for _ in range(STEPS if compiled else 3):
        chosen = random.choice(len(images), BATCH, replace=False)
        losses.append(float(run(*(xgrad.tensor(v[chosen], device=batch_spec) for v in (images, labels)))))
    return losses, p, momenta


def replicated(name, shape):
    return P()


def split(name, shape):
    """The largest dimension over all chips, as fully sharded data parallelism (FSDP) does."""
    spec = [None, None]
    spec[int(np.argmax(shape))] = "chips"
    return P(*spec)


def by_layer(name, shape):
    """Tensor parallelism: what enters a layer's inner width is split by columns, what leaves it by rows."""
    kind = name.split(".")[-1]
    return P(None, "chips") if kind in ("qkv", "up") else P("chips") if kind in ("merge", "down") else P()


# %% [markdown]
# Eager first: three steps on each placement give the same losses as on one device. Each operator is a program for all
# chips.

# %%
ways = {
    "one device": (lambda name, shape: None, None),
    "data parallel": (replicated, P("chips")),
    "fully sharded": (split, P("chips")),
    "tensor parallel": (by_layer, P()),
}
with mesh:
    for name, (specs, batch) in ways.items():
        print(f"{name:16}", np.round(training(specs, batch, compiled=False)[0], 5))

# %% [markdown]
# Then compiled: a step is one program for all chips, with the updates in place. Below, how the parameters of one
# layer lie.

# %%
with mesh:
    trained = {name: training(specs, batch, compiled=True) for name, (specs, batch) in ways.items()}

for name in ("fully sharded", "tensor parallel"):
    print(name, "-- 0.up and 0.down")
    show(trained[name][1]["0.up"])
    show(trained[name][1]["0.down"])

# %% [markdown]
# What it is for: memory. The model, its gradients and its momenta are held once by each chip where they are
# replicated, and by parts where they are split.


# %%
def bytes_per_device(tensors):
    """The largest sum over the devices, of what is stored there."""
    held = {}
    for t in tensors:
        for shard in jax.numpy.asarray(t.detach()).addressable_shards:
            held[shard.device] = held.get(shard.device, 0) + shard.data.nbytes
    return max(held.values())


kilobytes = {
    name: bytes_per_device([*p.values(), *momenta.values()]) / 1e3 for name, (_, p, momenta) in trained.items()
}
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6))
for (name, (losses, _, _)), style in zip(trained.items(), ("-", "--", ":", "-.")):
    left.plot(losses, style, label=name, linewidth=2)
left.set(title="the same training", xlabel="step", ylabel="loss")
left.legend()
right.barh(list(kilobytes), list(kilobytes.values()), color="tab:blue")
right.invert_yaxis()
right.set(title=f"parameters and momenta, per device, of {N}", xlabel="kB")
figure.tight_layout()

for losses, _, _ in trained.values():
    np.testing.assert_allclose(losses, trained["one device"][0], rtol=2e-2)

# %% [markdown]
# XLA put the communication in. The compiled program says what it is: sums of gradients where the batch is split, and
# gathers of parameters where these are.

# %%
import re
from collections import Counter


def communication(specs, batch):
    p = {name: xgrad.tensor(v, device=specs(name, v.shape)).requires_grad_() for name, v in new_parameters().items()}
    step = xgrad.compile(lambda x, y: xgrad.autograd.grad(loss_of(p, x, y), list(p.values())))
    text = step.as_text(*(xgrad.tensor(v[:BATCH], device=batch) for v in (images, labels)))
    kinds = r"= \S+ (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
    return Counter(re.findall(kinds, re.sub(r"\([^()]*\{[^()]*\) ", "tuple ", text)))


with mesh:
    for name in ("data parallel", "fully sharded", "tensor parallel"):
        print(f"{name:16}", dict(communication(*ways[name])))

# %% [markdown]
# ## Onto another mesh
#
# A checkpoint knows its arrays, not the machine on which they were saved. What was trained on one mesh goes on on
# another: here two axes, batches split along one and layers along the other.

# %%
from xgrad.interop import orbax

p = trained["fully sharded"][1]
with tempfile.TemporaryDirectory() as folder, xgrad.mesh({"data": max(N // 2, 1), "model": min(N, 2)}):
    orbax.save(f"{folder}/trained", p)
    like = {name: xgrad.zeros_like(w, device=P(None, "model")) for name, w in p.items()}
    restored = orbax.restore(f"{folder}/trained", like=like)

    x, y = xgrad.tensor(images[:BATCH], device=P("data")), xgrad.tensor(labels[:BATCH], device=P("data"))
    here = float(loss_of(restored, x, y))
with mesh:
    there = float(loss_of(p, *(xgrad.tensor(v[:BATCH], device=P("chips")) for v in (images, labels))))
print(round(here, 5), round(there, 5))
show(restored["0.up"])

# %% [markdown]
# ## More than one host
#
# With several hosts each runs this same program. `jax.distributed.initialize()` joins them; afterwards
# `jax.devices()` are those of all hosts, and a mesh over them works as above. Each host reads its part of the batch,
# and one prints. On a TPU slice and under SLURM there is nothing to say to `initialize()`; elsewhere it takes the
# address of the first host, how many there are, and which one this is. `python -m xgrad demo --hosts 2` does it on
# one machine.
