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
# # Views without strides
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/01_views_without_strides.ipynb)
#
# In PyTorch a view is a pointer, sizes and strides: two tensors look at one piece of memory, and a write through the
# one is seen by the other. The arrays of XLA, and so of JAX, have no strides that a program could set, and they are
# immutable. Yet PyTorch's in-place operations, and the part of its autograd that differentiates them, `CopySlices`,
# stand on exactly these two things.
#
# xgrad puts **view chains** in their place. This notebook builds the idea up, from one tensor to the gradient of
# an in-place write through a view of a view, and ends with the two ways in which such a gradient can be found, side
# by side. It runs on a CPU, a GPU or a TPU.

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

import xgrad

xgrad.devices()

# %% [markdown]
# ## One tensor
#
# A tensor that nobody shares *is* its JAX array. Ask for its strides and you get an answer, but nothing is stored in
# that order for you to rely on: strides are *derived*, as if the array were laid out row by row.

# %%
base = xgrad.arange(24.0).reshape(4, 6)
base.stride(), base.storage_offset(), base.is_contiguous()

# %% [markdown]
# Take a view. It shares the storage: a write through it shows in the base.

# %%
column = base.t()[2]
column.mul_(-1)
base

# %%
column.storage_id == base.storage_id, column.stride(), column.storage_offset()

# %% [markdown]
# Here is what just happened. The grid is the base; the numbered cells are what the view shows, in its own order.


# %%
def draw_view(ax, shape, view, title):
    """The base as a grid; the cells that `view` shows are coloured and numbered in the view's order."""
    rows, columns = shape
    cells = view(xgrad.arange(rows * columns).reshape(rows, columns)).numpy().ravel()
    for cell in range(rows * columns):
        row, column = divmod(cell, columns)
        seen = np.flatnonzero(cells == cell)
        colour = plt.cm.viridis(0.35 + 0.6 * seen[0] / max(len(cells) - 1, 1)) if len(seen) else "#eeeeee"
        ax.add_patch(plt.Rectangle((column, row), 0.94, 0.94, color=colour))
        ax.text(column + 0.47, row + 0.5, ",".join(map(str, seen)), ha="center", va="center", fontsize=9)
    ax.set_xlim(0, columns)
    ax.set_ylim(rows, 0)
    ax.set_aspect("equal")
    ax.axis("off")
    ax.set_title(title, fontsize=10, family="monospace")


figure, axes = plt.subplots(1, 3, figsize=(11, 2.6), layout="constrained")
draw_view(axes[0], (4, 6), lambda b: b.t()[2], "b.t()[2]")
draw_view(axes[1], (4, 6), lambda b: b[1:, ::2].t(), "b[1:, ::2].t()")
draw_view(axes[2], (4, 6), lambda b: b.diagonal(), "b.diagonal()")
plt.show()

# %% [markdown]
# ## A view is a chain
#
# Without strides, what *is* the view `base.t()[2]`? The list of the operations that made it. `ViewChain` is that list,
# over a root of a given shape and dtype.

# %%
from xgrad.views.chain import ViewChain

root = ViewChain.root((4, 6), np.dtype("float32"))
chain = root.view("t").view("select", 0, 2)
chain

# %% [markdown]
# The transposition is gone, and the row `2` of the transposed matrix has become column `2` of the root. Chains are kept
# in a **normal form**: slices of slices merge, permutations merge, what does nothing vanishes, and a slice moves
# towards the root, past a permutation. So equal views are equal chains, and since chains are interned, they are
# *one object*.

# %%
chain is root.view("select", 1, 2), root.view("t").view("t") is root

# %% [markdown]
# A chain that grows in a loop does not grow. Here a thousand views of views are one slice:

# %%
long = ViewChain.root((1001, 6), np.dtype("float32"))
for _ in range(1000):
    long = long.view("narrow", 0, 1, long.shape[0] - 1)
long

# %% [markdown]
# ## Replay, and write back
#
# A chain has two programs. `replay` takes the root's array to the view's. `write_back` takes the root's array and a new
# value of the view to a new root array. Both are pure functions of immutable arrays, which is what XLA wants.

# %%
array = jnp.arange(24.0).reshape(4, 6)
chain.replay(array)

# %%
chain.write_back(array, jnp.full(4, -1.0))

# %% [markdown]
# An in-place operation through a view is then: replay, compute, write back; the storage takes the new root, and its
# *generation* goes up, so that every other alias replays its own chain when it is next read. All three steps are one
# compiled program, and if nobody else holds the root's buffer, XLA is given it to write into: the cost is that of the
# view, not that of the base.
#
# The start of a slice is an *operand* of the program, not a constant in it. A loop over `buffer[i]` compiles once:

# %%
rows = [root.view("select", 0, i) for i in range(4)]
rows[0].program is rows[3].program, rows[0].start_values, rows[3].start_values

# %% [markdown]
# ## Geometry
#
# There is a second way to say where a view's elements are: sizes, strides and offset, counted in a row-major root. Each
# view operation knows how it changes them, so the geometry follows from the chain.

# %%
strided = root.view("narrow", 0, 1, 3).view("t")
strided, strided.geometry

# %% [markdown]
# Given a geometry, `as_strided` can read the view straight from the root, if the device had it. XLA's do not, so xgrad
# looks for slices and a transposition that read the same elements, and only where there are none takes a gather.

# %%
same = root.view("as_strided", (6, 3), (1, 6), 6)
print("recorded:", same)
print("runs as: ", same.lowered)

# %%
odd = root.view("as_strided", (3, 2), (7, 1), 0)  # the rows slide by seven: no slice does that
print("recorded:", odd)
print("runs as: ", odd.lowered)

# %% [markdown]
# ## The gradient of a write: CopySlices
#
# Now autograd. `base` was computed, `row` is a view of it, and is multiplied in place by `w`. The value that `base` had
# is gone; its gradient must be found all the same. `xgrad.viz.graph` draws the graph behind a tensor: the way that
# gradients will go, with their shapes. Before the write:

# %%
leaf = xgrad.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
w = xgrad.tensor([10.0, 100.0, 1000.0], requires_grad=True)

base = leaf.clone()
row = base[0]
xgrad.viz.graph([base, row], direction="right")

# %% [markdown]
# A dashed arrow leads from a view to its base. And after the write:

# %%
row.mul_(w)
xgrad.viz.graph([base, row], direction="right")

# %% [markdown]
# The write gave the *base* a new history. `CopySlices` keeps the multiplication and the chain from base to row. When
# the base's gradient arrives, it
#
# 1. reads the row out of it (replay),
# 2. lets the multiplication's own backward work on that slice: one part goes on to `w`, the other is the gradient of
#    the row as it was,
# 3. writes that part back into the base's gradient, in the place of the row (write back), and passes it on.
#
# The part of the gradient that the write did not touch goes through as it came.

# %%
base.sum().backward()
leaf.grad

# %%
w.grad

# %% [markdown]
# ## Stale views
#
# The second graph shows another thing. `row` was a view *before* the write, with a `grad_fn` that led past
# it. Afterwards its `grad_fn` is made anew, from the base's present history. That holds for every view of the same
# storage, and it is done when `grad_fn` is next looked at. A version number tells when it is due.

# %%
base = leaf.detach().requires_grad_().clone()
row, column = base[0], base[:, 1]
print("before:", column.grad_fn.next_functions[0][0].name(), "version", column._version)
row.mul_(w.detach())
print("after: ", column.grad_fn.next_functions[0][0].name(), "version", column._version)

# %% [markdown]
# The values of views get old in the same way. `xgrad.viz.storage` draws who shares the storage of a tensor, the chain
# by which each of them reads it, and which of them are stale: they read the root again when they are next asked for.

# %%
_ = column.tolist()  # read before the next write, and so stale after it
row.mul_(2)
xgrad.viz.storage(base)

# %% [markdown]
# ## Two paths
#
# How is a stale view's `grad_fn` made anew, and how does `CopySlices` find its slice? PyTorch has two answers, and
# so has xgrad:
#
# * **replay** the recorded view operations: what a device without strides must do;
# * **geometry**: one `as_strided` with the view's sizes, strides and offset: what PyTorch does on CPU and CUDA.
#
# A view remembers the path that it was made with.

# %%
for path in ("replay", "geometry"):
    with xgrad.views.tracking(path):
        base = leaf.detach().requires_grad_().clone()
        view = base.t()[1:]
    base.mul_(2.0)  # the view is stale now
    print(f"{path:9}", view.grad_fn.name())

# %% [markdown]
# Both must give the same gradient, always. The next case is where PyTorch's two paths part. `v` is a view; `v.t_()`
# transposes `v` *in place*: it changes no element, only which place of `v` shows which element. Then `v` is written.

# %%
W = xgrad.tensor([[1.0, 10.0], [100.0, 1000.0]])
cube = xgrad.ones(2, 2, 2, requires_grad=True)

for path in ("replay", "geometry"):
    with xgrad.views.tracking(path):
        b = cube.clone()
        v = b[0]
        v.t_()
        v.mul_(W)
        (gradient,) = xgrad.autograd.grad(b.sum(), cube)
    print(path, gradient[0], sep="\n")

# %% [markdown]
# `v[i, j]` is `b[0, j, i]`, so the gradient of `b[0]` must be `W` transposed, as both paths say. PyTorch's replay path
# forgets the `t_()` and returns `W` itself, without an error: an in-place view operation has to extend the chain that
# autograd keeps, too.
#
# Some writes are refused, because no gradient of them could be right. An expanded view shows one element in several
# places; so does an `unfold` whose windows overlap (PyTorch accepts that one).

# %%
for overlapping in (xgrad.ones(3).expand(2, 3), xgrad.arange(5.0).unfold(0, 3, 1)):
    try:
        overlapping.mul_(2)
    except RuntimeError as error:
        print(type(error).__name__, error, sep=": ")

# %% [markdown]
# ## Side by side
#
# `xgrad.compare` runs a function and its gradients under both paths, on fresh copies of the inputs, and reports what is
# equal, which nodes there are, and what XLA made of it all: each view's programs, and the whole of forward and backward
# traced into one program.


# %%
def sweep(x, w):
    """Write a few views of one buffer, one after the other."""
    x = x.clone()
    x[0].mul_(w)
    x.t()[1:3].add_(w[:2, None])
    x.diagonal().tanh_()
    return x * x


xgrad.manual_seed(0)
result = xgrad.compare(sweep, xgrad.randn(4, 4, requires_grad=True), xgrad.randn(4, requires_grad=True))
result

# %%
result.plot()
plt.show()

# %% [markdown]
# Wherever a view's geometry is slices and a transposition, the two paths run the very same programs. They part at the
# diagonal: as a chain it is a `Diagonal`, as a geometry it is strides of five, which no slice of a 4x4 array has.

# %% [markdown]
# ## What it costs
#
# A write through a view costs what the view costs, because the storage gives its buffer to XLA whenever it provably
# holds it alone. The base here grows a hundredfold:

# %%
import time


def write_time(elements, writes=200):
    """The time of one write of 16 elements into a base of `elements`, of many one after the other."""
    buffer, new = xgrad.zeros(elements), xgrad.ones(16)
    view = buffer[32:48]
    for _ in range(2):  # the first one compiles
        start = time.perf_counter()
        for _ in range(writes):
            view.copy_(new)
        buffer[0].item()  # waits for them
    return (time.perf_counter() - start) / writes


small, large = write_time(10**5), write_time(10**7)
print(f"a write into 10^7 elements takes {large / small:.2f} times one into 10^5")

# %% [markdown]
# That is the whole idea: a storage that owns one immutable array, chains in normal form that say where a view lies in
# it, two programs for each, and one node, `CopySlices`, that uses both. Where to go from here:
#
# * `python -m xgrad demo` trains a recurrent network whose states are written in place through views;
# * `python -m xgrad compare FILE.py:function` compares the paths on a function of your own;
# * `xgrad/views/` and `xgrad/engine/copy_slices.py` are the code of this notebook.
