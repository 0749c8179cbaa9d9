"""Models of transformers: three steps of AdamW in training mode, and greedy `generate`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TITLE = "transformers {version}"
HEAD = """\
A model is made of a small configuration with the same weights.  Compared are the losses and the sums of all gradients'
absolute values of 3 AdamW steps, xgrad's eagerly and by `torch.compile` of the whole step, PyTorch's eagerly; and the
tokens of greedy `generate`.

| model | PyTorch's losses | also | xgrad |
| --- | --- | --- | --- |"""
STEPS, TOKENS = 3, 6

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
CASES: dict[str, tuple[str, dict]] = {
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


def _made(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a model with weights of one stream of random numbers, and its batch."""
    import torch  # noqa: TID251 - xgrad, or PyTorch
    import transformers

    ending, options = CASES[name]
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
    return model.train(), batch


def _step(model: Any, batch: dict[str, Any]) -> Callable[[], tuple[Any, Any]]:
    """Return a training step, which returns the loss and the sum of each gradient's absolute values."""
    import torch  # noqa: TID251 - xgrad, or PyTorch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> tuple[Any, Any]:
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        gradients = torch.stack([p.grad.abs().sum() for p in model.parameters() if p.grad is not None])
        optimizer.step()
        return loss.detach(), gradients

    return step


def measured(name: str, folder: Path, first: bool) -> tuple[list[str], dict[str, Any]]:
    """Measure one model, of xgrad's also as one compiled step."""
    import torch  # noqa: TID251 - xgrad, or PyTorch

    losses, arrays = [], {}
    for way in ("", "compiled "):
        model, batch = _made(name)
        step = _step(model, batch)
        run = torch.compile(step) if way and not first else step
        for i in range(STEPS):
            loss, gradients = run()
            arrays[f"{way}loss {i}"] = np.array(loss.item())
            arrays[f"{way}gradients {i}"] = np.array(float(gradients.sum()))
            losses.append(loss.item())
    tokens = ""
    if CASES[name][0].endswith(("CausalLM", "HeadModel", "Generation")):
        ids = batch["input_ids"][:, :4]
        mask = torch.ones_like(ids)
        made = model.eval().generate(ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False)
        tokens, arrays["tokens"] = "tokens", made.numpy()
    return [", ".join(f"{x:.5f}" for x in losses[:STEPS]), tokens], arrays
