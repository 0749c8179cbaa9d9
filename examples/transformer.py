"""A small transformer and its training step: where parameters and batch are put decides how it runs."""

import argparse
from collections.abc import Callable
from math import prod

import jax
import optax

import xgrad
from xgrad.interop.optax import Optimizer
from xgrad.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 64, 256, 8, 2, 32, 8


def shapes() -> dict[str, tuple[int, ...]]:
    """The parameters: matrices are (from, to)."""
    found = {"embedding": (VOCABULARY, WIDTH), "position": (LENGTH, WIDTH)}
    for i in range(LAYERS):
        found |= {f"{i}.query": (WIDTH, WIDTH), f"{i}.key": (WIDTH, WIDTH), f"{i}.value": (WIDTH, WIDTH)}
        found |= {f"{i}.out": (WIDTH, WIDTH), f"{i}.up": (WIDTH, 4 * WIDTH), f"{i}.down": (4 * WIDTH, WIDTH)}
        found |= {f"{i}.norm1": (WIDTH,), f"{i}.norm2": (WIDTH,)}
    return found | {"norm": (WIDTH,), "head": (WIDTH, VOCABULARY)}


def parameters(place: Callable) -> dict[str, xgrad.Tensor]:
    """Random parameters, each made where `place(name, shape)` says: no device ever holds all of a sharded one."""
    xgrad.manual_seed(0)
    made = {name: xgrad.randn(*shape, device=place(name, shape)) for name, shape in shapes().items()}
    for name, value in made.items():
        value.fill_(1) if "norm" in name else value.mul_(0.5 * len(value) ** -0.5)
    return {name: value.requires_grad_() for name, value in made.items()}


def logits(p: dict, tokens: xgrad.Tensor) -> xgrad.Tensor:
    """(batch, length) of integers to (batch, length, vocabulary)."""
    x = p["embedding"][tokens] + p["position"]
    batch, length, width = x.shape
    for i in range(LAYERS):
        h = F.layer_norm(x, (width,), p[f"{i}.norm1"])
        heads = [(h @ p[f"{i}.{name}"]).view(batch, length, HEADS, -1) for name in ("query", "key", "value")]
        attended = F.scaled_dot_product_attention(*(head.transpose(1, 2) for head in heads), is_causal=True)
        x = x + attended.transpose(1, 2).reshape(batch, length, width) @ p[f"{i}.out"]
        h = F.layer_norm(x, (width,), p[f"{i}.norm2"])
        x = x + F.gelu(h @ p[f"{i}.up"]) @ p[f"{i}.down"]
    return F.layer_norm(x, (width,), p["norm"]) @ p["head"]


def train(place: Callable, batch_place: object, words: str) -> None:
    """Train on a toy language, in which each word follows from the one before, and print what there is to see."""
    parser = argparse.ArgumentParser(description=words)
    parser.add_argument("--steps", type=int, default=10)
    steps = parser.parse_args().steps
    p = parameters(place)
    optimizer = Optimizer(p.values(), optax.adam(3e-3))  # its moments lie where the parameters do

    @xgrad.compile
    def step(tokens: xgrad.Tensor) -> xgrad.Tensor:
        optimizer.zero_grad()
        scores = logits(p, tokens[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    tokens = [xgrad.randint(0, VOCABULARY, (BATCH, 1))]
    for _ in range(LENGTH):
        tokens.append((tokens[-1] * 5 + 3) % VOCABULARY)
    batch = xgrad.cat(tokens, 1).to(batch_place)
    for i in range(steps):
        print(f"step {i}  loss {step(batch).item():.6f}")
    with xgrad.no_grad():
        arrays = jax.tree.leaves([p, [value.grad for value in p.values()], optimizer.state])
    for what, t in (("0.up", p["0.up"]), ("its gradient", p["0.up"].grad)):
        print(f"sharding of {what}: {getattr(t.sharding, 'spec', t.sharding)}")
    here = sum(prod(a.sharding.shard_shape(a.shape)) * a.dtype.itemsize for a in arrays)
    whole = sum(a.nbytes for a in arrays)
    print(f"parameters, gradients, moments: {here / 1e6:.3f} MB per device, {here / whole:.3f} of {whole / 1e6:.3f} MB")
    used = step.memory_analysis(batch)
    held = (used.argument_size_in_bytes + used.temp_size_in_bytes) / 1e6
    print(f"the compiled step: {held:.3f} MB per device, arguments and temporaries")
