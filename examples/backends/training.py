"""The program of the examples: two steps of a small network, with a write through a view and a sort."""

import xgrad


def step(device):
    """Train on a device; return the last loss."""
    xgrad.manual_seed(0)
    model = xgrad.nn.Linear(16, 8).to(device)
    optimizer = xgrad.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        x = xgrad.randn(32, 16, device=device)
        x[0].mul_(2)
        loss = model(x).tanh().sort(dim=0).values.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def show(backend):
    """Run on a backend, print its report, and return it."""
    step(backend)  # compiles
    with backend.report() as report:
        step(backend)
    print(report)
    return report
