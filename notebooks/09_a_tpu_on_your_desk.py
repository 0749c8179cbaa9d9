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
# # A TPU on your desk: batch and sharding of a GPT, asked of the chip's compiler
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/09_a_tpu_on_your_desk.ipynb)
#
# You have a CPU. You will have a TPU v5e tomorrow, or sixteen, or 256. Does the step fit? With which batch? Sharded
# how? The TPU's own compiler runs on any Linux machine, and answers. Nothing here runs on a TPU, and the model below
# takes no memory: its tensors have shapes and no values.

# %%
# Only where xgrad is not there yet (on Colab); jax stays the one that is installed, so nothing has to be restarted.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("xgrad") is None:
    source = "xgrad[viz] @ git+https://github.com/xgrad/xgrad"
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", source], capture_output=True)
    if pip.returncode:
        sys.exit(f'xgrad cannot be installed here; this says why: %pip install "{source}"')
    importlib.invalidate_caches()
os.environ.setdefault("JAX_PLATFORMS", "cpu")  # with libtpu installed JAX would look for a TPU

# %% [markdown]
# The compiler is in the package libtpu, of Google's terms, which you install: `pip install "jax[tpu]"`. Where it is
# missing, this notebook goes on with figures that were stored.

# %%
import jax
from jax.sharding import PartitionSpec as P

import xgrad
from xgrad import nn
from xgrad.nn import functional as F

missing = xgrad.target("tpu:v5e").missing
print(missing or f"compilers are here for {', '.join(xgrad.chips.available())}")

# %% [markdown]
# ## The model
#
# Two blocks of a GPT, as wide as you like. `xgrad.chips.shapes()` makes tensors without values: 1.3 billion
# parameters, their gradients and AdamW's two moments would be 21 GB.

# %%
LENGTH, WORDS = 512, 32768


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        h = self.norm1(x)
        heads = [layer(h).view(batch, length, -1, 128).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, words):
        x = self.words(words) + self.places(xgrad.arange(words.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def training(width):
    """Return a step, as you would run it, of a model that has shapes alone."""
    with xgrad.chips.shapes():
        model = GPT(width)
        optimizer = xgrad.optim.AdamW(model.parameters(), lr=3e-4)

    @xgrad.compile
    def step(words, following):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(words).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


model, step = training(6144)
print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f} billion parameters")

# %% [markdown]
# ## The question
#
# One function asks for a width, a batch and a target, and takes from the report what the tables below show. To ask
# again costs a trace: answers are kept beside the compiled programs.

# %%
STORED = {  # of jax 0.10.2 with libtpu 0.0.42
    "1024, 16, tpu:v5e, None": {"state": "fits", "GiB": 4.13, "ms": 35.27, "GiB exchanged": 0.0},
    "1024, 64, tpu:v5e, None": {"state": "fits", "GiB": 12.93, "ms": 116.23, "GiB exchanged": 0.0},
    "1024, 256, tpu:v5e, None": {"state": "does not fit"},
    "6144, 8, tpu:v5e, None": {"state": "does not fit"},
    "6144, 32, tpu:v5e:4x4, {'data': 16}": {"state": "does not fit"},
    "6144, 32, tpu:v5e:4x4, {'data': 4, 'model': 4}": {
        "state": "fits",
        "GiB": 6.33,
        "ms": 84.34,
        "GiB exchanged": 4.973,
    },
    "6144, 256, tpu:v5e:16x16, {'data': 64, 'model': 4}": {
        "state": "fits",
        "GiB": 5.91,
        "ms": 56.76,
        "GiB exchanged": 3.02,
    },
    "6144, 256, tpu:v5e:16x16, {'data': 16, 'model': 16}": {
        "state": "fits",
        "GiB": 3.0,
        "ms": 47.1,
        "GiB exchanged": 7.866,
    },
}

reports = {}


def ask(width, batch, name, mesh=None, shardings=None):
    """Return what the compiler says of a step: fits or not, GiB, ms, GiB between devices."""
    key = f"{width}, {batch}, {name}, {mesh}"
    if missing:
        return STORED[key]
    _, step = training(width)
    words = jax.ShapeDtypeStruct((batch, LENGTH), "int32")
    report = reports[key] = step.compiled_for(xgrad.target(name, mesh, shardings, limit=1800), words, words)
    if not report.fits:
        return {"state": report.state}
    return {
        "state": "fits",
        "GiB": report.answer.peak / 2**30,
        "ms": report.answer.estimated_seconds * 1e3,
        "GiB exchanged": sum(each.bytes for each in report.exchanges) / 2**30,
    }


def show(label, found):
    figures = "".join(f"  {value:8.2f} {name}" for name, value in found.items() if name != "state")
    print(f"{label:<28}{found['state']:<14}{figures}")


# %% [markdown]
# ## One chip: which batch?
#
# A v5e has 15.75 GiB for programs. A smaller GPT, 1024 wide:

# %%
batches = [16, 64, 256]
one = {batch: ask(1024, batch, "tpu:v5e") for batch in batches}
for batch, found in one.items():
    show(f"1024 wide, batch {batch}", found)

# %% [markdown]
# And the large one? Its weights, gradients and moments alone are more than the chip has:

# %%
show("6144 wide, batch 8", ask(6144, 8, "tpu:v5e"))

# %% [markdown]
# ## Sixteen chips: sharded how?
#
# Specs go by the tensors' names. What no pattern names is whole on each chip; the moments of a weight lie where the
# weight does. First the batch alone is split, over all sixteen. Then weights too, over four.

# %%
DATA = {"words": P("data"), "following": P("data")}
BOTH = DATA | {
    "*.query.weight": P("model"),
    "*.key.weight": P("model"),
    "*.value.weight": P("model"),
    "*.out.weight": P(None, "model"),
    "*.up.weight": P("model"),
    "*.down.weight": P(None, "model"),
    "model.words.weight": P(None, "model"),
    "model.head.weight": P("model"),
}
sixteen = {
    "data=16": ask(6144, 32, "tpu:v5e:4x4", {"data": 16}, DATA),
    "data=4, model=4": ask(6144, 32, "tpu:v5e:4x4", {"data": 4, "model": 4}, BOTH),
}
for label, found in sixteen.items():
    show(f"4x4, {label}", found)

# %% [markdown]
# ## A pod of 256
#
# The batch grows with the chips. The wider the model's axis, the less memory a chip needs, and the more it exchanges
# with others:

# %%
pod = {
    f"data={data}, model={256 // data}": ask(6144, 256, "tpu:v5e:16x16", {"data": data, "model": 256 // data}, BOTH)
    for data in (64, 16)
}
for label, found in pod.items():
    show(f"16x16, {label}", found)

# %%
import matplotlib.pyplot as plt

rows = {f"4x4, {k}": v for k, v in sixteen.items()} | {f"16x16, {k}": v for k, v in pod.items()}
rows = {label: found for label, found in rows.items() if found["state"] == "fits"}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.4), sharey=True, layout="constrained")
left.barh([*rows], [found["GiB"] for found in rows.values()])
left.axvline(15.75, color="grey", linestyle="--")
left.set_xlabel("GiB of each chip (dashed: all it has)")
right.barh([*rows], [found["ms"] for found in rows.values()])
right.set_xlabel("estimated ms of a step")
plt.show()

# %% [markdown]
# ## What is in a report
#
# Beside these figures: the heaviest parts with *your* lines, what is alive at the peak by name, what is donated, the
# padding of the chip's tiles of 8 x 128, gathers, exchanges by axis of the mesh. The last one that fits:

# %%
fitting = [report for report in reports.values() if report.fits]
print(fitting[-1] if fitting else missing)

# %% [markdown]
# From a shell: `python -m xgrad chip FILE.py:step --target tpu:v5e:4x4 --mesh data=4,model=4 --shard 'words=data'`.
# The page [A TPU on your desk](https://xgrad.github.io/xgrad/tpu_on_your_desk/) has all of it, and the limits: the
# estimates are the compiler's, no time was measured, and no value computed.
