"""torchmetrics, in numbers."""

from typing import Any

import numpy as np

from .small_models import normal, numbers_of, torch

TITLE = "torchmetrics {version}"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.
Those of retrieval, and perplexity, ask for int64, so that JAX has to be in its 64-bit mode.

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


def metrics() -> list[float]:
    """Update and compute metrics of classes, regression, retrieval and images; modules and functions."""
    import torchmetrics as tm
    from torchmetrics.functional import cosine_similarity, pairwise_euclidean_distance

    random = np.random.RandomState(0)
    scores = torch.from_numpy(random.rand(40, 4).astype("float32")).softmax(-1)
    target = torch.from_numpy(random.randint(0, 4, 40))
    kinds: dict[str, dict[str, Any]] = {
        "Accuracy": {}, "F1Score": {"average": "macro"}, "AUROC": {}, "ConfusionMatrix": {}, "AveragePrecision": {},
        "CohenKappa": {}, "MatthewsCorrCoef": {}, "CalibrationError": {},
    }  # fmt: skip
    made = {kind: getattr(tm, kind)(task="multiclass", num_classes=4, **options) for kind, options in kinds.items()}
    made["binned"] = tm.AUROC(task="multiclass", num_classes=4, thresholds=5)
    both = tm.MetricCollection(made)
    found: list[float] = []
    for part in range(2):
        both.update(scores[part * 20 : part * 20 + 20], target[part * 20 : part * 20 + 20])
    for value in both.compute().values():
        found += map(float, value.reshape(-1))
    x, y = normal(30), normal(30, seed=2)
    for kind in (
        tm.MeanSquaredError, tm.MeanAbsoluteError, tm.R2Score, tm.PearsonCorrCoef, tm.SpearmanCorrCoef,
        tm.KendallRankCorrCoef, tm.ExplainedVariance, tm.MeanSquaredLogError, tm.SymmetricMeanAbsolutePercentageError,
    ):  # fmt: skip
        metric = kind()
        metric.update(x.abs(), (x + y).abs())
        found.append(float(metric.compute()))
    mean = tm.MeanMetric()
    found += [float(mean(x)), float(mean(y)), float(mean.compute())]
    tracked = tm.MinMaxMetric(tm.MeanMetric())
    tracked.update(x)
    found += map(float, tracked.compute().values())
    images = normal(2, 3, 16, 16).abs(), normal(2, 3, 16, 16, seed=3).abs()
    for image in (tm.PeakSignalNoiseRatio(data_range=1.0), tm.StructuralSimilarityIndexMeasure(data_range=1.0)):
        found.append(float(image(*images)))
    found += map(float, cosine_similarity(normal(3, 4), normal(3, 4, seed=2), reduction="none"))
    found.append(float(pairwise_euclidean_distance(normal(3, 4)).sum()))
    return found


def retrieval() -> list[float]:
    """Compute metrics of retrieval, and perplexity."""
    import torchmetrics as tm

    index, x, y = torch.tensor([0] * 15 + [1] * 15), normal(30), normal(30, seed=2)
    kinds = (tm.RetrievalMRR, tm.RetrievalMAP, tm.RetrievalNormalizedDCG)
    found = [float(kind()(x, y > 0, indexes=index)) for kind in kinds]
    target = torch.from_numpy(np.random.RandomState(0).randint(0, 4, (2, 15)))
    return [*found, float(tm.text.Perplexity()(normal(2, 15, 4), target))]


CASES = {
    "classes, regression, images": metrics,
    "retrieval, perplexity (JAX_ENABLE_X64=1)": retrieval,
}
measured = numbers_of(CASES)
