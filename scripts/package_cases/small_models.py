"""Weights, tokens and training steps that cases share."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np


class Late:
    """A module that is imported when it is used: the page is written without PyTorch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


torch: Any = Late("torch")  # xgrad, or PyTorch
nn: Any = Late("torch.nn")


def filled(model: Any, seed: int = 0, scale: float = 0.2) -> Any:
    """Return the model with parameters of one stream of random numbers."""
    random = np.random.RandomState(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(np.asarray(random.randn(*p.shape) * scale, "float32")))
    return model


def normal(*shape: int, seed: int = 1) -> Any:
    """Return float32 numbers of a stream of their own."""
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape).astype("float32"))


def tokens(*shape: int, seed: int = 2) -> Any:
    """Return tokens from 3 to 59."""
    return torch.from_numpy(np.random.RandomState(seed).randint(3, 60, shape or (2, 9)))


def gpt2(**options: Any) -> Any:
    """Return a small GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=61, n_embd=16, n_layer=2, n_head=2, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, **options,
    )  # fmt: skip
    return filled(GPT2LMHeadModel(config))


def trained(model: Any, loss_of: Any, steps: int = 3, **options: Any) -> list[float]:
    """Return the losses and the sums of the gradients' absolute values of AdamW steps."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, **options)
    found = []
    for _ in range(steps):
        loss = loss_of()
        loss.backward()
        sums = [float(p.grad.abs().sum()) for p in model.parameters() if p.grad is not None]
        found += [loss.item(), sum(sums), float(len(sums))]
        optimizer.step()
        optimizer.zero_grad()
    return found


def numbers_of(cases: Mapping[str, Callable[[], list[float]]]) -> Callable[..., tuple[list[str], dict[str, Any]]]:
    """Return the function that runs a case by its name: the cells of its row, and what is compared.

    Each number has a 1 beside it: a difference is relative to the number, and to 1 at least.
    """

    def measured(name: str, folder: Path, oracle: bool) -> tuple[list[str], dict[str, Any]]:
        found = cases[name]()
        shown = ", ".join(f"{x:.5g}" for x in found[:3])
        return [str(len(found)), shown], {str(i): np.array([x, 1.0]) for i, x in enumerate(found)}

    return measured
