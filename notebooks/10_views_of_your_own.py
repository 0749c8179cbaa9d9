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
# # Views of your own: rules, laws, and three ways to alias
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/10_views_of_your_own.ipynb)
#
# A chip without strides must say what a view is there. Does `x.t()` cost nothing, because the chip reads through
# strides? Is `x[2:5]` a copy? Has the chip an instruction of its own for a diagonal? And when somebody writes to a
# view, when does the base hear of it? This notebook answers each question in a declaration, and has the answers
# checked.

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

import xgrad

# %% [markdown]
# ## A rule for each view operation
#
# Three chips run the same lines. The first replays views, as XLA's devices do. On the second a transpose is free. On
# the third a slice is a copy: what is written to it reaches nobody, and the report has the line.

# %%
replaying = xgrad.Backend("npu")
free = replaying.replace(views={"transpose": "free"})
copying = replaying.replace(views={"slice": "copy"})


def lines(chip):
    x = xgrad.arange(12.0, device=chip).reshape(4, 3).clone()
    turned = x.t()
    with chip.report() as report:
        product = turned @ x  # reads a transpose
        part = x[1:3]
        part.mul_(10)  # writes to a slice
        total = x.sum().item()
    found = report.as_dict()
    unseen = found["writes that an alias would have shown"]
    print(f"sum {total:5.0f}, launches {report.launches}, writes unseen {[each['count'] for each in unseen]}")
    return product


for chip in (replaying, free, copying):
    lines(chip)

# %% [markdown]
# PyTorch's sum is 363. The chip whose slices are copies says 66, and its report says why.
#
# ## A rule of your own
#
# A view is a *lens*: `read` takes the part out of the root, `write` puts a new part in. Its gradient is the transpose
# of `read`. All that PyTorch does with views follows from these three functions, so a backend may bring them for one
# operation: writes in place, `CopySlices`, tangents, hooks and `vmap`, lazily and compiled, go through them.
#
# This chip has a diagonal unit. Its masks are constants, and it never scatters.


# %%
def mask(root, offset):
    rows, columns = root.shape[-2:]
    return jnp.arange(columns)[None, :] == jnp.arange(rows)[:, None] + offset


def read(root, offset, dim1, dim2):
    root = jnp.moveaxis(root, (dim1, dim2), (-2, -1))
    first = max(0, -offset)
    length = max(0, min(root.shape[-2] - first, root.shape[-1] - max(0, offset)))
    kept = jnp.where(mask(root, offset), root, 0)  # one element in each of these rows
    return kept.sum(-1, dtype=root.dtype)[..., first : first + length]


def write(root, new, offset, dim1, dim2):
    root = jnp.moveaxis(root, (dim1, dim2), (-2, -1))
    first = max(0, -offset)
    rows = jnp.pad(new, [(0, 0)] * (new.ndim - 1) + [(first, root.shape[-2] - first - new.shape[-1])])
    root = jnp.where(mask(root, offset), rows[..., None], root)
    return jnp.moveaxis(root, (-2, -1), (dim1, dim2))


def adjoint(grad, root, *args):
    return write(jnp.zeros(root.shape, grad.dtype), grad, *args)


unit = xgrad.Backend("npu", views={"diagonal": xgrad.ViewRule(read, write, adjoint)}, without_hlo=["scatter", "gather"])

x = xgrad.ones(3, 3, device=unit, requires_grad=True)
y = x.clone()
y.diagonal().mul_(xgrad.tensor([1.0, 2.0, 3.0], device=unit))
loss = (y * y).sum()
loss.backward()
print(x.grad)
xgrad.viz.graph(loss, params={"x": x})

# %% [markdown]
# The graph is PyTorch's: the write is a `CopySlices`, and the multiplication is inside.
#
# ## The laws
#
# How does one know that the three functions fit together? A lens has laws: a read gives what was written; to write
# what is there changes nothing; the last of two writes wins; the rest stays; the adjoint transposes the read.
# `conform` tries them on random roots and arguments.

# %%
report = xgrad.conformance.run(unit, operators="diagonal", dtypes=["float32", "bfloat16"])
print("all right:", report.ok)
report

# %% [markdown]
# Now a mistake: the write adds where it should replace. A program that writes into zeros, once, never sees it. The laws
# that are broken are named, each with the smallest root and arguments that were found.


# %%
def adding(root, new, *args):
    return root + adjoint(new, root, *args)


wrong = unit.replace(views={"diagonal": xgrad.ViewRule(read, adding, adjoint)})
(row,) = xgrad.conformance.run(wrong, operators="diagonal", dtypes=["float32"]).rows
for check in row.cells["float32"].checks:
    if check.state == "wrong" and check.why.startswith("diagonal"):
        print(f"{check.name}: {check.why}\n")

# %% [markdown]
# ## Three answers to "when does the base hear of it?"
#
# PyTorch writes into memory that all views share. XLA has no such memory, so somebody must decide: write through at
# once; keep the writes until somebody reads, which is *functionalization*, as PyTorch/XLA has it; or write into new
# memory. Values, gradients and versions are PyTorch's under each; what it costs is not.


# %%
def many_writes(x):
    for i in range(16):
        x[i] = i
    return x.sum()


def writes_and_reads(x):
    for i in range(16):
        x[i].add_(1)
        total = x.sum()
    return total


POLICIES = "write_through", "regenerate", "copy_on_write"
print(f"{'':34}launches  programs  MB accessed  KiB at most")
for program in (many_writes, writes_and_reads):
    for aliasing in POLICIES:
        npu = replaying.replace(aliasing=aliasing)
        x = xgrad.ones(1024, 64, device=npu)
        with npu.report() as report:
            total = program(x).item()
        programs, peak = len(report.as_dict()["programs"]), report.as_dict()["peak memory"] / 1024
        moved = report.bytes_accessed / 1e6
        counts = f"{report.launches:8}{programs:10}{moved:13.2f}{peak:13.1f}"
        print(f"{program.__name__:18}{aliasing:16}{counts}   sum {total:.0f}")

# %% [markdown]
# Sixteen writes that nobody reads in between are one launch if they wait. A loop that writes *and* reads pays for
# waiting: each turn reads the part, computes the new value, puts it back and reads the base. And copies move the whole
# array each time. So there is no best policy, there are programs; `xgrad.compare` puts all of them, and geometry,
# beside each other for yours:

# %%
policies = [replaying.replace(aliasing=aliasing) for aliasing in POLICIES]
xgrad.compare(writes_and_reads, xgrad.ones(64, 64), backends=[*policies, replaying.replace(strides=True)], repeats=3)

# %% [markdown]
# From here: [Views of a backend](https://github.com/xgrad/xgrad/blob/main/docs/concepts/backend_views.md) has all rules
# and laws, [Faults and passes](https://github.com/xgrad/xgrad/blob/main/docs/concepts/faults_and_passes.md) what else a
# backend may declare, and notebook 07 trains a network on a declared chip.
