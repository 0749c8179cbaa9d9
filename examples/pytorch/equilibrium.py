"""A deep equilibrium layer: the fixed point of z = f(z, x), whose gradient a hook solves for.

    python examples/pytorch/equilibrium.py --steps 60

Forward looks for the fixed point without a record.  One recorded step of f from there has the gradient of f; a hook on
its result puts in place of the incoming gradient g the solution of v = g + v ∂f/∂z, which is the gradient of the whole
iteration.  (Bai, Kolter, Koltun: Deep Equilibrium Models, 2019.)
"""

import argparse

import xgrad as torch
from xgrad import nn
from xgrad.nn import functional as F


def fixed_point(f, z, steps=25):
    """Iterate z = f(z)."""
    for _ in range(steps):
        z = f(z)
    return z


class Equilibrium(nn.Module):
    """Inputs (batch, width) to the fixed points (batch, width) of a layer that gets them at each step."""

    def __init__(self, width):
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        with torch.no_grad():
            self.inner.weight.mul_(0.5)  # a contraction has one fixed point

    def forward(self, x):
        def f(z):
            return torch.tanh(self.inner(z) + self.outer(x))

        with torch.no_grad():
            found = fixed_point(f, torch.zeros_like(x))
        z = f(found)
        if z.requires_grad:
            start = found.clone().requires_grad_()
            again = f(start)

            def solve(gradient):
                def pulled(v):
                    return torch.autograd.grad(again, start, v, retain_graph=True)[0] + gradient

                return fixed_point(pulled, gradient)

            z.register_hook(solve)
        return z


def main(steps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 16), Equilibrium(16), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    x = torch.randn(64, 3)
    y = x[:, :1] * x[:, 1:2] + x[:, 2:].sin()
    for step in range(steps):
        with torch.lazy():
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % max(1, steps // 5) == 0 or step == steps - 1:
            print(f"step {step}: loss {loss.item():.4f}")
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    main(parser.parse_args().steps)
