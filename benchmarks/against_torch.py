"""The rows that compare with torch: both libraries run the same lines, from `xgrad/cli/workloads.py`."""

import xgrad
from xgrad.cli.ratios import Row, Timed
from xgrad.cli.workloads import (
    COMPILED,
    EAGER,
    SMALL,
    WIDE,
    chain,
    chain_values,
    leaves,
    mlp,
    view_writes,
    view_writes_values,
)


def torch():
    """torch on one thread; imported where it is needed, as it need not be there."""
    import torch

    torch.set_num_threads(1)
    return torch


def kept_backward(T, nodes: int, **options):
    """Backward alone of a chain whose graph is recorded once, and kept."""
    x, w, c = leaves(chain_values(), T)
    loss = chain(T, nodes, x, w, c.detach())
    return lambda: T.autograd.grad(loss, (x, w), retain_graph=True, **options)


def written_through_views(T):
    tensors = leaves(view_writes_values(), T)
    return lambda: view_writes(T, *tensors)


ROWS = [
    Row(
        "view_writes_torch", EAGER, "64 view writes and backward", "torch",
        lambda: Timed(written_through_views(xgrad), written_through_views(torch()), tolerance=1e-3),
        0.5, 0.3, needs="torch",
    ),
    Row(
        "mlp_step_torch", EAGER, "MLP step", "torch",
        lambda: Timed(mlp(xgrad, WIDE), mlp(torch(), WIDE), tolerance=1e-3),
        1.5, 1.1, needs="torch",
    ),
    Row(
        "backward_torch", COMPILED, "backward alone of 1000 tiny nodes", "torch",
        lambda: Timed(kept_backward(xgrad, 1000, compiled=True), kept_backward(torch(), 1000), tolerance=1e-3),
        0.8, 0.45, needs="torch",
    ),
    Row(
        "mlp_small_torch", COMPILED, "small MLP step", "torch",
        lambda: Timed(mlp(xgrad, SMALL, xgrad.compile), mlp(torch(), SMALL), tolerance=1e-3),
        0.4, 0.3, needs="torch",
    ),
]  # fmt: skip
