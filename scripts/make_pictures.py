"""Draw the pictures of the README and of docs/concepts/seeing.md: `python scripts/make_pictures.py`."""

import argparse
from pathlib import Path
from typing import Any

import xgrad
import xgrad.nn.functional as F
from xgrad import viz

ROOT = Path(__file__).parents[1]


def network() -> viz.Drawing:
    x, target = xgrad.randn(16, 3), xgrad.randn(16, 1)
    w1, b1 = xgrad.randn(3, 8, requires_grad=True), xgrad.zeros(8, requires_grad=True)
    w2, b2 = xgrad.randn(8, 1, requires_grad=True), xgrad.zeros(1, requires_grad=True)
    h = (x @ w1 + b1).tanh()
    h.retain_grad()

    def average(variable: xgrad.Tensor) -> None: ...

    w1.register_post_accumulate_grad_hook(average)
    loss = (h @ w2 + b2 - target).square().mean()
    return viz.graph(loss)


def writes() -> viz.Drawing:
    leaf, w = xgrad.randn(2, 3, requires_grad=True), xgrad.randn(3, requires_grad=True)
    base = leaf.clone()
    row, corner = base[0], base.t()[1:]
    row.mul_(w)
    corner.add_(w[:2])
    return viz.graph([base, row])


def write() -> viz.Drawing:
    x, w = xgrad.randn(2, 3, requires_grad=True), xgrad.randn(3, requires_grad=True)
    y = x.clone()
    row = y[0]
    row.mul_(w)
    return viz.graph((y * y).sum(), direction="right")


def comparison() -> Any:
    def scale_diagonal(x: xgrad.Tensor, w: xgrad.Tensor) -> xgrad.Tensor:  # as in the README
        y = x.clone()
        diagonal = y.diagonal()
        diagonal.mul_(w)
        y.t()[2].add_(1)
        return y * diagonal

    return xgrad.compare(scale_diagonal, xgrad.randn(512, 512).requires_grad_(), xgrad.randn(512).requires_grad_())


def storage() -> viz.Drawing:
    base = xgrad.zeros(4, 6)
    row, column = base[1], base.t()[2]
    _ = column.tolist()
    row.add_(1)
    return viz.storage(base)


class Block(xgrad.nn.Module):
    """A layer of a transformer with one head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("query", "key", "value", "out"):
            self.register_parameter(name, xgrad.nn.Parameter(xgrad.randn(width, width) / width**0.5))
        self.up = xgrad.nn.Parameter(xgrad.randn(width, 4 * width) / width**0.5)
        self.down = xgrad.nn.Parameter(xgrad.randn(4 * width, width) / width)

    def forward(self, x: xgrad.Tensor) -> xgrad.Tensor:
        n = F.layer_norm(x, (x.shape[-1],))
        weights = (n @ self.query @ (n @ self.key).transpose(-1, -2)).softmax(-1)
        x = x + weights @ (n @ self.value) @ self.out
        return x + F.gelu(F.layer_norm(x, (x.shape[-1],)) @ self.up) @ self.down


class Transformer(xgrad.nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = xgrad.nn.Parameter(xgrad.randn(32, width))
        self.layers = xgrad.nn.ModuleList([Block(width) for _ in range(layers)])
        self.head = xgrad.nn.Parameter(xgrad.randn(width, 32) / width**0.5)

    def forward(self, tokens: xgrad.Tensor) -> xgrad.Tensor:
        x = F.embedding(tokens, self.embedding)
        for layer in self.layers:
            x = layer(x)
        return x @ self.head


def transformer() -> viz.Drawing:
    model, tokens = Transformer(16, 12), xgrad.zeros(8, dtype=xgrad.int32)
    return viz.graph(F.cross_entropy(model(tokens), tokens), params=model)


def program() -> viz.Drawing:
    x, target = xgrad.randn(32, 8), xgrad.randn(32, 16)
    w, b = xgrad.randn(8, 16, requires_grad=True), xgrad.zeros(16, requires_grad=True)

    @xgrad.compile
    def step(x: xgrad.Tensor) -> xgrad.Tensor:
        w.grad = b.grad = None
        loss = ((x @ w + b).tanh() - target).square().mean()
        loss.backward()
        with xgrad.no_grad():
            for p in (w, b):
                p.sub_(p.grad, alpha=0.1)
        return loss.detach()

    step(x)
    return viz.program(step)


def steps() -> viz.Drawing:
    x = xgrad.ones(2, requires_grad=True)

    def clip(grad: xgrad.Tensor) -> xgrad.Tensor:
        return grad

    h = x.exp()
    h.register_hook(clip)
    loss = (h * x).sum()
    return viz.backward(loss)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    folder = parser.parse_args().out
    folder.mkdir(exist_ok=True)
    for draw in (write, network, writes, storage, transformer, program):
        draw().save(folder / f"{draw.__name__}.svg")
    comparison().plot().figure.savefig(folder.parent / "comparison.png", dpi=100)
    (folder / "steps.html").write_text(steps().html(), encoding="utf-8")
