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
# # Prototype a backend: declare it, run on it, see what it did
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/07_prototype_a_backend.ipynb)
#
# Someone designs an accelerator. Has it strides? Does a write donate its buffer? What if there is no sort, what if a
# launch takes 50 µs, what if there are only 200 kB of memory? Each answer changes what PyTorch programs cost
# there. This notebook declares such a chip, trains a network on it, reads what it did, and changes one property at a
# time. JAX's own device does the computing, so it runs anywhere.

# %%
# Only where xgrad is not there yet (on Colab); jax stays the one that is installed, so nothing has to be restarted.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("xgrad") is None:
    source = "xgrad[demo] @ git+https://github.com/xgrad/xgrad"
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", source], capture_output=True)
    if pip.returncode:
        sys.exit(f'xgrad cannot be installed here; this says why: %pip install "{source}"')
    importlib.invalidate_caches()

# %%
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import xgrad
import xgrad.nn.functional as F

# %% [markdown]
# ## A declaration
#
# A backend is a frozen value, and nothing is global: the value itself is the device. This one has no strides, as XLA's
# devices have none, so a view replays its chain; a launch takes 8 µs; its numbers of bandwidth and arithmetic are those
# of a large chip.

# %%
chip = xgrad.Backend(
    "chip",
    strides=False,
    cost=xgrad.Cost(launch=8e-6, bandwidth=8e11, flops=9e13, compile=0.5, host_link=1.6e10),
)
x = xgrad.tensor([3.0, 1.0, 2.0], device=chip, requires_grad=True)
x.exp().sum().backward()
x.grad

# %% [markdown]
# ## A program
#
# A recurrent network reads digits row by row. It collects its states in one buffer, in place through views: each
# `states[t] = ...` is a `CopySlices` on the tape. The optimizer is momentum, in place as well.

# %%
BATCH, WIDTH = 64, 32

pixels, digits = load_digits(return_X_y=True)
pixels, digits = (pixels[:BATCH] / 16).astype("float32").reshape(BATCH, 8, 8), digits[:BATCH].astype("int32")


def classify(images, inside, recurrent, out):
    states = xgrad.zeros(8, len(images), WIDTH, device=images.device)
    state = xgrad.zeros(len(images), WIDTH, device=images.device)
    for t in range(8):
        state = (images[:, t] @ inside + state @ recurrent).tanh()
        states[t] = state
    return states.mean(0) @ out


def new_training(device):
    """A training on a device: its step, which returns the loss."""
    xgrad.manual_seed(0)
    shapes = (8, WIDTH), (WIDTH, WIDTH), (WIDTH, 10)
    weights = [(xgrad.randn(*s, device=device) / s[0] ** 0.5).requires_grad_() for s in shapes]
    velocities = [xgrad.zeros_like(w) for w in weights]
    images, labels = xgrad.tensor(pixels, device=device), xgrad.tensor(digits, device=device)

    def step():
        loss = F.cross_entropy(classify(images, *weights), labels)
        loss.backward()
        with xgrad.no_grad():
            for w, v in zip(weights, velocities):
                v.mul_(0.9).add_(w.grad)
                w.sub_(v, alpha=0.1)
                w.grad = None
        return loss.detach()

    return step


def report_of(backend, steps=3):
    """What the last step did, and its loss; the steps before compile."""
    step = new_training(backend)
    for _ in range(steps - 1):
        step().item()
    with backend.report() as report:
        loss = step().item()
    return report, loss


report, loss = report_of(chip)
print("loss", loss)
report

# %% [markdown]
# Read it from above. Each operator, each formula of backward and each write was a launch. Views were *replayed* to be
# read, and *written back* when they were written. The time is an estimate: for each launch its 8 µs, and the larger of
# arithmetic and memory traffic as XLA counts them. A value that goes over the host's link waits as long as a launch,
# and then for its bytes.
#
# ## One property at a time

# %%
variants = {
    "as declared": chip,
    "with strides": chip.replace(strides=True),
    "no donation": chip.replace(donation=False),
    "no tanh": chip.replace(without=["tanh"]),
    "50 µs a launch": chip.replace(cost=xgrad.Cost(launch=50e-6, bandwidth=8e11, flops=9e13, host_link=1.6e10)),
    "lazy": chip.replace(execution="lazy"),
}
reports = {name: report_of(backend) for name, backend in variants.items()}

print(f"{'':15} {'loss':>7} {'launches':>8} {'copied':>9} {'fallbacks':>9} {'peak':>8} {'estimate':>9}")
for name, (report, loss) in reports.items():
    found = report.as_dict()
    copied = found["copies that donation would have saved"]["bytes"]
    fallbacks = sum(each["count"] for each in found["fallbacks"])
    time = report.estimate().run
    print(
        f"{name:15} {loss:7.4f} {report.launches:8} {copied / 1e3:6.0f} kB {fallbacks:9} "
        f"{found['peak memory'] / 1e3:5.0f} kB {time * 1e6:6.0f} µs"
    )

# %% [markdown]
# The training is the same on all of them. A device with strides launches nothing for a view that is read. Without
# donation each write copies its buffer. Without `tanh` the host computes it and its derivative: that is no launch, but
# two transfers each, so it takes longer. (`without=["sorting", "float64"]` names all operators that sort, and a dtype;
# tensors of float64 exist under JAX's 64-bit mode only.) The report has the line:

# %%
for fallback in reports["no tanh"][0].as_dict()["fallbacks"]:
    print(fallback["operator"], "at", fallback["line"], "-", fallback["count"], "times,", fallback["bytes"], "bytes")

# %% [markdown]
# The lazy chip notes operators and runs them as one program, when `item()` reads the loss. Where launches are what
# time goes into, that is what fusion is for:

# %%
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"  # Okabe and Ito's, which all can tell apart

PURPLE = "#cc79a7"
parts = {"launch": BLUE, "compute": GREEN, "memory": ORANGE, "link": VERMILION, "fallback": PURPLE}
figure, ax = plt.subplots(figsize=(8, 2.9), layout="constrained")
left = np.zeros(len(reports))
for part, colour in parts.items():
    widths = np.array([getattr(report.estimate(), part) * 1e6 for report, _ in reports.values()])
    ax.barh(list(reports), widths, left=left, color=colour, label=part)
    left += widths
ax.invert_yaxis()
ax.set(xlabel="µs", title="estimated time of a step")
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Where values part
#
# A chip's own kernel goes in as a JAX function; derivatives stay. This one rounds `tanh` coarsely. `xgrad.compare` runs
# a function on several backends and names the first operator whose values differ, with both values.

# %%
coarse = chip.replace(lowerings={"tanh": lambda a: (jnp.tanh(a) * 64).round() / 64})
xgrad.manual_seed(0)
arguments = [
    xgrad.tensor(pixels[:4]),
    *((xgrad.randn(*s) / s[0] ** 0.5).requires_grad_() for s in ((8, WIDTH), (WIDTH, WIDTH), (WIDTH, 10))),
]
xgrad.compare(classify, *arguments, backends=["cpu", chip, chip.replace(strides=True), coarse], repeats=3)

# %% [markdown]
# ## A memory of 200 kB
#
# What is alive counts, exactly. More is an error, as the chip would give it, and nothing is lost by it.

# %%
small = chip.replace(memory=200_000)
try:
    report_of(small)
except xgrad.errors.OutOfMemoryError as error:
    print(error)

# %% [markdown]
# ## What lives, drawn
#
# The buffer of the states with its views, and the tape of two time steps: each `CopySlices` has the write inside.

# %%
buffer = xgrad.zeros(3, 2, device=chip)
rows = [buffer[t] for t in range(3)]
rows[0].add_(1)
xgrad.viz.storage(buffer)

# %%
weight = xgrad.ones(2, 2, device=chip, requires_grad=True)
states, state = xgrad.zeros(2, 2, device=chip), xgrad.ones(2, device=chip)
for t in range(2):
    state = (state @ weight).tanh()
    states[t] = state
xgrad.viz.graph(states.sum(), params={"weight": weight})

# %% [markdown]
# ## Five surprises of PyTorch/XLA
#
# Each in a few lines, with what the report says of it.
#
# **A stale view.** A view is read again after its base was written: a refresh. A write through it finds its place, and
# loses nothing that the base got in between.

# %%
with chip.report() as report:
    base = xgrad.zeros(4, 256, device=chip)
    row = base[0]
    for _ in range(3):
        row.exp()
        base.add_(1)  # the row is stale now
    row.mul_(2)
print(base[0, 0].item(), report.as_dict()["views"])

# %% [markdown]
# **A graph of views that grows.** Views of views of views: the chain is put into normal form as it is made, so ten
# steps along it are one program of one step.

# %%
with chip.report() as report:
    view = xgrad.zeros(12, 256, device=chip)
    for _ in range(10):
        view = view[1:]
    view.exp()
print(report.as_dict()["views"]["read"], *report.as_dict()["programs"], sep="\n")

# %% [markdown]
# **A number of Python's that compiles again.** Numbers are operands; what decides a shape is not, and the report says
# why it compiled.

# %%
lazy_chip = chip.replace(execution="lazy")
x = xgrad.ones(8, device=lazy_chip)
xgrad.sync()
with lazy_chip.report() as report:
    for rate in (0.1, 0.01, 0.001):
        (x * rate).sum().item()
    for size in (3, 4):
        x[:size].sum().item()
print(*report.as_dict()["programs"], sep="\n")

# %% [markdown]
# **A size that compiles again.** Each shape is a program. A chip may have programs of few sizes, and pad what is in
# between: what is padded is masked, so values and gradients stay. What cannot be padded runs as it is, and the report
# says why.

# %%
for sizes in (None, [16, 32]):
    padding = chip.replace(shapes=sizes)
    with padding.report() as report:
        for batch in (17, 23, 30, 31):
            rows = xgrad.ones(batch, 8, device=padding, requires_grad=True)
            rows.exp().mean().backward()
    print(sizes, len(report.as_dict()["programs"]), "programs,", rows.grad.sum().item())

# %% [markdown]
# **`item()` in the loop.** It cuts the step in two, and the metrics say where.

# %%
xgrad.lazy.reset()
with lazy_chip.report() as report:
    total = xgrad.zeros((), device=lazy_chip)
    for _ in range(4):
        total = total + x.sum()
        if total.item() > 1e6:
            break
print(report.launches, "launches;", *xgrad.lazy.metrics().advice)

# %% [markdown]
# ## Is a real device right?
#
# `python -m xgrad conform` runs every operator of the table on a device, forward, backward and in place, dtype by
# dtype, and compares with the CPU in float64; `--backend FILE.py:chip` takes a declared one. From Python:

# %%
checked = xgrad.conformance.run(device=coarse, operators="tan*", dtypes=["float32"])
print("all right:", checked.ok)
checked

# %% [markdown]
# The coarse `tanh` is found, and `tan` is right. From here: the page
# [A backend, declared](https://github.com/xgrad/xgrad/blob/main/docs/concepts/backends.md) has all properties, and
# `examples/backends/` has seven files, each with what it taught.
