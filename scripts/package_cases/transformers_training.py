"""transformers' Trainer and pipelines, in numbers."""

import tempfile
from typing import Any

import numpy as np

from .small_models import filled, gpt2, numbers_of, torch

TITLE = "Trainer and pipelines of transformers"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.
The third is in bfloat16, whose rounding is 4e-3: "close".

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "[CLS]", "[SEP]"]
    words += [
        "the",
        "a",
        "cat",
        "dog",
        "sat",
        "ran",
        "on",
        "under",
        "mat",
        "tree",
        "and",
        "or",
        "sees",
        "hears",
        "it",
        "we",
        "you",
        "they",
    ]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        mask_token="<mask>", cls_token="[CLS]", sep_token="[SEP]",
    )  # fmt: skip


_TEXTS = [
    "the cat sat on the mat", "a dog ran under the tree", "we hear it and they see you", "the dog sees a cat",
    "a cat hears the dog and it ran", "you sat", "they ran on the mat or under the tree", "it sees the tree",
]  # fmt: skip


def _trained(model: Any, data: Any, collator: Any, **options: Any) -> list[float]:
    """Return the losses of 20 steps and evaluations, and of the last 10 again, resumed from the checkpoint."""
    from transformers import Trainer, TrainingArguments

    class InOrder(Trainer):
        def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    found = []
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder, max_steps=20, per_device_train_batch_size=2, per_device_eval_batch_size=4,
            logging_steps=1, eval_strategy="steps", eval_steps=10, save_steps=10, learning_rate=1e-2, warmup_steps=3,
            report_to=[], use_cpu=True, disable_tqdm=True, seed=0, weight_decay=0.1, **options,
        )  # fmt: skip
        begin = {name: value.detach().clone() for name, value in model.state_dict().items()}
        for resumed in (None, f"{folder}/checkpoint-10"):
            model.load_state_dict(begin)
            trainer = InOrder(model=model, args=args, train_dataset=data, eval_dataset=data[:5], data_collator=collator)
            done = trainer.train(resume_from_checkpoint=resumed)
            history = trainer.state.log_history
            names = ("loss", "eval_loss", "grad_norm", "learning_rate")
            found += [float(line[name]) for line in history for name in names if name in line]
            found.append(done.training_loss)
        found.append(trainer.evaluate()["eval_loss"])
        found += [float(np.abs(trainer.predict(data[:3]).predictions).sum())]
        trainer.save_model(f"{folder}/last")
        again = type(model).from_pretrained(f"{folder}/last")
        found.append(float(sum(p.detach().abs().sum() for p in again.parameters())))
    return found


def trainer_language(**options: Any) -> list[float]:
    """Train GPT-2 as a language model by Trainer."""
    from transformers import DataCollatorForLanguageModeling

    tokenizer = _tokenizer()
    data = [dict(tokenizer(text, return_token_type_ids=False)) for text in _TEXTS]
    return _trained(gpt2(), data, DataCollatorForLanguageModeling(tokenizer, mlm=False), **options)


def trainer_options() -> list[float]:
    """Train GPT-2 with gradient checkpointing, accumulation and bfloat16 autocast."""
    return trainer_language(gradient_checkpointing=True, gradient_accumulation_steps=2, bf16=True)


def trainer_classes() -> list[float]:
    """Train BERT as a classifier of padded texts by Trainer."""
    from transformers import BertConfig, BertForSequenceClassification, DataCollatorWithPadding

    tokenizer = _tokenizer()
    data = [{**tokenizer(text), "labels": len(text) % 3} for text in _TEXTS]
    config = BertConfig(
        vocab_size=61, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, num_labels=3,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return _trained(filled(BertForSequenceClassification(config)), data, DataCollatorWithPadding(tokenizer))


def pipeline_text() -> list[float]:
    """Generate text by a pipeline of a folder."""
    from transformers import pipeline

    tokenizer, found = _tokenizer(), []
    with tempfile.TemporaryDirectory() as folder:
        gpt2().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made = pipeline("text-generation", model=folder, device="cpu")
        for options in ({"num_beams": 1}, {"num_beams": 3}):
            for text in made(["the cat", "a dog ran on"], do_sample=False, max_new_tokens=5, batch_size=2, **options):
                found += [float(ord(c)) for c in text[0]["generated_text"]]
    return found


CASES = {
    "Trainer: BERT, classes of padded texts, 20 steps, resumed": trainer_classes,
    "Trainer: GPT-2, language model, 20 steps, resumed": trainer_language,
    "the same with checkpointing, accumulation, bf16": trainer_options,
    "pipeline('text-generation')": pipeline_text,
}
TOLERANCES = {"the same with checkpointing, accumulation, bf16": 4e-3}
measured = numbers_of(CASES)
