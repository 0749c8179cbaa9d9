"""MAML: weights from which a sine wave is learned in one step, by gradients through that step.

    python examples/pytorch/maml.py --steps 200

The inner step makes new weights by `autograd.grad(create_graph=True)`; the outer one differentiates through it.
(Finn, Abbeel, Levine: Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks, 2017.)
"""

import argparse
import math

import xgrad as torch
from xgrad import nn
from xgrad.func import functional_call
from xgrad.nn import functional as F


def tasks(count, points=10):
    """Return the inputs and outputs of `count` sine waves: those to learn from, and those to be judged by."""
    height, shift = 0.5 + 4 * torch.rand(count, 1, 1), math.pi * torch.rand(count, 1, 1)
    x = 10 * torch.rand(count, 2 * points, 1) - 5
    y = height * torch.sin(x - shift)
    return x[:, :points], y[:, :points], x[:, points:], y[:, points:]


def adapted(model, weights, x, y, rate=0.1):
    """Return the weights after one step on a task; they remember how they were made."""
    loss = F.mse_loss(functional_call(model, weights, x), y)
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
    return {name: w - rate * g for (name, w), g in zip(weights.items(), gradients, strict=True)}


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    @torch.lazy()
    def step():
        weights = dict(model.named_parameters())
        losses = []
        for x, y, new_x, new_y in zip(*tasks(8), strict=True):
            own = adapted(model, weights, x, y)
            losses.append(F.mse_loss(functional_call(model, own, new_x), new_y))
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for i in range(steps):
        losses.append(step().item())
        if i % max(1, steps // 5) == 0 or i == steps - 1:
            print(f"step {i}: loss after one step on a new wave {sum(losses[-20:]) / len(losses[-20:]):.3f}")
    return losses[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    main(parser.parse_args().steps)
