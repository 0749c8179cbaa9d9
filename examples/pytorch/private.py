"""DP-SGD: each sample's gradient is clipped before they are added, and noise hides what one sample can do.

    python examples/pytorch/private.py --steps 100

`func.vmap` over `func.grad` gives a gradient for each sample in one program.
(Abadi et al.: Deep Learning with Differential Privacy, 2016.)
"""

import argparse

import xgrad as torch
from xgrad import nn
from xgrad.func import functional_call, grad, vmap
from xgrad.nn import functional as F

CLIP, NOISE = 1.0, 0.5


def data(size=256):
    """Return points of the plane, and 1 for those within a circle."""
    x = 2 * torch.rand(size, 2) - 1
    return x, (x.square().sum(1) < 0.6).long()


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)

    def loss_of_one(weights, x, y):
        return F.cross_entropy(functional_call(model, weights, x[None]), y[None])

    @torch.lazy()
    def step(x, y):
        weights = {name: p.detach() for name, p in model.named_parameters()}
        each = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(weights, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        scale = (CLIP / norms).clamp(max=1.0)
        for name, p in model.named_parameters():
            clipped = torch.einsum("i,i...->...", scale, each[name])
            p.grad = (clipped + NOISE * CLIP * torch.randn_like(p)) / len(x)
        optimizer.step()

    for i in range(steps):
        step(*data())
        if i % max(1, steps // 5) == 0 or i == steps - 1:
            x, y = data()
            with torch.no_grad():
                scores = model(x)
            right = (scores.argmax(1) == y).float().mean()
            print(f"step {i}: {right.item():.0%} right")
    return F.cross_entropy(scores, y).item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    main(parser.parse_args().steps)
