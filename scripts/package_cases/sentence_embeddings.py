"""sentence-transformers, in numbers."""

import tempfile

import numpy as np

from .small_models import filled, normal, numbers_of, trained
from .transformers_training import _TEXTS, _tokenizer

TITLE = "sentence-transformers {version}"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


def sentences() -> list[float]:
    """Embed, compare and train with sentence-transformers, from a model made here."""
    from sentence_transformers import SentenceTransformer, util
    from sentence_transformers.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss
    from transformers import BertConfig, BertModel

    with tempfile.TemporaryDirectory() as folder:
        filled(BertModel(BertConfig(
            vocab_size=61, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        ))).save_pretrained(folder)  # fmt: skip
        _tokenizer().save_pretrained(folder)
        model = SentenceTransformer(folder, device="cpu")
        embedded = model.encode(_TEXTS, convert_to_tensor=True, normalize_embeddings=True)
        found = [float(embedded.abs().sum()), float(util.cos_sim(embedded, embedded).sum())]
        found += [
            float(hit["corpus_id"]) for hits in util.semantic_search(embedded[:3], embedded, top_k=3) for hit in hits
        ]
        features = [model.tokenize(_TEXTS[i : i + 3]) for i in (0, 3)]
        for loss, labels in (
            (MultipleNegativesRankingLoss(model), None),
            (CosineSimilarityLoss(model), normal(3).sigmoid()),
        ):
            found += trained(model, lambda loss=loss, labels=labels: loss([{**f} for f in features], labels), 2)
        model.save_pretrained(f"{folder}/saved")
        again = SentenceTransformer(f"{folder}/saved", device="cpu")
        found.append(float(np.abs(again.encode(_TEXTS[0])).sum()))
    return found


CASES = {
    "encode, search, two losses, saved": sentences,
}
measured = numbers_of(CASES)
