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
# # A Hugging Face model on a TPU
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/xgrad/xgrad/blob/main/notebooks/11_a_hugging_face_model.ipynb)
#
# The package transformers is written for PyTorch. Here it runs unmodified on what JAX finds: a CPU, a GPU, or the
# chips of a Colab TPU runtime. A GPT-2 is loaded, fine-tuned on all chips by a compiled step, asked for text, and saved
# in the format that everybody reads.

# %%
# Only what is not there yet; jax stays the one that is installed, so nothing has to be restarted.
import importlib.util
import os
import subprocess
import sys

sources = {"xgrad": "xgrad[demo] @ git+https://github.com/xgrad/xgrad", "transformers": "transformers"}
if missing := [source for name, source in sources.items() if importlib.util.find_spec(name) is None]:
    pip = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *missing], capture_output=True)
    if pip.returncode:
        sys.exit(
            "xgrad cannot be installed here; this says why: %pip install " + " ".join(f'"{one}"' for one in missing)
        )
    importlib.invalidate_caches()

# Before JAX starts: the CPU counts as eight devices. Other platforms don't look at it.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

# %% [markdown]
# ## The one line
#
# From here on `import torch` gives xgrad, in this notebook and in all packages that it imports. PyTorch need not be
# installed. So this comes before `import transformers`.

# %%
import xgrad

xgrad.as_torch()

# %%
import tempfile
import time
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import torch  # noqa: TID251 - xgrad
from jax.sharding import PartitionSpec as P
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from transformers.utils import logging

logging.disable_progress_bar()
logging.set_verbosity_error()  # no warnings among the losses

folder = Path(tempfile.mkdtemp())
CHIPS = len(jax.devices())
print(f"torch is {torch.__name__} {xgrad.__version__}; {CHIPS} devices: {jax.devices()[0].device_kind}")

# %% [markdown]
# ## A checkpoint
#
# On an accelerator the model is DistilGPT-2, of the Hub. A CPU gets a tiny one that knows nothing, with a tokenizer of
# single bytes: the cell writes it to a folder, so that all below is the same.


# %%
def written_checkpoint(to):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate([*alphabet, "<|endoftext|>"])}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|endoftext|>").save_pretrained(to)
    end = vocabulary["<|endoftext|>"]
    torch.manual_seed(0)
    small = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "attn_pdrop": 0.0}
    config = GPT2Config(vocab_size=264, bos_token_id=end, eos_token_id=end, **small)
    GPT2LMHeadModel(config).save_pretrained(to)
    return str(to)


name = written_checkpoint(folder / "tiny") if jax.default_backend() == "cpu" else "distilgpt2"
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModelForCausalLM.from_pretrained(name)
print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters")

# %% [markdown]
# ## Sentences
#
# What it shall learn: to add, in words. The sentences are joined and cut into blocks of one length, because each
# shape of a batch is a program of its own.

# %%
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
sums = [f"{WORDS[a]} plus {WORDS[b]} is {WORDS[a + b]}." for a in range(7) for b in range(7)]
LENGTH, BATCH = 48, 16

torch.manual_seed(1)
order = [i for _ in range(80) for i in torch.randperm(len(sums)).tolist()]
ids = tokenizer(" ".join(sums[i] for i in order))["input_ids"]
blocks = torch.tensor(ids[: len(ids) // LENGTH * LENGTH]).view(-1, LENGTH)
print(tuple(blocks.shape), "|", tokenizer.decode(blocks[0]))

# %% [markdown]
# ## All chips
#
# A mesh gives the chips a name. Each weight is split over them by its first dimension, where that can be divided; a
# batch by its rows. The gradients and AdamW's moments lie where their weights do, and XLA adds what has to be sent.

# %%
mesh = torch.mesh({"chips": CHIPS})
with mesh:
    for p in model.parameters():
        p.data = p.data.to(P("chips") if p.shape[0] % CHIPS == 0 else P())
    for buffer in model.buffers():
        buffer.data = buffer.data.to(P())
print(model.transformer.h[0].mlp.c_fc.weight.sharding.spec)

# %% [markdown]
# ## The step
#
# What anybody writes for transformers, and one decorator. The first call is traced and compiled, and the second one,
# which finds the optimizer's state there; all others run one program.

# %%
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3 if jax.default_backend() == "cpu" else 1e-4)


@torch.compile
def step(batch):
    optimizer.zero_grad()
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


STEPS = 300
model.train()
losses, seconds = [], []
with mesh:
    for i in range(STEPS):
        start = time.perf_counter()
        rows = torch.arange(i * BATCH, (i + 1) * BATCH) % len(blocks)
        losses.append(step(blocks[rows].to(P("chips"))).item())
        seconds.append(time.perf_counter() - start)
later = sorted(seconds[2:])[STEPS // 2]
print(f"first step {seconds[0]:.1f} s, a later one {1e3 * later:.1f} ms; traced {step.metrics().traces} times")
print(f"loss {losses[0]:.3f}, then {losses[-1]:.3f}")

# %%
plt.figure(figsize=(6, 2.5))
plt.plot(losses)
plt.xlabel("step")
plt.ylabel("loss")
plt.show()

# %% [markdown]
# ## Text
#
# `generate` calls the model for each token. With a static cache all calls have the same shapes: compiled, the model is
# one program for the prompt and one for all tokens after it. For a prompt the weights are better whole on each chip.

# %%
with mesh:
    for p in model.parameters():
        p.data = p.data.to(P())
model.eval()
model.forward = torch.compile(model.forward)


def told(prompt, count=12):
    with mesh:
        given = {name: x.to(P()) for name, x in tokenizer(prompt, return_tensors="pt").items()}
        made = model.generate(
            **given, max_new_tokens=count, do_sample=False, cache_implementation="static",
            pad_token_id=tokenizer.eos_token_id,
        )  # fmt: skip
    return tokenizer.decode(made[0])


print(told("two plus three is"))
print(told("six plus one is"))
print(model.forward.metrics().traces, "traces")

# %% [markdown]
# ## Saved
#
# `save_pretrained` writes safetensors and the configuration: PyTorch's transformers loads the folder, and so does this
# one.

# %%
del model.forward  # the class's own again
model.save_pretrained(folder / "tuned")
tokenizer.save_pretrained(folder / "tuned")
again = AutoModelForCausalLM.from_pretrained(folder / "tuned").eval()
print(*sorted(f"{file.name} ({file.stat().st_size:,} bytes)" for file in (folder / "tuned").iterdir()), sep="\n")
with torch.no_grad():
    ours, theirs = (each(input_ids=blocks[:2]).logits for each in (model, again))
print("off by", float((ours.to("xla") - theirs).abs().max()))

# %% [markdown]
# What else runs, with PyTorch's numbers beside ours: [the page on packages](https://xgrad.github.io/xgrad/packages/).
# What to read next: [many chips](05_many_chips.ipynb) for meshes, [backward as programs](03_compiled_backward.ipynb)
# for `compile`, [lazy tensors](06_lazy_tensors.ipynb) for code that should not be compiled as a whole.
