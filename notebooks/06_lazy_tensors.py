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
# # Lazy tensors: an eager program, one launch a step
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/06_lazy_tensors.ipynb)
#
# An eager operator is a program of its own, which XLA runs at once. A compiled step is one program, but Python runs
# only once, in the trace: there is no `print` of a value, and no branch on one. In a *lazy* block Python runs line by
# line as ever, and operators only wait in a queue. When somebody asks for a value, and at the end of the block, the
# whole queue runs as one program.
#
# This notebook runs one training loop eagerly, lazily and compiled, and counts what each launches. Then it does to
# the loop what people do to loops: it prints a loss, branches on a norm, and changes the size of the batch; and reads
# in the metrics what that costs, at which line, and what to do about it.

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
import logging
import re
import tempfile
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import xgrad
import xgrad.nn.functional as F

xgrad.devices()

# %% [markdown]
# ## One loop, three times
#
# A small network that reads digits, trained with momentum, written as one writes it in PyTorch.

# %%
BATCH, WIDTH, STEPS = 128, 64, 30

pixels, digits = load_digits(return_X_y=True)
pixels, digits = (pixels / 16).astype("float32"), digits.astype("int32")


def batches(sizes):
    random = np.random.default_rng(0)
    chosen = [random.choice(len(pixels), size, replace=False) for size in sizes]
    return [(xgrad.tensor(pixels[i]), xgrad.tensor(digits[i])) for i in chosen]


def new_weights():
    xgrad.manual_seed(0)
    weights = []
    for wide, narrow in ((64, WIDTH), (WIDTH, 10)):
        weights += [xgrad.randn(wide, narrow) / wide**0.5, xgrad.zeros(narrow)]
    return [w.requires_grad_() for w in weights]


def loss_of(weights, x, y):
    for i in range(0, len(weights), 2):
        x = x @ weights[i] + weights[i + 1]
        if i < len(weights) - 2:
            x = x.tanh()
    return F.cross_entropy(x, y)


def update(weights, velocities):
    with xgrad.no_grad():
        for w, v in zip(weights, velocities):
            v.mul_(0.9).add_(w.grad)
            w.sub_(v, alpha=0.05)
            w.grad = None


def new_step():
    weights = new_weights()
    velocities = [xgrad.zeros_like(w) for w in weights]

    def step(x, y):
        loss = loss_of(weights, x, y)
        loss.backward()
        update(weights, velocities)
        return loss.detach()

    return step


# %% [markdown]
# `xgrad.lazy()` is a block, or a decorator: each call of the step is a block then, and the step itself stays as it is.

# %%
ways = {"eager": new_step(), "lazy": xgrad.lazy()(new_step()), "xgrad.compile": xgrad.compile(new_step())}
data = batches([BATCH] * STEPS)
losses = {}
for name, step in ways.items():
    start = time.perf_counter()
    first = step(*data[0]).item()  # item() waits, for devices run ahead
    seconds = time.perf_counter() - start
    losses[name] = np.array([first, *(step(x, y).item() for x, y in data[1:])])
    off = abs(losses[name] - losses["eager"]).max()
    print(f"{name:13} first step {seconds:5.2f} s, last loss {losses[name][-1]:.4f}, farthest from eager {off:.1e}")

# %% [markdown]
# The three trainings are the same training, to rounding. How many programs does a step launch? JAX's own profiler
# knows: it has an event for each call of a jitted function.


# %%
def launches(run):
    """The jitted functions that `run` calls, in order."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            run()
        (file,) = Path(folder).glob("**/*.xplane.pb")
        planes = jax.profiler.ProfileData.from_file(str(file)).planes
        events = [event for plane in planes for line in plane.lines for event in line.events]
        calls = sorted((e.start_ns, e.end_ns, e.name) for e in events if e.name.startswith("PjitFunction"))
    found, until = [], 0
    for begin, end, name in calls:
        if begin >= until:  # the profiler shows a call as two events, one in the other
            found.append(re.sub(r"PjitFunction\((.*)\)", r"\1", name))
            until = end
    return found


launched = {name: launches(lambda step=step: step(*data[0]).item()) for name, step in ways.items()}
for name, programs in launched.items():
    print(f"{name:13} {len(programs):3}: {', '.join(programs[:6])}{', ...' * (len(programs) > 6)}")

# %% [markdown]
# Eager launches a program for each operator, each formula of backward, and each write. Lazy and compiled launch one.
# To see what that is worth we take the three in turns, so that a machine that is slow for a while is slow for all, and
# divide by eager's time.


# %%
def in_turns(ways, rounds=25, calls=4):
    """The seconds of `calls` steps, a row for each round."""
    rows = []
    for _ in range(rounds):
        row = []
        for step in ways.values():
            start = time.perf_counter()
            for x, y in data[:calls]:
                loss = step(x, y)
            loss.item()
            row.append(time.perf_counter() - start)
        rows.append(row)
    return np.array(rows)


times = in_turns(ways)
ratios = times / times[:, :1]
low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75), axis=0)

# %%
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#e69f00", "#009e73", "#444444"  # Okabe and Ito's, which all can tell apart

figure, (left, centre, right) = plt.subplots(1, 3, figsize=(11, 3.1), layout="constrained", width_ratios=(1.3, 1, 1))
styles = {"color": BLUE, "linewidth": 5, "alpha": 0.35}, {"color": ORANGE, "linewidth": 2}, {"color": "k", "ls": ":"}
for (name, values), style in zip(losses.items(), styles):
    left.plot(values, label=name, **style)
left.set(xlabel="step", ylabel="cross entropy", title="the same training")
left.legend(frameon=False)
colours = [BLUE, ORANGE, GREY]
bars = centre.bar(list(ways), [len(launched[name]) for name in ways], color=colours, width=0.6)
centre.bar_label(bars, padding=2)
centre.set(title="launches of a step")
bars = right.bar(list(ways), middle, yerr=[middle - low, high - middle], color=colours, width=0.6, capsize=3)
right.bar_label(bars, fmt="%.2f", padding=2)
right.set(title="time of a step, eager = 1")
for ax in (centre, right):
    ax.set_yticks([])
    ax.margins(y=0.15)
    ax.spines[["top", "right", "left"]].set_visible(False)
plt.show()

# %% [markdown]
# The whiskers are quartiles. One launch is not the whole story: in a lazy step Python still runs all lines, records the
# tape and notes each operator. `xgrad.compile` is spared that.
#
# ## What is pending
#
# Inside of a block a result has a shape, a dtype and a `grad_fn`, and no value yet. `xgrad.lazy.pending()` is the
# queue: what each operation reads, what it gives, and the line that noted it. (`In[3]:23` is line 23 of the cell that
# ran third.)

# %%
weights = new_weights()
x, y = data[0]
with xgrad.lazy():
    loss = loss_of(weights, x, y)
    print(tuple(loss.shape), loss.dtype, loss.grad_fn.name())
    forward = xgrad.lazy.pending().splitlines()
    loss.backward()
    both = xgrad.lazy.pending().splitlines()
    picture = xgrad.viz.program()

print(f"\n{len(forward)} operations in forward, {len(both)} with backward:\n")
print(*forward[:4], "...", *both[-3:], sep="\n")

# %% [markdown]
# The queue as a drawing, with what each operation would write if it ran for itself:

# %%
picture

# %% [markdown]
# `weights` were made outside of the block: they are inputs. The end of the block ran the queue, and `as_text()` shows
# the program, as StableHLO, or as XLA has optimized it.

# %%
stablehlo, hlo = xgrad.lazy.as_text(), xgrad.lazy.as_text("hlo")
entry = hlo[hlo.index("\nENTRY") :].splitlines()
print("jitted as", re.search(r"module @(\w+)", stablehlo)[1])
print(sum(" fusion(" in line for line in entry), "fusions and", sum(" dot(" in line for line in entry), "dots")

# %%
xgrad.viz.program()

# %% [markdown]
# Python's numbers are inputs, too, so a learning rate that changes compiles nothing.

# %%
xgrad.lazy.reset()
for rate in (0.1, 0.01, 0.001):
    with xgrad.lazy(), xgrad.no_grad():
        weights[0].sub_(weights[0].grad, alpha=rate)
metrics = xgrad.lazy.metrics()
print(f"three rates: {metrics.launches} launches, programs compiled: {len(metrics.programs)}")

# %% [markdown]
# Errors of shapes are found when an operator is noted, so they come at the line that makes them, although nothing has
# run:

# %%
with xgrad.lazy():
    try:
        weights[0] @ xgrad.ones(3)
    except RuntimeError as error:
        print(error)

# %% [markdown]
# ## What cuts a queue
#
# Where a value is read, what is pending has to run first. Here is the step with five things in it that people write
# into steps.


# %%
def new_watched_step(watch=lambda **seen: None):
    """The step; `watch` sees the loss before backward, and the weights with their gradients before the update."""
    weights = new_weights()
    velocities = [xgrad.zeros_like(w) for w in weights]

    @xgrad.lazy()
    def step(x, y):
        loss = loss_of(weights, x, y)
        watch(loss=loss)
        loss.backward()
        watch(weights=weights)
        update(weights, velocities)
        return loss.detach()

    return step


def norm_of(weights):
    return xgrad.stack([w.grad.square().sum() for w in weights]).sum().sqrt()


def print_loss(loss=None, weights=None):
    if loss is not None:
        print(loss.detach())


def print_shape(loss=None, weights=None):
    if loss is not None:
        loss.register_hook(lambda grad: print("hook:", tuple(grad.shape), grad.dtype))


def clip_by_branch(loss=None, weights=None, limit=0.5):
    if weights is not None:
        norm = norm_of(weights)
        if norm > limit:
            for w in weights:
                w.grad.mul_(limit / norm)


def clip_by_arithmetic(loss=None, weights=None, limit=0.5):
    if weights is not None:
        factor = (limit / norm_of(weights)).clamp(max=1.0)
        for w in weights:
            w.grad.mul_(factor)


def print_and_clip(loss=None, weights=None):
    print_loss(loss=loss)
    clip_by_branch(weights=weights)


# %% [markdown]
# What XGRAD_LOG=lazy writes to the terminal is an ordinary log, so we may listen: each evaluation says how many
# operations it ran, who asked, and at which line.


# %%
class Evaluations(logging.Handler):
    """Collects (operations, reason, line) of each evaluation."""

    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        said = re.match(r"(\d+) operations, .* results, by (.+) at (\S+): ", record.getMessage())
        if said:
            self.found.append((int(said[1]), said[2], said[3]))


def evaluations(step, times=1):
    log, listener = logging.getLogger("xgrad.lazy"), Evaluations()
    level = log.level
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    try:
        for x, y in data[:times]:
            step(x, y)
    finally:
        log.removeHandler(listener)
        log.setLevel(level)
    return listener.found


watched = {
    "nothing in it": new_watched_step(),
    "a hook that prints a shape": new_watched_step(print_shape),
    "print(loss)": new_watched_step(print_loss),
    "a branch on the norm": new_watched_step(clip_by_branch),
    "both": new_watched_step(print_and_clip),
    "the norm, without a branch": new_watched_step(clip_by_arithmetic),
}
cuts = {name: evaluations(step) for name, step in watched.items()}

# %%
COLOURS = {"the end of the block": BLUE, "print": ORANGE, "bool()": GREEN}


def draw_cuts(cuts):
    _, ax = plt.subplots(figsize=(11, 0.5 * len(cuts) + 1.5), layout="constrained")
    for row, parts in enumerate(cuts.values()):
        start = 0
        for operations, reason, _ in parts:
            colour = COLOURS.get(reason, GREY)
            ax.barh(-row, operations, left=start, color=colour, edgecolor="white", linewidth=3, height=0.75)
            ax.text(start + operations / 2, -row, operations, ha="center", va="center", color="white")
            start += operations
    lines = {reason: line for parts in cuts.values() for _, reason, line in parts}
    for reason, line in lines.items():
        ax.barh(0, 0, color=COLOURS.get(reason, GREY), label=f"{reason}, at {line}")
    ax.set_yticks(-np.arange(len(cuts)), list(cuts))
    ax.set(xlabel="operations, in the order in which they were noted")
    what = "a bar is a launch; its colour says what asked for it"
    ax.legend(title=what, alignment="left", frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(lines))
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(left=False)
    plt.show()


draw_cuts(cuts)

# %% [markdown]
# A hook runs in its place, on a pending gradient: its shape is known, so it cuts nothing. A `print` of the loss runs
# forward, and the rest of the step is a second program. `if norm > limit` asks for a truth value, and cuts between
# backward and the update. The last form computes a factor that is 1 where nothing has to be clipped: there is no
# question to Python, so there is no cut.
#
# A branch is not wrong. It is taken on the true value, in each step. A trace has no value to ask for:

# %%
weights = new_weights()


@xgrad.compile
def traced(x, y):
    loss_of(weights, x, y).backward()
    clip_by_branch(weights=weights)


try:
    traced(x, y)
except RuntimeError as error:
    print(error)

# %% [markdown]
# ## What the metrics say
#
# Nobody wants to draw bars to find a cut. `xgrad.lazy.metrics()` counts since the last `reset()`, and tells all of it
# in words. First the training with the branch:

# %%
xgrad.lazy.reset()
step = new_watched_step(clip_by_branch)
with_branch = [step(x, y) for x, y in data]
print(xgrad.lazy.metrics())

# %% [markdown]
# *Operations* are what was noted, *launches* the programs that ran. Each place that asked for a value stands there with
# its count, each program with the reason why it had to be compiled, and the last lines are advice. The programs of a
# step that clips were there already, from the drawing; what is compiled here is the end of a step that does not.
#
# Now the training without the branch: the same losses, half of the launches, and nothing to advise.

# %%
xgrad.lazy.reset()
step = new_watched_step(clip_by_arithmetic)
without = [step(x, y) for x, y in data]
np.testing.assert_allclose([loss.item() for loss in without], [loss.item() for loss in with_branch], rtol=1e-4)
metrics = xgrad.lazy.metrics()
print(metrics.launches, "launches, advice:", metrics.advice or "none")

# %% [markdown]
# The losses were read behind the loop, where a read costs nothing: their values are there since the ends of their
# blocks. So the cure for `print(loss)` is to print what the step has returned, after the block, and not inside of it.
#
# ## A shape that changes
#
# A program is compiled for its shapes. Here each batch has one of six sizes; the bars are the times of the steps.

# %%
sizes = np.random.default_rng(1).choice(np.arange(70, 118, 8), 30)


def timed_steps(step, batches):
    """Losses, seconds and compiled programs of each step."""
    rows = []
    for x, y in batches:
        before, start = len(xgrad.lazy.metrics().programs), time.perf_counter()
        loss = step(x, y).item()
        rows.append((loss, time.perf_counter() - start, len(xgrad.lazy.metrics().programs) - before))
    return map(np.array, zip(*rows))


xgrad.lazy.reset()
uneven_losses, uneven_times, uneven_compiled = timed_steps(xgrad.lazy()(new_step()), batches(sizes))
metrics = xgrad.lazy.metrics()
print(len(set(sizes.tolist())), "sizes,", len(metrics.programs), "programs")
print(*metrics.programs[:3], "...", *metrics.advice, sep="\n")

# %% [markdown]
# The advice is to pad to a few sizes. `cross_entropy` ignores labels of -100, so rows that only fill up change neither
# the loss nor a gradient:


# %%
def padded(x, y, to=60):
    rows = -len(x) % to
    return F.pad(x, (0, 0, 0, rows)), F.pad(y, (0, rows), value=-100)


xgrad.lazy.reset()
even = [padded(x, y) for x, y in batches(sizes)]
xgrad.sync()
even_losses, even_times, even_compiled = timed_steps(xgrad.lazy()(new_step()), even)
print({len(x) for x, _ in even}, "rows,", len(xgrad.lazy.metrics().programs), "program")
np.testing.assert_allclose(even_losses, uneven_losses, rtol=1e-4)

# %%
usual = np.median(even_times)
_, axes = plt.subplots(2, 1, figsize=(11, 4), layout="constrained", sharex=True, sharey=True)
for ax, seconds, compiled, title in (
    (axes[0], uneven_times, uneven_compiled, "six sizes"),
    (axes[1], even_times, even_compiled, "the same batches, padded"),
):
    ax.bar(np.arange(len(seconds)), seconds / usual, color=np.where(compiled > 0, ORANGE, BLUE))
    ax.set(yscale="log", ylabel="time of a step", title=title)
    ax.spines[["top", "right"]].set_visible(False)
axes[1].set_xlabel("step")
axes[0].bar(0, 0, color=ORANGE, label="a program was compiled")
axes[0].bar(0, 0, color=BLUE, label="none")
axes[0].legend(frameon=False, ncols=2, loc="upper right")
plt.show()

# %% [markdown]
# (Times are multiples of the padded training's median, on a logarithmic axis.)
#
# ## Where the block should end
#
# A block may hold more than a step. But what is noted is one program, and a loop inside of it is unrolled: the larger
# the program, the longer XLA works on it.

# %%
for steps in (1, 4):
    step = new_step()
    xgrad.lazy.reset()
    with xgrad.lazy():
        for x, y in data[:steps]:
            step(x, y)
    m = xgrad.lazy.metrics()
    print(f"{steps} in a block: {m.launches} launch of {m.operations} operations, compiled in {m.compiling:.2f} s")

# %% [markdown]
# So a block ends with each step, or `xgrad.sync()` stands at the end of the loop's body: that runs what is pending, and
# the next round finds the same program.

# %%
xgrad.lazy.reset()
step = new_step()
with xgrad.lazy():
    for x, y in data:
        loss = step(x, y)
        xgrad.sync()
m = xgrad.lazy.metrics()
print(f"{len(data)} steps: {m.launches} launches, {len(m.programs)} programs compiled", loss.item())

# %% [markdown]
# ## Which of the three
#
# | | Python runs | launches of a step | a value inside of the step |
# | --- | --- | --- | --- |
# | eager | each line | one for each operator | at any time |
# | lazy | each line | one, and one more for each place that asks for a value | cuts the step there |
# | `xgrad.compile` | in the trace only | one | is refused in the trace |
#
# `python -m xgrad demo --lazy --compiled` trains a larger network in all three, `python -m xgrad bench lazy` has their
# ratios, and the page on lazy tensors says what else is promised: about random numbers, errors, interrupts and memory.
