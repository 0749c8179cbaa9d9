"""PEFT: LoRA and its like on GPT-2 and ViT, in numbers."""

import tempfile
from typing import Any

from .small_models import filled, gpt2, normal, numbers_of, tokens, torch, trained

TITLE = "peft {version}"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


def _vit() -> Any:
    from transformers import ViTConfig, ViTForImageClassification

    return filled(ViTForImageClassification(ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=8, patch_size=4,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3,
    )))  # fmt: skip


def _adapted(make: Any, batch: dict[str, Any], config: Any) -> list[float]:
    """Return numbers of an adapter that is trained, saved, loaded and merged."""
    from peft import PeftModel, get_peft_model

    model = get_peft_model(make(), config)
    with torch.no_grad():  # the first values are random
        for i, p in enumerate(p for p in model.parameters() if p.requires_grad):
            p.copy_(normal(*p.shape, seed=i) * 0.2)
    found = list(map(float, model.get_nb_trainable_parameters()))
    found += trained(model, lambda: model(**batch).loss)
    result = [t for t in model.eval()(**batch).values() if isinstance(t, torch.Tensor)]
    found += [float(t.detach().abs().sum()) for t in result[:2]]
    with model.disable_adapter():
        found.append(float(model(**batch).loss))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = PeftModel.from_pretrained(make(), folder).eval()
        found.append(float(again(**batch).loss))
        merged = again.merge_and_unload()
        found.append(float(merged(**batch).loss))
    found.append(sum(float(p.detach().abs().sum()) for p in merged.parameters()))
    return found


def lora_gpt2() -> list[float]:
    """Train LoRA on GPT-2."""
    from peft import LoraConfig

    ids = tokens()
    return _adapted(gpt2, {"input_ids": ids, "labels": ids}, LoraConfig(
        task_type="CAUSAL_LM", r=3, lora_alpha=6, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True,
    ))  # fmt: skip


def lora_vit() -> list[float]:
    """Train LoRA on ViT, and its classifier."""
    from peft import LoraConfig

    batch = {"pixel_values": normal(2, 3, 8, 8), "labels": torch.tensor([0, 2])}
    names = [n for n, _ in _vit().named_modules() if n.endswith(("query", "value", "q_proj", "v_proj"))]
    return _adapted(_vit, batch, LoraConfig(r=2, target_modules=names, modules_to_save=["classifier"]))


def dora_gpt2() -> list[float]:
    """Train DoRA with rank-stabilized scaling on GPT-2."""
    from peft import LoraConfig

    ids = tokens()
    return _adapted(gpt2, {"input_ids": ids, "labels": ids}, LoraConfig(
        task_type="CAUSAL_LM", r=2, target_modules=["c_attn"], fan_in_fan_out=True, use_dora=True, use_rslora=True,
    ))  # fmt: skip


def ia3_gpt2() -> list[float]:
    """Train IA3 on GPT-2."""
    from peft import IA3Config

    ids = tokens()
    return _adapted(gpt2, {"input_ids": ids, "labels": ids}, IA3Config(
        task_type="CAUSAL_LM", target_modules=["c_attn", "mlp.c_proj"], feedforward_modules=["mlp.c_proj"],
        fan_in_fan_out=True,
    ))  # fmt: skip


def prompt_gpt2() -> list[float]:
    """Train soft prompts on GPT-2."""
    from peft import PrefixTuningConfig, PromptTuningConfig, get_peft_model

    ids, found = tokens(), []
    for kind in (PromptTuningConfig, PrefixTuningConfig):
        model = filled(get_peft_model(gpt2(), kind(task_type="CAUSAL_LM", num_virtual_tokens=3)))
        found += trained(model, lambda model=model: model(input_ids=ids, labels=ids).loss)
    return found


CASES = {
    "LoRA on GPT-2: train, save, load, merge": lora_gpt2,
    "LoRA on ViT, with its classifier": lora_vit,
    "DoRA on GPT-2": dora_gpt2,
    "IA3 on GPT-2": ia3_gpt2,
    "prompt and prefix tuning": prompt_gpt2,
}
measured = numbers_of(CASES)
