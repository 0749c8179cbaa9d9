"""torchmetrics, lightning, torch_geometric and sentence-transformers, in numbers."""

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: TID251 - xgrad, or PyTorch
from torch import nn  # noqa: TID251

from .common import filled, normal, trained


def metrics() -> list[float]:
    """Update and compute metrics of classes, regression, retrieval and images; modules and functions."""
    import torchmetrics as tm
    from torchmetrics.functional import cosine_similarity, pairwise_euclidean_distance

    random = np.random.RandomState(0)
    scores = torch.from_numpy(random.rand(40, 4).astype("float32")).softmax(-1)
    target = torch.from_numpy(random.randint(0, 4, 40))
    made = {
        "acc": tm.Accuracy(task="multiclass", num_classes=4), "f1": tm.F1Score("multiclass", num_classes=4, average="macro"),
        "auroc": tm.AUROC(task="multiclass", num_classes=4), "conf": tm.ConfusionMatrix("multiclass", num_classes=4),
        "ap": tm.AveragePrecision(task="multiclass", num_classes=4), "kappa": tm.CohenKappa("multiclass", num_classes=4),
        "mcc": tm.MatthewsCorrCoef("multiclass", num_classes=4), "cal": tm.CalibrationError("multiclass", num_classes=4),
        "auroc_binned": tm.AUROC(task="multiclass", num_classes=4, thresholds=5),
    }  # fmt: skip
    both = tm.MetricCollection(made)
    found: list[float] = []
    for part in range(2):
        both.update(scores[part * 20 : part * 20 + 20], target[part * 20 : part * 20 + 20])
    for value in both.compute().values():
        found += map(float, value.reshape(-1))
    x, y = normal(30), normal(30, seed=2)
    for kind in (
        tm.MeanSquaredError, tm.MeanAbsoluteError, tm.R2Score, tm.PearsonCorrCoef, tm.SpearmanCorrCoef, tm.KendallRankCorrCoef,
        tm.ExplainedVariance, tm.MeanSquaredLogError, tm.SymmetricMeanAbsolutePercentageError,
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
    index = torch.tensor([0] * 15 + [1] * 15)
    for kind in (tm.RetrievalMRR, tm.RetrievalMAP, tm.RetrievalNormalizedDCG):
        found.append(float(kind()(x, y > 0, indexes=index)))
    found += map(float, cosine_similarity(normal(3, 4), normal(3, 4, seed=2), reduction="none"))
    found.append(float(pairwise_euclidean_distance(normal(3, 4)).sum()))
    found.append(float(tm.text.Perplexity()(scores.reshape(2, 20, 4).log(), target.reshape(2, 20))))
    return found


def lightning_fit() -> list[float]:
    """Fit a module by lightning's Trainer: validation, checkpoints, schedule, clipping; resume; predict."""
    import lightning as L
    from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    losses: list[float] = []

    class Small(L.LightningModule):
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = filled(nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 3)))

        def forward(self, x: Any) -> Any:
            return self.net(x)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
            self.log("train", loss, on_step=True, on_epoch=True)
            losses.append(float(loss))
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("valid", nn.functional.cross_entropy(self(batch[0]), batch[1]), prog_bar=True)

        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return self(batch[0])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    random = np.random.RandomState(1)
    x, y = random.randn(16, 6).astype("float32"), random.randint(0, 3, 16)
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "accelerator": "cpu", "devices": 1, "enable_progress_bar": False, "gradient_clip_val": 0.5,
            "accumulate_grad_batches": 2, "enable_model_summary": True, "log_every_n_steps": 1, "default_root_dir": folder,
        }  # fmt: skip
        kept = ModelCheckpoint(folder, monitor="valid", save_last=True)
        trainer = L.Trainer(
            max_epochs=3, callbacks=[kept, EarlyStopping("valid"), LearningRateMonitor()],
            logger=CSVLogger(folder), **options,
        )  # fmt: skip
        trainer.fit(Small(), loader, loader)
        found = [*losses, float(trainer.callback_metrics["valid"]), float(kept.best_model_score)]
        losses.clear()
        again = L.Trainer(max_epochs=4, logger=False, callbacks=[ModelCheckpoint(f"{folder}/b")], **options)
        again.fit(Small(), loader, loader, ckpt_path=f"{folder}/last.ckpt")
        found += losses
        loaded = Small.load_from_checkpoint(Path(folder) / "last.ckpt")
        found += [float(p.abs().sum()) for p in trainer.predict(loaded, loader)]
        found += [float(trainer.validate(loaded, loader, verbose=False)[0]["valid"])]
        bf16 = L.Trainer(max_epochs=1, precision="bf16-mixed", logger=False, enable_checkpointing=False, **options)
        bf16.fit(Small(), loader)
        found.append(float(bf16.callback_metrics["train_epoch"]))
    return found


def geometric() -> list[float]:
    """Train graph networks of several kinds, with scatter, pooling and batches."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import (
        GATConv, GATv2Conv, GCNConv, GINConv, GraphConv, SAGEConv, TransformerConv, global_add_pool, global_max_pool,
        global_mean_pool,
    )  # fmt: skip
    from torch_geometric.utils import add_self_loops, degree, scatter, softmax, to_dense_adj, to_undirected

    random = np.random.RandomState(0)
    edges = to_undirected(torch.from_numpy(random.randint(0, 9, (2, 14))))
    x, y = normal(9, 5), torch.from_numpy(random.randint(0, 3, 9))
    found = [float(edges.sum()), float(degree(edges[0], 9).square().sum())]
    for reduce in ("sum", "mean", "max", "min", "mul"):
        found.append(float(scatter(normal(9, 2), torch.arange(9) // 3, reduce=reduce).sum()))
    found.append(float(softmax(normal(9), torch.arange(9) // 4).square().sum()))
    found += [float(add_self_loops(edges)[0].sum()), float(to_dense_adj(edges).sum())]
    for kind in (GCNConv, GATConv, GATv2Conv, SAGEConv, GraphConv, TransformerConv):
        torch.manual_seed(0)
        first, second = kind(5, 8), kind(8, 3)
        model = filled(nn.ModuleList([first, second]))
        found += trained(model, lambda a=first, b=second: nn.functional.cross_entropy(b(a(x, edges).relu(), edges), y), 2)
    gin = filled(GINConv(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))))
    found += trained(gin, lambda: nn.functional.cross_entropy(gin(x, edges), y), 2)
    batch = Batch.from_data_list([Data(x=x, edge_index=edges), Data(x=x[:4], edge_index=edges[:, :0])])
    for pool in (global_add_pool, global_mean_pool, global_max_pool):
        found.append(float(pool(batch.x, batch.batch).sum()))
    return [*found, float(batch.num_graphs), float(batch[1].x.sum())]


def sentences() -> list[float]:
    """Embed, compare and train with sentence-transformers, from a model made here."""
    from sentence_transformers import SentenceTransformer, util
    from sentence_transformers.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss
    from transformers import BertConfig, BertModel

    from .training import _TEXTS, _tokenizer

    with tempfile.TemporaryDirectory() as folder:
        filled(BertModel(BertConfig(
            vocab_size=61, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        ))).save_pretrained(folder)  # fmt: skip
        _tokenizer().save_pretrained(folder)
        model = SentenceTransformer(folder, device="cpu")
        embedded = model.encode(_TEXTS, convert_to_tensor=True, normalize_embeddings=True)
        found = [float(embedded.abs().sum()), float(util.cos_sim(embedded, embedded).sum())]
        found += [float(hit["corpus_id"]) for hits in util.semantic_search(embedded[:3], embedded, top_k=3) for hit in hits]
        features = [model.tokenize(_TEXTS[i : i + 3]) for i in (0, 3)]
        for loss, labels in ((MultipleNegativesRankingLoss(model), None), (CosineSimilarityLoss(model), normal(3).sigmoid())):
            found += trained(model, lambda loss=loss, labels=labels: loss([{**f} for f in features], labels), 2)
        model.save_pretrained(f"{folder}/saved")
        again = SentenceTransformer(f"{folder}/saved", device="cpu")
        found.append(float(np.abs(again.encode(_TEXTS[0])).sum()))
    return found


CASES = {
    "torchmetrics": {"classes, regression, retrieval, images, text": metrics},
    "lightning": {"Trainer.fit, resumed, predict, validate, bf16-mixed": lightning_fit},
    "torch_geometric": {"seven convolutions, scatter, pooling, batches": geometric},
    "sentence-transformers": {"encode, search, two losses, saved": sentences},
}
