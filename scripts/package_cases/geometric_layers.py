"""torch_geometric: layers on graphs, in numbers."""

import numpy as np

from .small_models import filled, nn, normal, numbers_of, torch, trained

TITLE = "torch_geometric {version}"
HEAD = """\
Shown are how many numbers are compared (losses, sums of gradients' absolute values, norms, results), and the first.

| case | numbers | PyTorch's first | xgrad |
| --- | --- | --- | --- |"""


def geometric() -> list[float]:
    """Train graph networks of several kinds, with scatter, pooling and batches."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import (
        GATConv,
        GATv2Conv,
        GCNConv,
        GINConv,
        GraphConv,
        SAGEConv,
        TransformerConv,
        global_add_pool,
        global_max_pool,
        global_mean_pool,
    )  # fmt: skip
    from torch_geometric.utils import add_self_loops, degree, scatter, softmax, to_dense_adj, to_undirected

    random = np.random.RandomState(0)
    edges = to_undirected(torch.from_numpy(random.randint(0, 9, (2, 14))))
    x, y = normal(9, 5), torch.from_numpy(random.randint(0, 3, 9))
    found = [float(edges.sum()), float(degree(edges[0], 9).square().sum())]
    for reduce in ("sum", "mean", "max", "min", "mul"):
        found.append(float(scatter(normal(9, 2), torch.arange(9) // 3, reduce=reduce).sum()))
    found.append(float(softmax(normal(9), torch.arange(9) // 4).square().sum()))
    found += [float(add_self_loops(edges)[0].sum()), float(to_dense_adj(edges).sum())]
    for kind in (GCNConv, GATConv, GATv2Conv, SAGEConv, GraphConv, TransformerConv):
        torch.manual_seed(0)
        first, second = kind(5, 8), kind(8, 3)
        model = filled(nn.ModuleList([first, second]))
        found += trained(
            model, lambda a=first, b=second: nn.functional.cross_entropy(b(a(x, edges).relu(), edges), y), 2
        )
    gin = filled(GINConv(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))))
    found += trained(gin, lambda: nn.functional.cross_entropy(gin(x, edges), y), 2)
    batch = Batch.from_data_list([Data(x=x, edge_index=edges), Data(x=x[:4], edge_index=edges[:, :0])])
    for pool in (global_add_pool, global_mean_pool, global_max_pool):
        found.append(float(pool(batch.x, batch.batch).sum()))
    return [*found, float(batch.num_graphs), float(batch[1].x.sum())]


CASES = {
    "seven convolutions, scatter, pooling, batches": geometric,
}
measured = numbers_of(CASES)
