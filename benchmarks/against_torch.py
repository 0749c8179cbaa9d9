"""The rows that compare with torch: both libraries run the same lines, from `workloads.py`."""

import xgrad

from .lazy_workloads import lazily
from .ratios import Row, Timed
from .rows import COMPILED, EAGER, LAZY
from .workloads import SMALL, WIDE, chain, chain_gradient, chain_values, leaves, mlp, written_through_views


def torch():
    """torch on one thread; imported where it is needed, as it need not be there."""
    import torch

    torch.set_num_threads(1)
    return torch


def kept_backward(T, nodes: int, **options):
    """Backward alone of a chain whose graph is recorded once, and kept."""
    x, w, c = leaves(chain_values(4, 4), T)
    loss = chain(T, nodes, x, w, c.detach())
    return lambda: T.autograd.grad(loss, (x, w), retain_graph=True, **options)


def lazy_and_torch(make):
    """What `make` gives for xgrad, in a lazy block, and for torch."""
    return Timed(lazily(make(xgrad)), make(torch()), tolerance=1e-3)


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
    Row(
        "lazy_chain_torch", LAZY, "100 tiny operators and backward, lazy", "torch",
        lambda: lazy_and_torch(lambda T: chain_gradient(T, 100, 4, 4)), 1.6, 1.0, needs="torch",
    ),
    Row(
        "lazy_wide_torch", LAZY, "20 operators on 1e6 and backward, lazy", "torch",
        lambda: lazy_and_torch(lambda T: chain_gradient(T, 20, 1000, 1000)), 0.6, 0.4, needs="torch",
    ),
    Row(
        "lazy_mlp_small_torch", LAZY, "small MLP step, lazy", "torch",
        lambda: lazy_and_torch(lambda T: mlp(T, SMALL)), 1.6, 1.0, needs="torch",
    ),
    Row(
        "lazy_mlp_torch", LAZY, "MLP step, lazy", "torch",
        lambda: lazy_and_torch(lambda T: mlp(T, WIDE)), 1.1, 0.95, needs="torch",
    ),
]  # fmt: skip
