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
# # Backward as programs, and a step as one
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/03_compiled_backward.ipynb)
#
# Eager means that each operator is a program of its own: it is looked up, given its arguments, run, and what it gives
# is wrapped in a tensor. For a large matrix product nobody notices; for small tensors it is most of what a step
# takes. XLA would rather have long programs, in which it can fuse and reuse.
#
# xgrad hands it longer programs in two ways. **Compiled backward** leaves forward as it is and cuts the tape that
# forward has recorded into *segments*, each of which is one program. **`xgrad.compile`** makes one program of a whole
# step: forward, backward, and the updates in place. This notebook trains the same small network in all three ways,
# looks at where the tape is cut and why, reads the programs, and measures.

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
import os
import re
import tempfile
import time
from collections import Counter
from statistics import median

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import xgrad
from xgrad.autograd import compiled_backward

xgrad.devices()

# %% [markdown]
# ## A training
#
# The network reads a digit row by row, and writes each of its states into one buffer, *through a view of a view*.
# That is what makes PyTorch's tape interesting (the first notebook is about it), and hard to compile:
# `torch.compile`'s compiled autograd refuses a view that was written in place.

# %%
STEPS, HIDDEN, BATCH = 8, 64, 128

pixels, digits = load_digits(return_X_y=True)
images = xgrad.tensor((pixels.reshape(-1, STEPS, 8) / 16).astype("float32"))
labels = xgrad.tensor(digits.astype("int32"))


def new_weights():
    random = np.random.default_rng(0)

    def weight(*shape):
        values = random.standard_normal(shape) * shape[0] ** -0.5
        return xgrad.tensor(values.astype("float32"), requires_grad=True)

    return [weight(8, HIDDEN), weight(HIDDEN, HIDDEN), xgrad.zeros(HIDDEN, requires_grad=True), weight(HIDDEN, 10)]


def loss_of(x, y, weights, hook_at=()):
    w_in, w_state, bias, w_out = weights
    buffer = xgrad.zeros(len(x), STEPS, HIDDEN)
    states = buffer.transpose(0, 1)  # a view: time first
    h = xgrad.zeros(len(x), HIDDEN)
    for t in range(STEPS):
        h = xgrad.tanh(x[:, t] @ w_in + h @ w_state + bias)
        if t in hook_at:
            h.register_hook(lambda gradient: None)  # looks, and changes nothing
        states[t].copy_(h)  # a view of a view is written, and with it `buffer`
    return xgrad.nn.functional.cross_entropy(buffer.mean(1) @ w_out, y)


# %% [markdown]
# A step: forward, backward, and momentum in place, written as one writes it in PyTorch.


# %%
def new_step():
    weights = new_weights()
    velocities = [xgrad.zeros_like(w) for w in weights]

    def step(x, y):
        loss = loss_of(x, y, weights)
        loss.backward()
        with xgrad.no_grad():
            for w, v in zip(weights, velocities):
                v.mul_(0.9).add_(w.grad)
                w.sub_(v, alpha=0.1)
                w.grad = None
        return loss.detach()

    return step


def train(step, epochs=8):
    """Losses and seconds of each step."""
    random = np.random.default_rng(0)
    losses, times = [], []
    for _ in range(epochs):
        order = random.permutation(len(images))
        for k in range(len(order) // BATCH):
            batch = xgrad.tensor(order[k * BATCH : (k + 1) * BATCH].astype("int32"))
            x, y = images[batch], labels[batch]
            start = time.perf_counter()
            losses.append(step(x, y).item())  # item() waits, for devices run ahead
            times.append(time.perf_counter() - start)
    return np.array(losses), times


trainings = {"eager": train(new_step())}

# %% [markdown]
# Compiled backward is a block (or a decorator): whatever backward runs in it, in this thread, runs as programs. The
# code of the step stays as it is.

# %%
with compiled_backward():
    trainings["compiled\nbackward"] = train(new_step())

# %% [markdown]
# `xgrad.compile` takes the function. Its first call *traces*: it runs the function once on tensors that have no
# values, and notes whatever it does to tensors. What is touched from outside, here the weights and the velocities in
# the closure, becomes input and, where it is changed, output of the program. From then on the function itself is not
# run any more: a call looks whether the program still fits, and runs that.

# %%
step = xgrad.compile(new_step())
trainings["xgrad.compile"] = train(step)

eager = trainings["eager"][0]
for name, (losses, times) in trainings.items():
    print(
        f"{' '.join(name.split()):17} first step {times[0]:5.2f} s, then {median(times[5:]) * 1e3:5.2f} ms each,",
        f"last loss {losses[-1]:.4f}, farthest from eager {abs(losses - eager).max():.1e}",
    )

# %%
BLUE, ORANGE, GREEN = "#0072b2", "#e69f00", "#009e73"  # Okabe and Ito's, which all eyes can tell apart

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained", width_ratios=(1.3, 1, 1))
styles = {"color": BLUE, "linewidth": 5, "alpha": 0.35}, {"color": ORANGE, "linewidth": 2}, {"color": "k", "ls": ":"}
for (name, (losses, _)), style in zip(trainings.items(), styles):
    left.plot(losses, label=" ".join(name.split()), **style)
left.set(xlabel="step", ylabel="cross entropy", title="the same training")
left.legend(frameon=False)
for ax, seconds, title, unit in (
    (middle, [t[0] for _, t in trainings.values()], "first step, with compiling", "s"),
    (right, [median(t[5:]) * 1e3 for _, t in trainings.values()], "each step after it", "ms"),
):
    bars = ax.bar(list(trainings), seconds, color=[BLUE, ORANGE, "#444444"], width=0.6)
    ax.bar_label(bars, fmt=f"%.2f {unit}", padding=2)
    ax.set(title=title, yticks=[])
    ax.margins(y=0.15)
    ax.spines[["top", "right", "left"]].set_visible(False)
plt.show()

# %% [markdown]
# Three curves on top of each other: a compiled training is the same training, up to the order in which a program
# adds. What each of them costs to begin with, and what it saves, is on the right. (Eager went first, and had each
# operator compiled, once; compiled backward found those of forward there.) Now let us see what was made.
#
# ## The tape, and where it is cut
#
# Backward visits the nodes of the tape in an order that PyTorch fixes: a node after all that feed it, and among those
# that are ready the one recorded last. A hook on each node tells us that order. (On a tape of its own, of which only
# the order is wanted. Leaves' `AccumulateGrad` is left out here: leaves get their gradients when a program has run.)


# %%
x, y = images[xgrad.arange(BATCH)], labels[xgrad.arange(BATCH)]


def order_of(loss):
    """The names of the nodes, in the order in which backward runs them."""
    order, seen, stack = [], set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        node.register_prehook(lambda _, node=node: order.append(node.name()))
        stack += [child for child, _ in node.next_functions]
    loss.backward()
    return [re.sub(r"^torch::autograd::|Backward\d+$", "", name) for name in order if "Accumulate" not in name]


names = order_of(loss_of(x, y, new_weights()))
print(len(names), "nodes:", *names[:14], "...")

# %% [markdown]
# A compiled backward goes through the same nodes in the same order, but does not run them: it *notes* them. When it
# has noted enough, or when somebody has to see a value, it has the noted nodes evaluated as one program. Enough is 64
# nodes, unless you say otherwise; our tape would be a single program. For there to be something to see, we ask for 6.
#
# `compiled_backward.programs()` lists the programs there are. To see which one runs when, we put a scribe in front of
# each, and run backward once more.

# %%
weights = new_weights()


def backward(size=6, **options):
    with compiled_backward(segment=size):
        loss_of(x, y, weights, **options).backward()


def segments_of(run):
    """The programs that a backward runs, in order."""
    run()  # now they are there
    ran = []
    kept = {program: dict(program.traces) for program in compiled_backward.programs()}
    for program, traces in kept.items():
        for key, function in traces.items():
            program.traces[key] = lambda *args, p=program, f=function: ran.append(p) or f(*args)
    run()
    for program, traces in kept.items():
        program.traces.update(traces)
    return ran


compiled_backward.clear()
compiled_backward.reset()
plain = segments_of(backward)
print(*plain, sep="\n")

# %% [markdown]
# Some programs run more than once. Here is the whole tape, each segment a row, and equal colours where segments share
# a program:

# %%
# Light enough to be written on, and told apart by all eyes; when they are used up, they come again with stripes.
PALETTE = ["#7cc4ea", "#f0b345", "#58c4a0", "#f4eb80", "#dca6c6", "#e58a4f", "#5f9fd0"]


def looks_of(*tapes):
    """How a program is filled: a colour of its own if it is used more than once, else grey."""
    used = Counter(program for tape in tapes for program in tape)
    looks, shared = {}, 0
    for program, times in used.items():
        looks[program] = {"facecolor": "#dddddd"}
        if times > 1:
            rounds, place = divmod(shared, len(PALETTE))
            looks[program] = {"facecolor": PALETTE[place], "hatch": "//" * rounds}
            shared += 1
    return looks


def draw_tape(segments):
    widest = max(len(program.names) for program in segments)
    _, ax = plt.subplots(figsize=(1.0 + 0.88 * widest, 0.5 * len(segments)), layout="constrained")
    looks, numbers = looks_of(segments), {}
    for row, program in enumerate(segments):
        numbers.setdefault(program, len(numbers) + 1)
        ax.text(-0.2, -row, f"program {numbers[program]}", ha="right", va="center", fontsize=9)
        for column, name in enumerate(program.names):
            box = plt.Rectangle((column, -row - 0.36), 0.94, 0.72, edgecolor="#444444", **looks[program])
            ax.add_patch(box)
            label = re.sub(r"Backward\d+$", "", name).replace("EntropyLoss", "\nEntropyLoss")
            ax.text(column + 0.47, -row, label, ha="center", va="center", fontsize=8)
    ax.set(xlim=(-1.4, widest), ylim=(-len(segments) + 0.4, 0.6))
    ax.set_title("backward runs from left to right, row by row; a row is a segment", fontsize=10, loc="left")
    ax.axis("off")
    plt.show()


draw_tape(plain)

# %% [markdown]
# `CopySlices` is the node of a write through a view; there is one for each time step. The first segments begin the
# tape (the loss, and a first look at the pattern), the last ones end it, and between them one program serves one time
# step after the other. That is the trick by which a deep stack of equal layers is compiled once, and a segment *ends*
# where it does for its sake: at the first node, six or more nodes on, that comes in the company in which the last end
# came.
#
# ### A hook
#
# A hook has to be called when its gradient is there, with all that ran before it done, and what it returns goes on
# from there. So a hook is a *border*: what was noted is evaluated, the hook is called, its node is run by itself, and
# noting goes on. `hook_at` hooks some of the states.

# %%
tapes = {"no hook": (plain, [])}
for title, at in (("a hook on state 4", [4]), ("hooks on states 2 and 6", [2, 6])):
    # The states' nodes are the Tanhs, the last state's first.
    tanhs = [i for i, name in enumerate(names) if name == "Tanh"]
    tapes[title] = segments_of(lambda at=at: backward(hook_at=at)), [tanhs[STEPS - 1 - t] for t in at]
tapes["no hook, segment=12"] = segments_of(lambda: backward(12)), []
tapes["no hook, segment=64"] = segments_of(lambda: backward(64)), []


def draw_strips(tapes):
    _, ax = plt.subplots(figsize=(11, 0.75 * len(tapes) + 0.7), layout="constrained")
    looks, numbers = looks_of(*(segments for segments, _ in tapes.values())), {}
    for row, (segments, own) in enumerate(tapes.values()):
        place = 0

        def hooks(row=row, own=own):
            nonlocal place
            while place in own:
                ax.add_patch(plt.Rectangle((place, -row - 0.36), 1, 0.72, facecolor="k"))
                ax.text(place + 0.5, -row - 0.02, "hook", color="w", fontsize=8, rotation=90, ha="center", va="center")
                place += 1

        for program in segments:
            hooks()
            numbers.setdefault(program, len(numbers) + 1)
            size = len(program.names)
            box = plt.Rectangle((place, -row - 0.36), size, 0.72, edgecolor="k", lw=1.2, **looks[program])
            ax.add_patch(box)
            for i in range(1, size):
                ax.plot([place + i] * 2, [-row - 0.36, -row + 0.36], color="w", lw=0.8)
            label = ax.text(place + size / 2, -row, numbers[program], ha="center", va="center", fontsize=9)
            label.set_bbox({"facecolor": looks[program]["facecolor"], "edgecolor": "none", "pad": 1.2})
            place += size
        hooks()
    ax.set(
        xlim=(0, len(names)), ylim=(-len(tapes) + 0.5, 0.5), xlabel="nodes, in the order in which backward runs them"
    )
    ax.set_yticks(-np.arange(len(tapes)), list(tapes))
    ax.tick_params(left=False)
    ax.spines[:].set_visible(False)
    ax.set_title("numbers are programs; a colour that comes again is a program that is used again; grey: used once",
                 fontsize=10, loc="left")  # fmt: skip
    plt.show()


draw_strips(tapes)

# %% [markdown]
# Around a hook there are new programs, for there the tape is cut elsewhere; further on it falls into step again and
# finds the programs that are there. Gradients are the same whatever the cuts, and a hook sees what it sees in eager.
#
# Hooks are not the only borders. A custom `autograd.Function` is Python code, and runs in its place; so does the
# unpack hook of a saved tensor (checkpointing and offloading, the second notebook), when its point is reached and not
# earlier. What happened, and how often, the metrics say:

# %%
for key, value in compiled_backward.metrics().items():
    if key != "misses":
        print(f"{key:10} {value}")
print(*compiled_backward.metrics()["misses"][:6], "...", sep="\n  ")

# %% [markdown]
# A *hit* is a segment whose program was there. A *miss* is a structure that was not, and the list tells for each what
# is different from the program most like it: that is the place to look when a second step compiles again.
#
# ## Reading a segment
#
# A program prints itself, as the StableHLO that xgrad made or, `optimized=True`, as what XLA made of that. Here is
# the program that served the time steps. (We keep the entry computation, and leave out where each line comes from.)


# %%
def entry(text, width=132):
    """The lines of an HLO module's entry computation, without layouts and metadata."""
    found = []
    for line in text[text.index("\nENTRY") :].strip().splitlines():
        line = re.sub(r"(, )?(metadata|backend_config|frontend_attributes)=\{.*", "", line)
        line = re.sub(r"(?<=\])\{[\d,]*\}", "", line).replace("%", "")
        found.append(line if len(line) <= width else line[: width - 3] + "...")
    return found


repeated = Counter(plain).most_common(1)[0][0]
print(*repeated.names)
print(*entry(repeated.as_text(optimized=True)), sep="\n")

# %%
xgrad.viz.program(repeated.as_text(optimized=True))

# %% [markdown]
# First come the parameters: what the nodes have saved, and the gradients that arrive. One is a lone number, `s32[]`:
# which row of the buffer this time step wrote. A number that is an argument may be another one next time; were it a
# constant, each time step would need a program of its own. Then there are a few instructions for all six nodes:
# matrix products, and *fusions* around them. What stands inside of a fusion, `tanh`'s derivative or the sum of two
# gradients, is computed element by element, and what is in between never goes to memory. (A
# `conditional` with equal branches, if you find one, keeps apart what XLA for a CPU had better not fuse.) At the end,
# the gradients that leave.
#
# ### Why a view that was written fits in
#
# In PyTorch a view is an address into memory, and backward of `states[t].copy_(h)` has to work on that memory with
# strides, which no program of pure functions has. Here a view is a *chain* of view operations: `states[t]` is
# "transpose, take row t" of the buffer. `CopySlices` replays the chain on the gradient of the buffer, to get the
# gradient of what was written, and writes zeros there, since the old values were lost. Both are functions of arrays:
# a slice and an update, just like any other formula. In the program as it was before XLA optimized it, they can be
# seen:

# %%
stablehlo = repeated.as_text()
for line in dict.fromkeys(re.findall(r"stablehlo\.dynamic_\w*slice.*", stablehlo)):
    print(re.sub(r" loc\(.*", "", line), end="\n\n")

# %% [markdown]
# ## The whole step
#
# Now the other program, that of `xgrad.compile`. For the same arguments as a call it can tell what it does, without
# being run:

# %%
text = step.as_text(x, y)
cost, memory = step.cost_analysis(x, y), step.memory_analysis(x, y)
opcodes = Counter(re.search(r" = .*? ([a-z][a-z-]*)\(", line)[1] for line in entry(text, 10**6)[1:-1])
print(f"{sum(opcodes.values())} instructions:", ", ".join(f"{n} {name}" for name, n in opcodes.most_common(6)), "...")
print(f"{cost['flops']:,.0f} floating point operations, {cost['bytes accessed']:,.0f} bytes read and written")
for what in ("argument", "output", "alias", "temp"):
    print(f"{what:8}{getattr(memory, what + '_size_in_bytes'):10,} bytes")

# %% [markdown]
# *Arguments* are the batch, the weights and the velocities. *Output* is nearly as much: a program can't change
# anything, it returns new weights. But nearly all of it is *alias*: the new weights lie where the old ones were.
# xgrad *donates* a buffer that it is about to replace, if nobody else holds it, so that in-place is in place again.
# The first line of the program has it in writing:

# %%
for result, argument in re.findall(r"\{(\d+)\}: \((\d+), \{\}", text.splitlines()[0]):
    print(f"result {result} lies where argument {argument} was")

# %% [markdown]
# *Temporaries* are what the program needs in between: what eager keeps on its tape, minus what fusion makes
# unnecessary.
#
# The program's end is the update of the weights. A line names its result, its shape, and what it is computed from:

# %%
print(*entry(text)[-12:], sep="\n")

# %% [markdown]
# ## When it is traced again
#
# The trace relied on some things: on shapes and dtypes, on which tensors require grad, and on the value of every
# Python number that the function saw, for a number is a constant of the program. Each call checks. If something
# differs, the function is traced anew, the old program stays for the old case, and `metrics().reasons` tell what it
# was.


# %%
@xgrad.compile
def scaled(x, factor):
    return (x * factor).sum()


scaled(x, 2.0)
scaled(x, 3.0)  # another number
scaled(x[:5].clone(), 3.0)  # another shape
print(*scaled.metrics().reasons, sep="\n")

# %% [markdown]
# The remedies stand there, too. (`dynamic={"x": 0}` pads what varies to a few sizes, and checks that padding does no
# harm.) A tensor is an input, and may have any value:

# %%
scaled.reset()
for factor in (2.0, 3.0, 4.0):
    scaled(x, xgrad.tensor(factor))
print(scaled.metrics())
print(step.metrics())

# %% [markdown]
# The training was traced once, too; what was left of an epoch, a smaller batch, was left out for that reason. And a
# batch was fetched by its indices, `images[batch]`, which makes a new tensor: `images[k : k + BATCH]` is a *view*,
# and what a program relies on includes which view its argument is. A `clone()` makes it a tensor like any other.
#
# What can't be traced is a question about a value, since there is none. The error names the line:


# %%
@xgrad.compile
def cautious(x):
    loss = (x * x).sum()
    if loss.item() > 1e6:
        return loss * 0
    return loss


try:
    cautious(x)
except RuntimeError as error:
    print(error)

# %% [markdown]
# ## Checkpoints in one program
#
# A checkpoint forgets what its layers saved, and runs them again in backward. In a program that is not as simple as
# it sounds: XLA sees the same computation twice, and merges what is equal. (The second notebook tells how xgrad keeps
# the two apart.) The proof is in the temporaries. Sixteen layers, plainly and in checkpoints:

# %%
from xgrad.utils.checkpoint import checkpoint

random = np.random.default_rng(0)
deep = [xgrad.tensor((random.standard_normal((64, 64)) / 6).astype("float32"), requires_grad=True) for _ in range(16)]
rows = xgrad.tensor(random.standard_normal((4096, 64)).astype("float32"))


def layers(h, weights):
    for w in weights:
        a = h @ w
        h = a * a.sigmoid()
    return h


def gradients(size):
    def run(rows):
        h = rows
        for i in range(0, len(deep), size or len(deep)):
            part = deep[i : i + size] if size else deep
            h = checkpoint(layers, h, part, use_reentrant=False) if size else layers(h, part)
        return xgrad.autograd.grad(h.square().mean(), deep)

    return xgrad.compile(run)


sizes = [0, 1, 2, 4, 8]
runs = {size: gradients(size) for size in sizes}
temporaries = [runs[size].memory_analysis(rows).temp_size_in_bytes / 2**20 for size in sizes]
operations = [runs[size].cost_analysis(rows)["flops"] / 1e9 for size in sizes]
expected, found = runs[0](rows), runs[4](rows)
print("farthest gradient:", max(float((e - f).abs().max().item()) for e, f in zip(expected, found)))

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained", sharey=True)
kinds = ["none"] + [f"of {size} layer{'s' * (size > 1)}" for size in sizes[1:]]
for ax, values, title, colour, form in (
    (axes[0], temporaries, "temporaries, MB", BLUE, "%.1f"),
    (axes[1], operations, "operations, $10^9$", ORANGE, "%.2f"),
):
    ax.bar_label(ax.barh(kinds, values, color=colour, height=0.6), fmt=form, padding=3)
    ax.set_title(title, fontsize=10, loc="left")
    ax.margins(x=0.12)
    ax.set_xticks([])
    ax.spines[["top", "right", "bottom"]].set_visible(False)
axes[0].invert_yaxis()
axes[0].set_ylabel("checkpoints")
plt.show()

# %% [markdown]
# Less memory for more operations: that is the bargain, and it holds in the program as it does in eager. Nothing about
# the function had to be said differently.
#
# ## The next process
#
# What this process compiles, the next one need not: the *compile cache* keeps programs in a folder, `~/.cache/xgrad`
# unless XGRAD_COMPILE_CACHE in the environment names another one (0: none). Two processes, one after the other, with
# a new folder:

# %%
script = """
import time
import numpy as np
import xgrad

w = xgrad.tensor(np.eye(64, dtype="float32"), requires_grad=True)
x = xgrad.tensor(np.ones((8, 64), dtype="float32"))

@xgrad.compile
def step(x):
    h = x
    for _ in range(60):
        h = (h @ w).tanh()
    h.sum().backward()
    with xgrad.no_grad():
        w.sub_(w.grad, alpha=0.1)
        w.grad = None

start = time.perf_counter()
step(x)
print(f"first step: {time.perf_counter() - start:.2f} s")
"""
with tempfile.TemporaryDirectory() as folder:
    environment = {**os.environ, "XGRAD_COMPILE_CACHE": folder}
    for process in "first", "second":
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        print(f"{process} process, {done.stdout.strip()}")

# %% [markdown]
# The second process still traces, in Python, but compiles nothing.
#
# ## Which one?
#
# * *Eager* while you look for something: each line runs when it stands there, and each value can be printed.
# * *Compiled backward* where forward has to stay Python (its `if`s, its prints, its shapes that change), and where
#   hooks and custom Functions have to see what they see. It is a block around code that you need not know.
# * *`xgrad.compile`* where a step is a function of tensors. It saves most.
#
# Where to go from here:
#
# * `XGRAD_LOG=compile` in the environment tells on stderr what is compiled, and why, for both;
# * `compiled_backward(dump=folder)` writes the HLO of each new program into a folder;
# * `python -m xgrad demo --compiled` trains a larger network in both ways, with Adam inside of the step;
# * `xgrad/engine/programs/run.py` is where the tape is cut, `xgrad/compiler/` where a function is traced.
