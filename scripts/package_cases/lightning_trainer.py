"""lightning's Trainer, in numbers."""

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .small_models import filled, nn, numbers_of, torch

TITLE = "lightning {version}"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


def lightning_fit() -> list[float]:
    """Fit a module by lightning's Trainer: validation, checkpoints, schedule, clipping; resume; predict; summary."""
    import lightning as L
    from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger
    from lightning.pytorch.utilities.model_summary import ModelSummary

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    losses: list[float] = []

    class Small(L.LightningModule):
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.example_input_array = torch.zeros(2, 6)
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
            "accumulate_grad_batches": 2, "enable_model_summary": True, "log_every_n_steps": 1,
            "default_root_dir": folder,
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
        found.append(ModelSummary(loaded, max_depth=-1).total_flops)
    return found


CASES = {
    "Trainer.fit, resumed, predict, validate, bf16-mixed, summary": lightning_fit,
}
measured = numbers_of(CASES)
