"""Training steps and generation of transformers' models: PyTorch, xgrad by `as_torch()`, and JAX by hand.

    python benchmarks/transformers_models.py --ours PYTHON --torchs PYTHON      the table, one process each
    python benchmarks/transformers_models.py gpt2 compiled                      one row, as JSON

The models: `gpt2` (12 layers, batch 4, context 256), `gpt2-2` (2 layers, batch 2, context 128), `vit` (ViT-small,
8 images of 224 pixels), `tokens` (GPT-2's greedy `generate` of 32 tokens, static cache).  The ways: `torch1`, `torch2`
(threads), `eager`, `lazy`, `compiled`, `jax` (the same model by hand, jitted with optax's AdamW).
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

MODELS = ("gpt2", "gpt2-2", "vit", "tokens")
WAYS = ("torch1", "torch2", "jax", "eager", "lazy", "compiled")
VOCABULARY, WIDTH, HEADS = 50257, 768, 12
_BATCHES = {"gpt2": (4, 256), "gpt2-2": (2, 128)}  # (batch, context)
STEPS = 7
PROMPT, TOKENS = 16, 32


def _layers(model: str) -> int:
    return 2 if model == "gpt2-2" else 12


def _tokens(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCABULARY, (batch, length))


def _images() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((8, 3, 224, 224), dtype="float32"), random.integers(0, 1000, 8)


def _gpt2(torch: Any, layers: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def _package_step(model: str, way: str, torch: Any) -> Callable[[], float]:
    """Return one training step of transformers' model."""
    if model == "vit":
        from transformers import ViTConfig, ViTForImageClassification

        torch.manual_seed(0)
        made = ViTForImageClassification(
            ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536, num_labels=1000)
        )
        given = dict(zip(("pixel_values", "labels"), map(torch.from_numpy, _images())))
    else:
        made = _gpt2(torch, _layers(model))
        ids = torch.from_numpy(_tokens(*_BATCHES[model]))
        given = {"input_ids": ids, "labels": ids}
    made.train()
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-4)

    def step() -> Any:
        optimizer.zero_grad()
        loss = made(**given).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = torch.compile(step) if way == "compiled" else step

    def lazily() -> float:
        with torch.lazy():
            return run().item()

    return lazily if way == "lazy" else lambda: run().item()


def _jax_step(model: str) -> Callable[[], float]:
    """Return the same step, written for JAX."""
    import jax
    import jax.numpy as jnp
    import optax

    random = np.random.default_rng(0)
    layers, vit = _layers(model), model == "vit"
    width, heads = (384, 6) if vit else (WIDTH, HEADS)

    def normal(*shape: int) -> Any:
        return jnp.asarray(0.02 * random.standard_normal(shape, dtype="float32"))

    def linear(i: int, o: int) -> dict[str, Any]:
        return {"w": normal(i, o), "b": jnp.zeros(o)}

    def norm() -> dict[str, Any]:
        return {"w": jnp.ones(width), "b": jnp.zeros(width)}

    def affine(p: Any, x: Any) -> Any:
        return x @ p["w"] + p["b"]

    def normed(p: Any, x: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * p["w"] + p["b"]

    def blocks(p: Any, x: Any) -> Any:
        for block in p["blocks"]:
            parts = jnp.split(affine(block["qkv"], normed(block["norm1"], x)), 3, -1)
            q, k, v = (part.reshape(*x.shape[:2], heads, width // heads) for part in parts)
            x = x + affine(block["out"], jax.nn.dot_product_attention(q, k, v, is_causal=not vit).reshape(x.shape))
            hidden = affine(block["up"], normed(block["norm2"], x))
            x = x + affine(block["down"], jax.nn.gelu(hidden, approximate=not vit))
        return normed(p["norm"], x)

    weights: Any = {
        "norm": norm(),
        "blocks": [
            {
                "norm1": norm(), "norm2": norm(), "qkv": linear(width, 3 * width), "out": linear(width, width),
                "up": linear(width, 4 * width), "down": linear(4 * width, width),
            }
            for _ in range(layers)
        ],
    }  # fmt: skip
    if vit:
        weights |= {"patch": linear(768, width), "class": normal(width), "place": normal(197, width)}
        weights["head"] = linear(width, 1000)
        data = tuple(map(jnp.asarray, _images()))

        def loss(p: Any, images: Any, labels: Any) -> Any:
            cut = images.reshape(8, 3, 14, 16, 14, 16).transpose(0, 2, 4, 1, 3, 5).reshape(8, 196, 768)
            first = jnp.broadcast_to(p["class"], (8, 1, width))
            x = blocks(p, jnp.concatenate([first, affine(p["patch"], cut)], 1) + p["place"])
            return optax.softmax_cross_entropy_with_integer_labels(affine(p["head"], x[:, 0]), labels).mean()
    else:
        weights |= {"tokens": normal(VOCABULARY, width), "place": normal(1024, width)}
        ids = jnp.asarray(_tokens(*_BATCHES[model]))
        data = ids, ids

        def loss(p: Any, given: Any, labels: Any) -> Any:
            x = blocks(p, p["tokens"][given] + p["place"][: given.shape[1]])
            scores = (x @ p["tokens"].T)[:, :-1]
            return optax.softmax_cross_entropy_with_integer_labels(scores, labels[:, 1:]).mean()

    rule = optax.adamw(3e-4, weight_decay=1e-2)
    state = [weights, rule.init(weights)]

    def update(weights: Any, moments: Any, *data: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, *data)
        changes, moments = rule.update(gradients, moments, weights)
        return optax.apply_updates(weights, changes), moments, value

    jitted = jax.jit(update, donate_argnums=(0, 1))

    def step() -> float:
        state[0], state[1], value = jitted(*state, *data)
        return float(value)

    return step


def _generate(way: str, torch: Any) -> Callable[[], float]:
    """Return a call of `generate`, which returns the sum of the tokens."""
    made = _gpt2(torch, 12).eval()
    if way == "compiled":
        made.forward = torch.compile(made.forward)
    ids = torch.from_numpy(_tokens(1, PROMPT))
    options = {
        "max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0,
        "cache_implementation": "static",
    }  # fmt: skip

    def call() -> float:
        return float(made.generate(ids, attention_mask=torch.ones_like(ids), **options).sum())

    def lazily() -> float:
        with torch.lazy():
            return call()

    return lazily if way == "lazy" else call


def measured(model: str, way: str) -> dict[str, Any]:
    """Return a first step's seconds (wall clock, CPU), the median of the later ones', peak memory and losses."""
    if way == "jax":
        step = _jax_step(model)
    else:
        if not way.startswith("torch"):
            import xgrad

            xgrad.as_torch()
        import torch  # noqa: TID251 - xgrad, or PyTorch

        if way.startswith("torch"):
            torch.set_num_threads(int(way[-1]))
        step = _generate(way, torch) if model == "tokens" else _package_step(model, way, torch)
    times, results = [], []
    for _ in range(STEPS):
        start = time.perf_counter(), time.process_time()
        results.append(step())
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    later = sorted(times[2:])[(STEPS - 2) // 2]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"first": times[0], "second": times[1], "later": later, "peak": peak, "results": results}


def table(ours: str, torchs: str, models: list[str], ways: list[str]) -> None:
    """Print a row for each model and way."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XGRAD_COMPILE_CACHE": "0", "HF_HUB_OFFLINE": "1"}
    for model in models:
        for way in ways:
            if (model, way) == ("tokens", "jax"):
                continue
            command = [torchs if way.startswith("torch") else ours, "-W", "ignore", __file__, model, way]
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            if done.returncode:
                print(model, way, "failed:", done.stderr[-300:], flush=True)
                continue
            row = json.loads(done.stdout.splitlines()[-1])
            cells = [f"{name} {row[name][0]:.2f} s ({row[name][1]:.1f} CPU)" for name in ("first", "second", "later")]
            if model == "tokens":
                cells.append(f"{TOKENS / row['later'][0]:.1f} tokens a second")
            cells += [f"peak {row['peak']:.2f} GB", f"{row['results'][0]:.5g} .. {row['results'][-1]:.5g}"]
            print(model, way, *cells, sep=" | ", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="*", metavar="MODEL WAY")
    parser.add_argument(
        "--ours", default=sys.executable, help="a Python that has xgrad and transformers, and not torch"
    )
    parser.add_argument("--torchs", default=sys.executable, help="one that has torch and transformers")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    given = parser.parse_args()
    if given.row:
        print(json.dumps(measured(*given.row)))
    else:
        table(given.ours, given.torchs, given.models, given.ways)
