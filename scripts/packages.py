"""Write docs/packages.md: transformers' models under `as_torch()`, and by PyTorch, in numbers.

    python scripts/packages.py --ours PYTHON --torchs PYTHON

Each is a Python that has transformers; the first has JAX and no PyTorch, the second PyTorch.  A model is made of its
configuration, with the same weights; three AdamW steps in training mode are compared, and greedy `generate`.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parent.parent
STEPS, TOKENS, TOLERANCE = 3, 6, 1e-4

_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_USUAL = {
    "vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 32,
}  # fmt: skip
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "attention_dropout": 0.0}
_DECODER = {**_USUAL, **_IDS}
_GROUPED = {**_DECODER, "num_key_value_heads": 1}
_ENCODER = {**_USUAL, **_NO_DROPOUT, "pad_token_id": 0}
_BOTH = {
    "vocab_size": 61, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 32,
    "dropout": 0.0, "forced_eos_token_id": None, "decoder_start_token_id": 2, **_IDS,
}  # fmt: skip
_IMAGE = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 8,
    "patch_size": 4, **_NO_DROPOUT,
}  # fmt: skip
_SMALL_GPT = {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
_NO_GPT_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

# The names in transformers before "Config" → (what is behind the name of the model's class, the configuration)
MODELS: dict[str, tuple[str, dict]] = {
    "GPT2": ("LMHeadModel", {**_SMALL_GPT, **_NO_GPT_DROPOUT, **_IDS}),
    "GPTNeoX": ("ForCausalLM", {**_DECODER, "attention_dropout": 0.0, "hidden_dropout": 0.0}),
    "Llama": ("ForCausalLM", _GROUPED),
    "Mistral": ("ForCausalLM", _GROUPED),
    "Mixtral": ("ForCausalLM", {**_GROUPED, "num_local_experts": 3}),
    "Qwen2": ("ForCausalLM", _GROUPED),
    "Qwen3": ("ForCausalLM", {**_GROUPED, "head_dim": 8}),
    "Gemma2": ("ForCausalLM", {**_GROUPED, "head_dim": 8}),
    "Gemma3Text": ("Gemma3ForCausalLM", {**_GROUPED, "head_dim": 8}),
    "Phi": ("ForCausalLM", {**_DECODER, "resid_pdrop": 0.0, "embd_pdrop": 0.0}),
    "Falcon": ("ForCausalLM", _DECODER),
    "Bloom": ("ForCausalLM", {"vocab_size": 61, "hidden_size": 16, "n_layer": 2, "n_head": 2, **_IDS}),
    "OPT": ("ForCausalLM", {**_DECODER, "ffn_dim": 24, "word_embed_proj_dim": 16, "dropout": 0.0}),
    "Mamba": ("ForCausalLM", {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, **_IDS}),
    "Bert": ("ForMaskedLM", _ENCODER),
    "Roberta": ("ForMaskedLM", _ENCODER),
    "DistilBert": ("ForMaskedLM", {
        "vocab_size": 61, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "dropout": 0.0,
        "attention_dropout": 0.0, "max_position_embeddings": 32,
    }),
    "Albert": ("ForMaskedLM", {**_ENCODER, "embedding_size": 8, "bos_token_id": 1, "eos_token_id": 2}),
    "Electra": ("ForMaskedLM", {**_ENCODER, "embedding_size": 8}),
    "DebertaV2": ("ForMaskedLM", {
        **_ENCODER, "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"],
    }),
    "T5": ("ForConditionalGeneration", {
        "vocab_size": 61, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0,
        "decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 0,
    }),
    "Bart": ("ForConditionalGeneration", _BOTH),
    "Pegasus": ("ForConditionalGeneration", _BOTH),
    "ViT": ("ForImageClassification", _IMAGE),
    "DeiT": ("ForImageClassification", _IMAGE),
    "Swin": ("ForImageClassification", {
        "image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4,
        "drop_path_rate": 0.0,
    }),
    "ConvNext": ("ForImageClassification", {
        "hidden_sizes": [8, 12], "depths": [1, 1], "num_stages": 2, "image_size": 16, "patch_size": 4,
    }),
    "Segformer": ("ForImageClassification", {
        "hidden_sizes": [8] * 4, "depths": [1] * 4, "num_attention_heads": [1, 2, 2, 2], "decoder_hidden_size": 8,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "drop_path_rate": 0.0,
    }),
}  # fmt: skip


def measured(name: str) -> dict:
    """Return losses, the sum of the gradients' absolute values, and tokens of one model, or the error."""
    import numpy as np
    import torch  # noqa: TID251 - xgrad, or PyTorch
    import transformers

    ending, options = MODELS[name]
    try:
        config = getattr(transformers, f"{name}Config")(**options)
        known = getattr(transformers, ending, None)
        model = (known or getattr(transformers, name + ending))(config)
        random = np.random.RandomState(0)
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.from_numpy((random.randn(*p.shape) * 0.2).astype("float32")))
        ids = torch.from_numpy(random.randint(3, 60, (2, 9)))
        batch = {"input_ids": ids, "labels": ids}
        if "Image" in ending:
            size = getattr(config, "image_size", 32)
            pixels = torch.from_numpy(random.randn(2, 3, size, size).astype("float32"))
            batch = {"pixel_values": pixels, "labels": torch.tensor([0, 1])}
        model.train()
        optimizer, found = torch.optim.AdamW(model.parameters(), lr=1e-3), []
        for _ in range(STEPS):
            loss = model(**batch).loss
            loss.backward()
            gradients = sum(float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None)
            found += [loss.item(), gradients]
            optimizer.step()
            optimizer.zero_grad()
        tokens = []
        if ending.endswith(("CausalLM", "HeadModel", "Generation")):
            mask = torch.ones_like(ids[:, :4])
            made = model.eval().generate(ids[:, :4], attention_mask=mask, max_new_tokens=TOKENS, do_sample=False)
            tokens = made.tolist()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200].replace("\n", " ")}
    return {"numbers": found, "tokens": tokens, "version": transformers.__version__}


def compared(ours: dict, theirs: dict) -> str:
    """Return what a row of the table says of a model."""
    if "error" in ours or "error" in theirs:
        return "; ".join(f"{who}: {r['error']}" for who, r in (("xgrad", ours), ("torch", theirs)) if "error" in r)
    pairs = zip(ours["numbers"], theirs["numbers"], strict=True)
    worst = max(abs(a - b) / max(1.0, abs(b)) for a, b in pairs)
    same = worst <= TOLERANCE and ours["tokens"] == theirs["tokens"]
    return f"{'equal' if same else 'differs'} ({worst:.0e})"


def main() -> None:
    """Write the page; with --run, print the figures of this Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", default=sys.executable)
    parser.add_argument("--torchs", default=sys.executable)
    parser.add_argument("--models", nargs="*", default=[*MODELS])
    parser.add_argument("--run", choices=("xgrad", "torch"))
    args = parser.parse_args()
    if args.run:
        warnings.simplefilter("ignore")
        if args.run == "xgrad":
            import xgrad

            xgrad.as_torch()
        for name in args.models:
            print(json.dumps([name, measured(name)]), flush=True)
        return
    found = []
    for python, which in ((args.ours, "xgrad"), (args.torchs, "torch")):
        command = [python, __file__, "--run", which, "--models", *args.models]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        found.append(dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")))
    version = next((r["version"] for r in found[0].values() if "version" in r), "?")
    rows = []
    for name in args.models:
        ours, theirs = (results[name] for results in found)
        losses = ", ".join(f"{x:.5f}" for x in theirs.get("numbers", [])[::2])
        tokens = "tokens" if theirs.get("tokens") else ""
        rows.append(f"| {name} | {losses} | {tokens} | {compared(ours, theirs)} |")
    text = f"""# Packages

What runs, unmodified, under `xgrad.as_torch()`, in float32 on the CPU; `scripts/packages.py` writes this page.  A model
is made of a small configuration with the same weights.  Compared are the losses and the sums of all gradients' absolute
values of {STEPS} AdamW steps, and the tokens of greedy `generate`; in parentheses is the largest relative difference.

## transformers {version}

| model | PyTorch's losses | also | xgrad |
| --- | --- | --- | --- |
""" + "\n".join(rows)
    (ROOT / "docs" / "packages.md").write_text(text + "\n")
    print("written: docs/packages.md")


if __name__ == "__main__":
    main()
