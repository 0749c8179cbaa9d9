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
# # Flax, optax and orbax on the tape
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/04_flax_and_optax.ipynb)
#
# xgrad has no layers to speak of and no optimizers: JAX has them already. A module of Flax or Equinox, *wrapped*, is an
# `nn.Module` as a PyTorch user knows it: `loss.backward()` trains it, `parameters()` are tensors that have a `.grad`
# and take hooks, `state_dict()` saves it. And it is still the very module that Flax knows.
#
# This notebook trains a small convolutional network of Flax NNX in three ways: eagerly, with a hook that watches a
# gradient; compiled, with a schedule of optax; and by Flax's own step, to see that all of it is the same.

# %%
# Only where xgrad is not there yet (on Colab); jax stays the one that is installed, so nothing has to be restarted.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("xgrad") is None:
    source = "xgrad[demo,optax,flax,orbax] @ git+https://github.com/xgrad/xgrad"
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", source], capture_output=True)
    if pip.returncode:
        sys.exit(f'xgrad cannot be installed here; this says why: %pip install "{source}"')
    importlib.invalidate_caches()

# %%
import os
import tempfile
import time
from statistics import median

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import xgrad
from xgrad.interop import orbax
from xgrad.interop.flax import wrap
from xgrad.interop.optax import Optimizer

xgrad.devices()

# %% [markdown]
# ## A module, wrapped
#
# Batch statistics, and the keys and counts of dropout, are what makes a network more than a function of its
# parameters. In NNX they are Variables of other kinds; wrapped, they are buffers.


# %%
class Digits(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=0.9, rngs=rngs)
        self.hidden = nnx.Linear(16 * 16, 64, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        x = nnx.relu(self.hidden(x.reshape(len(x), -1)))
        return self.out(self.drop(x))


model = Digits(nnx.Rngs(0))
net = wrap(model)
net

# %% [markdown]
# Names are the module's paths. A parameter and the Variable of Flax are one: each sees what the other is set to, and
# nothing is copied in between.

# %%
for name, tensor in net.state_dict().items():
    print(f"{name:20} {list(tensor.shape)!s:16} {tensor.dtype.name}")

with xgrad.no_grad():
    net.out.bias.fill_(0.5)
print("\nFlax sees:", model.out.bias[...])
model.out.bias[...] = jnp.zeros(10)
print("xgrad sees:", net.out.bias.detach())

# %% [markdown]
# ## Eager, with a hook
#
# Nothing is compiled as a whole here: each line runs when it is reached, so that one can look at anything. The hook
# sees the gradient of the convolution's kernel in each step, before it is stored, and could change it.

# %%
pixels, digits = load_digits(return_X_y=True)
pixels = (pixels / 16).astype("float32").reshape(-1, 8, 8, 1)
digits = digits.astype("int32")
images, labels = xgrad.tensor(pixels[:1500]), xgrad.tensor(digits[:1500])
BATCH, STEPS = 100, 90


def batches():
    for i in range(STEPS):
        start = i * BATCH % 1500
        yield images[start : start + BATCH], labels[start : start + BATCH]


def loss_of(net, x, y):
    return xgrad.nn.functional.cross_entropy(net(x), y)


seen = []
handle = net.conv.kernel.register_hook(lambda grad: seen.append(grad.detach().flatten()))
optimizer = Optimizer(net.parameters(), optax.adam(3e-3))
eager = []
for x, y in batches():
    optimizer.zero_grad()
    loss = loss_of(net, x, y)
    loss.backward()
    optimizer.step()
    eager.append(loss.item())
handle.remove()

gradients = np.stack([g.numpy() for g in seen])
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
left.plot(eager)
left.set(title="loss, eager", xlabel="step", yscale="log")
quantiles = np.quantile(np.abs(gradients), [0.1, 0.5, 0.9, 1.0], axis=1)
for q, label in list(zip(quantiles, ["10 %", "median", "90 %", "largest"]))[::-1]:
    right.plot(q, label=label)
right.set(title="gradient of conv.kernel, seen by the hook", xlabel="step", yscale="log")
right.legend(title="of 144 elements", loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## Train and eval
#
# `net.eval()` is NNX's own: dropout is off, and batch normalization uses its running averages. `net.module` is the
# module that was given, so whatever Flax offers goes on working with what has been learnt.

# %%
net.eval()
test_images, test_labels = xgrad.tensor(pixels[1500:]), digits[1500:]
with xgrad.no_grad():
    guesses = net(test_images).argmax(-1).numpy()
print(f"right: {np.mean(guesses == test_labels):.1%} of {len(test_labels)} images that it has not seen")
print("by Flax itself, the same:", np.array_equal(guesses, model(pixels[1500:]).argmax(-1)))

# %% [markdown]
# ## Compiled, with a schedule of optax; and Flax's own step
#
# One program for forward, backward and the optimizer, which keeps parameters, batch statistics, the state of Adam and
# the count of the dropout keys in place. Beside it is the step that Flax's documentation writes, from the same start:
# the same keys, so even dropout is the same.

# %%
schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 15, STEPS)
tx = optax.adamw(schedule, weight_decay=1e-3)

net = wrap(Digits(nnx.Rngs(1)))
optimizer = Optimizer(net.named_parameters(), tx)


@xgrad.compile
def step(x, y):
    optimizer.zero_grad()
    loss = loss_of(net, x, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


reference = Digits(nnx.Rngs(1))
flax_optimizer = nnx.Optimizer(reference, tx, wrt=nnx.Param)


@nnx.jit
def flax_step(model, optimizer, x, y):
    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def timed(step, *args):
    start = time.perf_counter()
    loss = float(step(*args))
    return loss, time.perf_counter() - start


ours, theirs = [], []
for x, y in batches():
    ours.append(timed(step, x, y))
    theirs.append(timed(flax_step, reference, flax_optimizer, x._read(), y._read()))

for name, times in ("xgrad.compile", ours), ("nnx.jit", theirs):
    print(f"{name:14} {1e3 * median(t for _, t in times[5:]):6.2f} ms a step")
print("traces:", step.metrics().traces)

# %%
a, b = np.array(ours)[:, 0], np.array(theirs)[:, 0]
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
left.plot([schedule(i) for i in range(STEPS)])
left.set(title="learning rate", xlabel="step")
middle.plot(a, linewidth=4, alpha=0.5, label="xgrad's tape")
middle.plot(b, color="black", linewidth=1, label="Flax")
middle.set(title="loss", xlabel="step", yscale="log")
middle.legend()
right.plot(np.abs(a - b) + 1e-9)
right.set(title="difference of the losses (float32)", xlabel="step", yscale="log")
plt.show()

# %% [markdown]
# ## Save, and go on
#
# A checkpoint of orbax, of everything that a training needs to go on as if nothing had happened: parameters, batch
# statistics and dropout counts (`net.state_dict()`), and the state of the optimizer. Restoring writes into the tensors
# that are there; so the module of Flax has it, too.

# %%
state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
path = os.path.join(tempfile.mkdtemp(), "digits")
orbax.save(path, state)

x, y = images[:BATCH], labels[:BATCH]
gone_on = [step(x, y).item() for _ in range(3)]

saved = orbax.restore(path, state)
net.load_state_dict(saved["net"])
optimizer.load_state_dict(saved["optimizer"])
again = [step(x, y).item() for _ in range(3)]
print("gone on:  ", gone_on)
print("restored: ", again)

# %% [markdown]
# ## Any JAX function on the tape: `from_jax`
#
# A loss from optax, say. It becomes one operator: tensors go in, one node of the tape comes out.

# %%
smoothed = xgrad.from_jax(
    lambda logits, labels: optax.softmax_cross_entropy(
        logits, optax.smooth_labels(jax.nn.one_hot(labels, 10), 0.1)
    ).mean()
)

optimizer.zero_grad()
loss = smoothed(net(x), y)
loss.backward()
print(loss)
print("gradient of out.bias:", net.out.bias.grad)

# %% [markdown]
# ## The tape in JAX: `to_jax`
#
# The other way round: a module of xgrad, with writes through views inside if it likes, in a training loop of pure
# JAX. `functional_call` gives it its parameters, which are a dictionary of arrays there: a pytree like any other.

# %%
line = xgrad.nn.Linear(64, 10)


@jax.jit
@jax.value_and_grad
@xgrad.to_jax
def linear_loss(parameters, x, y):
    logits = xgrad.func.functional_call(line, parameters, x.reshape(len(x), -1))
    return xgrad.nn.functional.cross_entropy(logits, y)


parameters = {name: p.detach().numpy() for name, p in line.named_parameters()}
losses = []
for x, y in batches():
    loss, gradients = linear_loss(parameters, x, y)
    parameters = jax.tree.map(lambda p, g: p - 0.5 * g, parameters, gradients)
    losses.append(float(loss))
print("loss of a linear classifier, by jax.value_and_grad:", round(losses[0], 3), "to", round(losses[-1], 3))

# %% [markdown]
# What this has shown:
#
# * `interop.flax.wrap` makes an `nn.Module` of a module of Flax (NNX or Linen; `interop.equinox.wrap` one of
#   Equinox's), with tensors that are the module's own values;
# * `interop.optax.Optimizer` steps by any transformation of optax; under `xgrad.compile` the whole step is one program;
# * orbax saves and restores all of it, and `from_jax` and `to_jax` lead over the bridge in both directions.
