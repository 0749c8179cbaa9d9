"""A model of images: the same weights, its result, all gradients, and the weights after a step."""

from pathlib import Path
from typing import Any

import numpy as np


def _filled(name: str, value: Any, random: np.random.RandomState) -> np.ndarray:
    """Return weights with which a deep network's values stay near one, and nothing is zero."""
    drawn = random.randn(*value.shape).astype("float32")
    if name.endswith("running_var"):
        return 0.5 + np.abs(drawn)
    if value.ndim > 1:
        return drawn / np.sqrt(max(value[0].numel(), 1))
    return 0.1 * drawn + (1.0 if value.ndim and bool((value == 1).all()) else 0.0)


def _parts(result: Any) -> list[Any]:
    """Return the tensors in a model's result."""
    if isinstance(result, dict):
        return [part for key in sorted(result) for part in _parts(result[key])]
    if isinstance(result, (list, tuple)):
        return [part for item in result for part in _parts(item)]
    return [] if result is None else [result]


def measure(model: Any, size: int, file: Path, first: bool, training: bool = False) -> tuple[list[str], dict[str, Any]]:
    """Return a row's cells, and the arrays to compare, of a model that was just made.

    PyTorch's run fills the weights and saves the state_dict, which xgrad's run loads.
    """
    import torch  # noqa: TID251 - xgrad, or PyTorch

    random = np.random.RandomState(0)
    weights = {name for name, _ in model.named_parameters()} | {
        name for name in model.state_dict() if name.endswith(("running_mean", "running_var"))
    }
    arrays = {  # tables that the model computes when it is made
        f"made {name}": value.numpy() for name, value in model.named_buffers() if name not in weights
    }
    if first:
        for name, value in model.state_dict().items():
            if name in weights:
                value.copy_(torch.from_numpy(_filled(name, value, random)))
        torch.save(model.state_dict(), file)
    else:
        model.load_state_dict(torch.load(file, weights_only=True))
    model.train(training)
    x = torch.from_numpy(np.random.RandomState(1).randn(2, 3, size, size).astype("float32")).requires_grad_()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    results = _parts(model(x))
    random = np.random.RandomState(2)
    loss = sum((y * torch.from_numpy(random.randn(*y.shape).astype("float32"))).sum() for y in results)
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    arrays |= {f"result {i}": y.detach().numpy() for i, y in enumerate(results)}
    arrays |= {f"gradient {name}": grad.numpy().copy() for name, grad in gradients.items()}
    arrays["gradient of the image"] = x.grad.numpy()
    total = sum(float(grad.abs().sum()) for grad in gradients.values())
    optimizer.step()
    arrays |= {f"after {name}": value.detach().numpy() for name, value in model.state_dict().items()}
    count = sum(p.numel() for p in model.parameters())
    return [f"{count:,}", f"{float(loss):.5f}, {total:.4f}"], arrays
