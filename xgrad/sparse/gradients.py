"""Makes the sparse gradient of an embedding, and passes sparse gradients backward through other operators' nodes.

An embedding's gradient has one entry for each number that was looked up.  (PyTorch: embedding_sparse_backward.)
"""

from collections.abc import Callable
from typing import Any

from ..base.jax_compat import Tracer
from ..config import Unrecorded
from ..dispatch.call import call
from ..dispatch.tables import FUNCTIONS
from ..engine.arithmetic import Arithmetic
from ..engine.sparse_gradient import SparseGradient
from ..ops.sparse.parts import private
from ..tensor import Tensor
from .node import record
from .tensor import SparseTensor, densely, from_parts, gather


def node_gradients(node: Any, grad: SparseTensor, needs: int, arithmetic: Arithmetic) -> Any:
    """Compute the results of a recorded operator's node for a sparse gradient.

    A node that passes its gradient on passes the sparse one; an elementwise node computes with the entries, and its
    saved values at their places; any other node gets a dense gradient.
    """
    plan, edges = node.plan, node.next_edges
    wanted = [i for i in plan.indices if needs >> i & 1]
    out: list = [None] * len(edges)
    if plan.passes:
        return [SparseGradient(grad) if i in wanted else None for i in range(len(edges))]
    if plan.reuses and not plan.static:  # pointwise
        if grad.requires_grad:
            grad = grad.coalesce()
        saved = _at_entries(node, grad)
        if saved is not None:
            entries = grad.values() if grad.requires_grad else grad._entries
            results = call(plan.operator((needs, (None,), None, plan.no_metas, False)), (entries, *saved), ())
            for i, result in zip(wanted, results if isinstance(results, tuple) else (results,), strict=True):
                out[i] = SparseGradient(from_parts(grad._index, result, grad._sizes, grad._coalesced))
            return out
    return node._apply([arithmetic.from_tensor(densely(grad))], needs, arithmetic)


def _at_entries(node: Any, grad: SparseTensor) -> list | None:
    """The node's saved values at the entries of a gradient; None where the shapes differ."""
    values = []
    for value in node._unpack():
        if isinstance(value, Tensor) and value.ndim:
            if tuple(value.shape) != grad._sizes:
                return None
            value = call(gather, (value, grad._index), ())
        values.append(value)
    return values


# -- rows of a table --------------------------------------------------------------------------------------------------


def embedding(weight: Tensor, indices: Tensor, padding_idx: int, lookup: Callable[..., Any]) -> Tensor:
    """Look up the rows that `indices` name; the gradient of `weight` has only those rows, one entry for each index."""
    with Unrecorded():
        result = lookup()
    size = tuple(weight.shape)
    index = private(indices)

    def rule(grad: Any, needs: int) -> tuple:
        flat, rows = index.reshape(-1), densely(grad).reshape(-1, size[1])
        if padding_idx >= 0:
            counted = flat != padding_idx
            if isinstance(counted._read(), Tracer):
                rows = FUNCTIONS[""]["where"](counted.unsqueeze(1), rows, 0)
            else:
                kept = counted.nonzero()[:, 0]
                flat, rows = flat.index_select(0, kept), rows.index_select(0, kept)
        return (from_parts(flat.unsqueeze(0), rows, size, False),)

    return record("EmbeddingBackward0", result, (weight,), rule)
