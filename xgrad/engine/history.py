"""Implements `Tensor.grad_fn`, and replaces it after an in-place write; a view gets its new one from its base.

A view's own `grad_fn` holds for one version of the storage.  After a write its base has a new history, and the next
reader of the view's `grad_fn` gets one that leads there (PyTorch: torch/csrc/autograd/variable.cpp).
"""

import weakref
from typing import Any

from ..tensor import Tensor
from ..views.meta import CreationMeta, ViewMeta, relation_of, view_error
from .copy_slices import CopySlices
from .edges import gradient_edge
from .hooks import move_retained_hook
from .node import InputMetadata, Node
from .view_nodes import chain_node


def grad_fn(self: Tensor) -> Node | None:
    """The node that made this tensor, or None for a leaf; the node of a stale view is regenerated."""
    meta = self._view
    if meta is not None and meta.attr_version != self._version:
        _regenerate(self, meta)
    return self._grad_fn


def _regenerate(view: Tensor, meta: ViewMeta) -> None:
    """Make the grad_fn of a view from its base's present history."""
    base = meta.base
    if (view._grad_fn is None and not base._requires_grad) or base._storage is not view._storage:
        # A leaf, or nothing to differentiate.  The version stays old, because the base may require grad later.
        return
    if meta.creation_meta is not CreationMeta.DEFAULT:
        raise view_error(view, indirect=True)
    chain, path = relation_of(view)
    name = "AsStridedBackward0" if path == "geometry" else meta.name
    node = chain_node(name, chain, gradient_edge(base))
    move_retained_hook(view, node)
    view._grad_fn, view._output_nr, view._requires_grad = node, 0, True
    meta.attr_version = view._version


def rebase_history(self: Tensor, node: Node) -> None:
    """Make `node` the history of a tensor that was written in place.

    Tensor hooks stay with the old node, because they observe the tensor as it was; a retain-grad hook moves to the new.
    """
    meta = self._view
    if meta is None:
        if self._retains_grad:
            move_retained_hook(self, node)
        self._grad_fn, self._output_nr, self._requires_grad = node, 0, True
        return
    base = meta.base
    chain, _ = relation_of(self)
    edge = gradient_edge(base)
    copy_slices = CopySlices(edge, InputMetadata(chain.root_shape, chain.root_dtype), chain, node)
    if base._retains_grad:
        move_retained_hook(base, copy_slices)
    base._grad_fn, base._output_nr, base._requires_grad = copy_slices, 0, True
    # The view's own grad_fn is regenerated when it is next read, because its version is old now.  If the view retains
    # its gradient, the hook has to be on the new node before backward runs.
    self._requires_grad = True
    if self._retains_grad:
        self.grad_fn  # noqa: B018


def history_of_view(self: Tensor, base: Tensor) -> Any:
    """Make a function that returns the grad_fn of a view that was just written, to which it refers weakly.

    If the view has died, the function makes the grad_fn again, from the grad_fn of `base`: the CopySlices whose `fn` is
    asking.
    """
    view_fn, base_fn = weakref.ref(self.grad_fn), weakref.ref(base._grad_fn)

    def grad_fn() -> Any:
        node, owner = view_fn(), base_fn()
        if node is None and isinstance(owner, CopySlices):
            node = chain_node("AsStridedBackward0", owner.chain, (owner, 0))
        return node

    return grad_fn
