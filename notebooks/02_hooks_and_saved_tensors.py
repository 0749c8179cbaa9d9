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
# # Hooks and saved tensors
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/02_hooks_and_saved_tensors.ipynb)
#
# Training needs more memory than inference for one reason: backward needs values that forward computed, and somebody
# has to keep them until then. In PyTorch, and so in xgrad, that somebody is the graph, and you may have a word in
# it: with *hooks on saved tensors* you decide what is kept in a tensor's place, and how it comes back.
#
# This notebook looks at what a network keeps, byte by byte, and then keeps less: in half precision, in host memory,
# and not at all, which is what checkpointing is. Everything is measured, on whatever device it runs.

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
import contextlib
import functools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import xgrad

xgrad.devices()

# %% [markdown]
# ## What is saved
#
# A product needs both of its factors for its gradient, a sum needs nothing, `exp` needs its own result. Each node
# of the graph has what it saved as attributes, under PyTorch's names.

# %%
x = xgrad.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = (x * 2 + 1).exp() * x
node = y.grad_fn
print(node.name(), node._saved_self, node._saved_other)
node = node.next_functions[0][0]
print(node.name(), node._saved_result)

# %% [markdown]
# A drawing has it all at once, with bytes:

# %%
xgrad.viz.graph(y)

# %% [markdown]
# A hook sees each of these as it is saved. `saved_tensors_hooks(pack, unpack)` is a block in which every tensor that an
# operation saves goes through `pack`; whatever `pack` returns is kept in its place, and when backward gets to the node,
# `unpack` has to turn it back into a tensor. Here both only tell that they were called:


# %%
def pack(tensor):
    print("  pack  ", tensor)
    return tensor


def unpack(packed):
    print("  unpack", packed)
    return packed


with xgrad.autograd.graph.saved_tensors_hooks(pack, unpack):
    print("forward")
    y = (x * 2 + 1).exp() * x
print("backward")
y.sum().backward()

# %% [markdown]
# The order is worth a look: last saved, first unpacked. And `exp`'s result comes twice, once because `exp` saves its
# result, once because the product saves its factor.

# %% [markdown]
# Here is a backward to click through, without running it: what is ready, which hooks are called, what is released, and
# which nodes wait for a second gradient. (The arrow keys work too.)

# %%
y = (x * 2 + 1).exp() * x
y.register_hook(lambda grad: grad.clamp(max=1))
xgrad.viz.backward(y.sum())

# %% [markdown]
# ## A network, and its bytes
#
# Twelve layers with SiLU activations, written out: `a * a.sigmoid()`. An activation is made to be one megabyte. (The
# weights are small beside that, and are there anyway.)

# %%
LAYERS, WIDTH, BATCH = 12, 128, 2048

random = np.random.default_rng(0)
weights = [
    xgrad.tensor((random.standard_normal((WIDTH, WIDTH)) * (2 / WIDTH) ** 0.5).astype(np.float32), requires_grad=True)
    for _ in range(LAYERS)
]
data = xgrad.tensor(random.standard_normal((BATCH, WIDTH)).astype(np.float32))

print(f"an activation has {data.numel() * 4 / 2**20:.0f} MB, all weights {LAYERS * WIDTH * WIDTH * 4 / 2**20:.2f} MB")

# %% [markdown]
# JAX knows which arrays are alive. Their sum, before and after, is what a piece of code holds on to; asked for again
# and again, it draws a curve. `Meter` does the asking: after each layer in forward, and by a *tensor hook* on each
# layer's output in backward. (`register_hook` calls the hook with the gradient when that arrives.)

# %%
MEMORY = data.sharding.memory_kind  # the device's own, as opposed to host memory


def megabytes():
    """What lives in the device's memory now."""
    return sum(a.nbytes for a in jax.live_arrays() if a.sharding.memory_kind == MEMORY) / 2**20


class Meter:
    """A curve of the memory that a training step holds, beyond what was there before."""

    def __init__(self):
        self.curve, self.before = [], megabytes()

    def __call__(self, *_):
        self.curve.append(megabytes() - self.before)

    def turn(self):
        """Forward is over."""
        self()
        self.forward, self.kept = len(self.curve) - 1, self.curve[-1]

    @property
    def peak(self):
        return max(self.curve)


def layers(h, weights, meter):
    for w in weights:
        a = h @ w
        h = a * a.sigmoid()
        meter()
        if h.requires_grad:
            h.register_hook(meter)
    return h


def step(run, scope=contextlib.nullcontext):
    """One forward and backward, in a block of `scope`: the meter, and the weights' gradients."""
    meter = Meter()
    with scope():
        loss = run(data, weights, meter).square().mean()
    meter.turn()
    loss.backward()
    gradients = [w.grad for w in weights]
    for w in weights:
        w.grad = None
    return meter, gradients


plain, exact = step(layers)
print(f"kept by the graph: {plain.kept:.2f} MB, peak: {plain.peak:.2f} MB")

# %% [markdown]
# Three megabytes a layer, though its nodes save four tensors: the matrix product saves `h`, `sigmoid` its result, the
# product of the two `a`, and that same result again. Where two nodes save one array, it is there once. (The first
# matrix product saves `data`, which was there before.)


# %%
def draw(curves):
    _, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
    for name, meter in curves.items():
        steps = np.arange(len(meter.curve)) - meter.forward
        (line,) = ax.plot(steps, meter.curve, marker=".", label=f"{name}: peak {meter.peak:.1f} MB")
        ax.axhline(meter.peak, color=line.get_color(), linewidth=0.6, linestyle=":")
    ax.axvline(0, color="#888888", linewidth=0.8)
    top = 1.15 * ax.get_ylim()[1]
    ax.text(-0.3, 0.98 * top, "forward", ha="right", va="top", color="#666666")
    ax.text(0.3, 0.98 * top, "backward", ha="left", va="top", color="#666666")
    ax.set_ylim(0, top)
    ax.set_xlabel("layers before and after the turn")
    ax.set_ylabel("MB held")
    ax.legend(loc="upper right", fontsize=8)
    plt.show()


draw({"plain": plain})

# %% [markdown]
# A mountain: forward climbs, backward comes down, for a node lets go of what it saved as soon as it has run.

# %% [markdown]
# ## Half the precision
#
# The first idea: keep activations as `bfloat16`, compute with `float32`. Weights are leaves that require grad, and are
# better left alone: they are kept anyway, and packing would make a copy.


# %%
def narrow(tensor):
    """bfloat16 for what was computed in float32."""
    if tensor.dtype != xgrad.float32 or (tensor.is_leaf and tensor.requires_grad):
        return tensor
    return tensor.to(xgrad.bfloat16)


def widen(packed):
    return packed.to(xgrad.float32) if packed.dtype == xgrad.bfloat16 else packed


naive, _ = step(layers, lambda: xgrad.autograd.graph.saved_tensors_hooks(narrow, widen))
print(f"kept by the graph: {naive.kept:.2f} MB, plain: {plain.kept:.2f} MB")

# %% [markdown]
# That is a third less, not half. The sigmoid's result was one array for two nodes, and now each of them has a packed
# array of its own. (PyTorch does the same; it is easily overlooked.)
#
# So a pack hook that makes copies has to remember what it has packed. Tensors come and go, and a saved result comes as
# a tensor of its own, but the *array* behind them is one object, and JAX arrays are immutable, so a packed copy stays
# right. `jnp.asarray(tensor.detach())` is that array, not a copy of it.

# %%
import weakref


def shared(pack):
    """`pack`, called once for each array."""
    known = weakref.WeakValueDictionary()

    def once(tensor):
        array = jnp.asarray(tensor.detach())
        entry = known.get(id(array))
        if entry is None or entry.array() is not array:  # an id may be used again
            entry = known[id(array)] = Packed(array, pack(tensor))
        return entry

    return once


class Packed:
    """What a pack hook made of an array."""

    def __init__(self, array, value):
        self.array, self.value = weakref.ref(array), value


def half():
    return xgrad.autograd.graph.saved_tensors_hooks(shared(narrow), lambda packed: widen(packed.value))


halved, rounded = step(layers, half)
print(f"kept by the graph: {halved.kept:.2f} MB")

# %%
draw({"plain": plain, "bfloat16, one each": naive, "bfloat16, shared": halved})

# %% [markdown]
# Now it is half. The price is precision: the forward pass is exact, but gradients are computed from rounded values,
# and `bfloat16` has eight bits.


# %%
def error(gradients):
    """The relative error of each layer's gradient."""
    return [float(((g - e).norm() / e.norm()).item()) for g, e in zip(gradients, exact)]


print("relative error, first to last layer:", *(f"{e:.4f}" for e in error(rounded)))

# %% [markdown]
# ## Somewhere else
#
# The second idea: an accelerator's memory is dear, its host's is not. JAX has a name for host memory that a device can
# reach, `pinned_host`, and a sharding that says so; `jax.device_put` moves.

# %%
PINNED = "pinned_host"


def to_host(tensor):
    if tensor.is_leaf and tensor.requires_grad:
        return tensor.detach(), None
    array = jnp.asarray(tensor.detach())
    return jax.device_put(array, array.sharding.with_memory_kind(PINNED)), array.sharding


def from_host(packed):
    value, home = packed.value
    return value if home is None else xgrad.as_tensor(jax.device_put(value, home))


def away():
    return xgrad.autograd.graph.saved_tensors_hooks(shared(to_host), from_host)


def in_host_memory():
    return sum(a.nbytes for a in jax.live_arrays() if a.sharding.memory_kind == PINNED) / 2**20


offloaded, moved = step(layers, away)
with away():
    loss = layers(data, weights, lambda *_: None).mean()
print(f"kept on the device: {offloaded.kept:.2f} MB, in host memory: {in_host_memory():.2f} MB")
print("largest relative error:", max(error(moved)))
del loss

# %% [markdown]
# All of it is gone from the device, and nothing is lost but the time for the way. On a CPU the two memories are one and
# the same, of course, and only JAX's books tell them apart.
#
# You need not write this: `save_on_cpu(pin_memory=True)` does it, keeps shardings, finds other ways where a device has
# no pinned memory, and on a CPU does nothing at all. Its arrays come back one for each node that saved them.


# %%
def kept_by_save_on_cpu():
    before = megabytes()
    with xgrad.autograd.graph.save_on_cpu(pin_memory=True):
        loss = layers(data, weights, lambda *_: None).mean()
    assert loss.requires_grad
    return megabytes() - before


platform = jax.devices()[0].platform
print(f"kept in device memory with save_on_cpu: {kept_by_save_on_cpu():.2f} MB (this is a {platform})")

# %% [markdown]
# ## Not at all
#
# The third idea: keep nothing that can be computed again. That is a pair of hooks, too. `pack` throws the tensor away
# and returns a place holder; the first `unpack` runs the function once more, with hooks that note what it saves this
# time, and the i-th tensor belongs to the i-th holder. In a few lines, for a function of one input:


# %%
class Holder:
    """Stands for a tensor that is to be computed again."""


def checkpoint_by_hand(function, x):
    holders, again = [], {}

    def pack(tensor):
        holders.append(Holder())
        return holders[-1]

    def unpack(holder):
        if not again:  # the first one in this backward: run the function again
            found = []
            note = xgrad.autograd.graph.saved_tensors_hooks(lambda t: found.append(t.detach()), lambda none: none)
            with note, xgrad.enable_grad():  # backward itself runs without
                function(x)
            again.update(zip(holders, found))
        return again.pop(holder)

    with xgrad.autograd.graph.saved_tensors_hooks(pack, unpack):
        return function(x)


runs = []


def wave(x):
    runs.append("run")
    return (x.sin() * 2).exp()


leaf = xgrad.tensor([0.5, 1.0], requires_grad=True)
checkpoint_by_hand(wave, leaf).sum().backward()
print(leaf.grad, "expected", 2 * leaf.detach().cos() * wave(leaf.detach()), runs[:2])

# %% [markdown]
# `xgrad.utils.checkpoint.checkpoint` is that, grown up: any arguments, nested checkpoints, second derivatives, the same
# random numbers in both runs, an error if the second run does something else, and an end as soon as it has what is
# needed. Here are the twelve layers again, checkpointed in threes and in ones.

# %%
from xgrad.utils.checkpoint import checkpoint


def in_segments(size, **options):
    def run(h, weights, meter):
        for i in range(0, len(weights), size):
            h = checkpoint(layers, h, weights[i : i + size], meter, use_reentrant=False, **options)
        return h

    return run


threes, recomputed = step(in_segments(3))
ones, _ = step(in_segments(1))
print("largest relative error:", max(error(recomputed)))
draw({"plain": plain, "checkpoints of 3 layers": threes, "checkpoints of 1 layer": ones})

# %% [markdown]
# Forward keeps one activation for each checkpoint, its input. In backward you see each checkpoint come to life: its
# layers are run again, which fills memory, and then they are taken down. (The curve is longer, for layers that are run
# again are asked again.) Long checkpoints keep little and rebuild much at a time, short ones the other way round; about
# the square root of the depth is a good length.

# %% [markdown]
# ### Some of it
#
# Not everything is equally dear to compute. A *policy* may say which operators' results to keep: here those of the
# matrix products, so that only what is cheap is computed again.

# %%
from xgrad.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

asked = []


def policy(ctx, op, *args, **kwargs):
    asked.append(op.__name__)
    return CheckpointPolicy.MUST_SAVE if op is xgrad.matmul else CheckpointPolicy.PREFER_RECOMPUTE


contexts = functools.partial(create_selective_checkpoint_contexts, policy)
selective, _ = step(in_segments(3, context_fn=contexts))
print("operators of a checkpoint:", *asked[:9])

# %%
steps = {
    "plain": plain,
    "bfloat16, one each": naive,
    "bfloat16, shared": halved,
    "in host memory": offloaded,
    "checkpoints of 3": threes,
    "checkpoints of 3,\nmatmuls kept": selective,
}
figure, ax = plt.subplots(figsize=(9, 3.4), layout="constrained")
places = np.arange(len(steps))
ax.barh(places - 0.2, [m.kept for m in steps.values()], 0.38, label="kept by the graph", color="#74c0fc")
ax.barh(places + 0.2, [m.peak for m in steps.values()], 0.38, label="peak", color="#ffa94d")
ax.set_yticks(places, steps)
ax.invert_yaxis()
ax.set_xlabel("MB in the device's memory")
ax.legend()
plt.show()

# %% [markdown]
# ## In one program
#
# So far each operator was dispatched on its own. A whole step may be traced into one XLA program: xgrad's tensors then
# wrap tracers, and hooks and checkpoints work as before. But does a checkpoint *help* there? XLA sees the same
# computation twice, and loves to merge what is equal. `jax.checkpoint` puts an optimization barrier between the two,
# and on the CPU, XLA drops barriers before it merges.
#
# xgrad makes the second run depend on the gradient that arrived, in a way that changes no bit and that XLA can't see
# through. XLA's own figures for the temporary memory of each program:


# %%
def quiet(h, weights):
    return layers(h, weights, lambda *_: None)


def by_xgrad(run):
    def program(arrays, h):
        ws = [xgrad.as_tensor(a).requires_grad_() for a in arrays]
        h = xgrad.as_tensor(h)
        for i in range(0, LAYERS, 3):
            h = run(quiet, h, ws[i : i + 3])
        gradients = xgrad.autograd.grad(h.square().mean(), ws)
        return [jnp.asarray(g) for g in gradients]

    return program


def by_jax(arrays, h):
    def segment(h, ws):
        for w in ws:
            h = jax.nn.silu(h @ w)
        return h

    def loss(arrays):
        out = h
        for i in range(0, LAYERS, 3):
            out = jax.checkpoint(segment)(out, arrays[i : i + 3])
        return jnp.square(out).mean()

    return jax.grad(loss)(arrays)


arguments = [jnp.asarray(w.detach()) for w in weights], jnp.asarray(data)
for name, program in {
    "xgrad, plain": by_xgrad(lambda f, *args: f(*args)),
    "xgrad, checkpoints of 3": by_xgrad(functools.partial(checkpoint, use_reentrant=False)),
    "jax.checkpoint of 3": by_jax,
}.items():
    compiled = jax.jit(program).lower(*arguments).compile()
    print(f"{name:24} {compiled.memory_analysis().temp_size_in_bytes / 2**20:6.2f} MB")

# %% [markdown]
# That is what hooks on saved tensors are good for: a tensor may wait in another form, in another place, or in the form
# of a promise. Where to go from here:
#
# * `node._raw_saved_self.register_hooks(pack, unpack)` does it for one saved tensor;
# * `xgrad.autograd.graph.allow_mutation_on_saved_tensors()` lets you write over tensors that backward needs;
# * `xgrad.utils.checkpoint` has `checkpoint_sequential`, `debug=True`, and the rest of PyTorch's module;
# * `xgrad/utils/recompute.py` and `xgrad/autograd/offload.py` are the code of this notebook.
