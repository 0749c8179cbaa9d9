"""A physics-informed network: it solves an equation, u'' + 0.4 u' + 4 u = 0, whose solution nobody shows it.

    python examples/pytorch/oscillator.py --steps 400

The loss has the derivatives of the network by its input, so training takes third derivatives; compiled, the step is one
program.  (Raissi, Perdikaris, Karniadakis: Physics-informed neural networks, 2019.)
"""

import argparse
import math

import xgrad as torch
from xgrad import nn

DAMPING, STIFFNESS = 0.4, 4.0


def slope(y, x):
    """Return dy/dx at each point, as part of the graph."""
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def exact(t):
    """Return the solution with u(0) = 1, u'(0) = 0."""
    half = DAMPING / 2
    speed = math.sqrt(STIFFNESS - half**2)
    return torch.exp(-half * t) * (torch.cos(speed * t) + half / speed * torch.sin(speed * t))


def main(steps):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    times = torch.linspace(0, 3, 64)[:, None]

    @torch.compile
    def step():
        t = times.detach().requires_grad_()
        u = net(t)
        velocity = slope(u, t)
        residual = slope(velocity, t) + DAMPING * velocity + STIFFNESS * u
        loss = residual.square().mean() + 10 * ((u[0] - 1).square() + velocity[0].square()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for i in range(steps):
        loss = step()
        if i % max(1, steps // 5) == 0 or i == steps - 1:
            with torch.no_grad():
                off = (net(times) - exact(times)).abs().max()
            print(f"step {i}: loss {loss.item():.4f}, farthest from the solution {off.item():.3f}")
    return loss.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    main(parser.parse_args().steps)
