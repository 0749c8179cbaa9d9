"""Loops of accelerate, in numbers."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .small_models import filled, gpt2, nn, numbers_of, tokens, torch

TITLE = "accelerate {version}"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.
In bfloat16 rounding differs: 1e-4 is close.

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


def _small() -> Any:
    return filled(nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)))


def _data(n: int = 16) -> list[tuple[Any, Any]]:
    random = np.random.RandomState(1)
    return [(torch.from_numpy(random.randn(6).astype("float32")), int(random.randint(3))) for _ in range(n)]


def accelerate_loop(**options: Any) -> list[float]:
    """Train with accumulation, clipping, a schedule; save and load the state; gather."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True, **options)
    model = _small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(_data(), batch_size=4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(3):
            for x, y in loader:
                with accelerator.accumulate(model):
                    with accelerator.autocast():
                        loss = nn.functional.cross_entropy(model(x), y)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        found.append(float(accelerator.clip_grad_norm_(model.parameters(), 0.5)))
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                found += [loss.item(), schedule.get_last_lr()[0]]
            if epoch == 0:
                accelerator.save_state(folder)
            if epoch == 1:
                accelerator.load_state(folder)
    plain = accelerator.unwrap_model(model)
    found += [float(p.abs().sum()) for p in plain.parameters()]
    gathered = accelerator.gather_for_metrics((loss.detach().reshape(1), y))
    found += [float(gathered[0]), *map(float, gathered[1])]
    found.append(float(accelerator.reduce(loss.detach(), "mean")))
    accelerator.free_memory()
    return found


def accelerate_bfloat16() -> list[float]:
    """Train with mixed_precision="bf16"."""
    return accelerate_loop(mixed_precision="bf16")


def accelerate_big() -> list[float]:
    """Make an empty model, load a checkpoint into it and dispatch it to one device."""
    from accelerate import init_empty_weights, load_checkpoint_and_dispatch
    from accelerate.utils import compute_module_sizes, infer_auto_device_map

    model = gpt2()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="5KB")
        with init_empty_weights():
            empty = type(model)(model.config)
        assert all(p.device.type == "meta" for p in empty.parameters())
        empty.tie_weights()
        sizes = compute_module_sizes(empty)
        places = infer_auto_device_map(empty, max_memory={"cpu": "1GB"})
        index = Path(folder) / "model.safetensors.index.json"
        prefix = "transformer." if "transformer." in index.read_text() else ""
        assert prefix
        full = load_checkpoint_and_dispatch(empty, str(folder), device_map={"": "cpu"})
        ids = tokens()
        with torch.no_grad():
            out = full.eval()(ids, labels=ids)
    return [float(sizes[""]), float(len(places)), out.loss.item(), float(out.logits.abs().sum())]


CASES = {
    "Accelerator: accumulation, clipping, schedule, save_state, load_state, gather": accelerate_loop,
    "the same, mixed_precision='bf16'": accelerate_bfloat16,
    "init_empty_weights, load_checkpoint_and_dispatch": accelerate_big,
}
measured = numbers_of(CASES)
