"""More models of transformers, and ways to run them, in numbers."""

import importlib
from typing import Any

import numpy as np

from .small_models import filled, gpt2, normal, numbers_of, tokens, torch, trained

TITLE = "Ways to run models of transformers"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


_TEXT = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def clip() -> list[float]:
    """Train CLIP on pairs of images and texts."""
    from transformers import CLIPConfig, CLIPModel

    seen = {
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8,
        "patch_size": 4,
    }  # fmt: skip
    model = filled(CLIPModel(CLIPConfig(text_config=_TEXT, vision_config=seen, projection_dim=12)))
    ids, pixels = tokens(3, 7), normal(3, 3, 8, 8)
    found = trained(model, lambda: model(input_ids=ids, pixel_values=pixels, return_loss=True).loss)
    out = model.eval()(input_ids=ids, pixel_values=pixels)
    return [*found, *map(float, out.logits_per_image.detach().reshape(-1))]


def _whisper() -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    return filled(WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=61, num_mel_bins=8, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_source_positions=10,
        max_target_positions=24, dropout=0.0, decoder_start_token_id=3, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        suppress_tokens=[], begin_suppress_tokens=[], apply_spec_augment=False,
    )))  # fmt: skip


def whisper() -> list[float]:
    """Train Whisper, and generate greedily and by beams."""
    model, heard, ids = _whisper(), normal(2, 8, 20), tokens(2, 6)
    found = trained(model, lambda: model(input_features=heard, labels=ids).loss)
    model.eval()
    for beams in (1, 3):
        made = model.generate(heard, max_new_tokens=6, num_beams=beams, do_sample=False)
        found += list(map(float, made.reshape(-1)))
    return found


def wav2vec() -> list[float]:
    """Train Wav2Vec2 by CTC."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    model = filled(Wav2Vec2ForCTC(Wav2Vec2Config(
        vocab_size=12, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        conv_dim=(8, 8), conv_stride=(4, 2), conv_kernel=(8, 4), num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2, hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0,
        final_dropout=0.0, activation_dropout=0.0, layerdrop=0.0, mask_time_prob=0.0, ctc_loss_reduction="mean",
        feat_extract_norm="layer", do_stable_layer_norm=True, pad_token_id=0,
    )))  # fmt: skip
    heard, labels = normal(2, 200), torch.from_numpy(np.random.RandomState(4).randint(1, 12, (2, 4)))
    return trained(model.train(), lambda: model(heard, labels=labels).loss)


def detr() -> list[float]:
    """Train DETR on boxes, by the matcher of its loss."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    model = filled(DetrForObjectDetection(DetrConfig(
        use_timm_backbone=False, backbone_config=backbone, backbone=None, use_pretrained_backbone=False,
        num_queries=5, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=24, decoder_ffn_dim=24,
        encoder_attention_heads=2, decoder_attention_heads=2, dropout=0.0, num_labels=4, auxiliary_loss=True,
    )))  # fmt: skip
    pixels = normal(2, 3, 32, 32)
    boxes = torch.tensor([[0.5, 0.5, 0.2, 0.3], [0.3, 0.6, 0.4, 0.2]])
    labels = [
        {"class_labels": torch.tensor([1, 3]), "boxes": boxes},
        {"class_labels": torch.tensor([2]), "boxes": boxes[:1]},
    ]
    return trained(model.train(), lambda: model(pixels, labels=labels).loss)


def attentions() -> list[float]:
    """Train Llama and GPT-2 with eager attention and with sdpa, padded, with checkpointing, and in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{**_TEXT, "max_position_embeddings": 32}, num_key_value_heads=1)
    ids, found = tokens(), []
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    for kind in ("eager", "sdpa"):
        config._attn_implementation = kind
        for model in (filled(LlamaForCausalLM(config)), gpt2(attn_implementation=kind)):
            model.gradient_checkpointing_enable()
            model.train()
            found += trained(model, lambda model=model: model(ids, attention_mask=mask, labels=ids).loss, 2)
    return found


def bfloat16() -> list[float]:
    """Train Llama in bfloat16, and generate."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{**_TEXT, "max_position_embeddings": 32}, num_key_value_heads=1)
    model = filled(LlamaForCausalLM(config)).to(torch.bfloat16)
    ids = tokens()
    return trained(model, lambda: model(ids, labels=ids).loss)


def _draws(uniform: Any) -> Any:
    """Return a torch.multinomial that reads its numbers from a stream."""

    def multinomial(probs: Any, num_samples: int, *args: Any, **options: Any) -> Any:
        rows = probs.detach().double().numpy() if probs.dtype != torch.float64 else probs.numpy()
        chosen = []
        for row in np.asarray(rows, "float64"):
            left, picked = row.copy(), []
            for _ in range(num_samples):
                sums = np.cumsum(left) / left.sum()
                picked.append(int(min(np.searchsorted(sums, uniform.rand(), side="right"), len(row) - 1)))
                left[picked[-1]] = 0
            chosen.append(picked)
        return torch.tensor(chosen)

    return multinomial


def generation() -> list[float]:
    """Generate with GPT-2 and Llama: greedy, beams, sampling from a stream, both caches, processors, scores."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**{**_TEXT, "max_position_embeddings": 32}, num_key_value_heads=1)
    ids, found = tokens()[:, :4], []
    ways: list[dict[str, Any]] = [
        {"do_sample": False}, {"do_sample": False, "num_beams": 3, "length_penalty": 0.5},
        {"do_sample": False, "cache_implementation": "static"},
        {"do_sample": True, "top_k": 12, "top_p": 0.9, "temperature": 0.8},
        {"do_sample": True, "num_beams": 2, "top_k": 0},
        {"do_sample": False, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 4},
        {"do_sample": False, "num_beams": 2, "num_return_sequences": 2},
        {"do_sample": True, "min_p": 0.05, "typical_p": 0.9, "cache_implementation": "static"},
        {"do_sample": False, "use_cache": False}, {"do_sample": False, "prompt_lookup_num_tokens": 2},
    ]  # fmt: skip
    module = importlib.import_module("torch")
    before, module.multinomial = module.multinomial, _draws(np.random.RandomState(5))
    try:
        for model in (filled(LlamaForCausalLM(config)).eval(), gpt2().eval()):
            for way in ways:
                given = ids[:1] if "prompt_lookup_num_tokens" in way else ids
                mask = torch.ones_like(given)
                found += map(float, model.generate(given, attention_mask=mask, max_new_tokens=6, **way).reshape(-1))
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=3, do_sample=False, output_scores=True,
                return_dict_in_generate=True,
            )  # fmt: skip
            found += [float(score.clamp(min=-50).sum()) for score in out.scores]
    finally:
        module.multinomial = before
    return found


CASES = {
    "CLIP: three steps on pairs": clip,
    "Whisper: three steps, greedy, beams": whisper,
    "Wav2Vec2: three steps by CTC": wav2vec,
    "DETR: three steps on boxes": detr,
    "Llama, GPT-2: eager and sdpa attention, padding, checkpointing": attentions,
    "Llama in bfloat16": bfloat16,
    "generate in ten ways, Llama and GPT-2": generation,
}
TOLERANCES = {"Llama in bfloat16": 4e-3}
measured = numbers_of(CASES)
