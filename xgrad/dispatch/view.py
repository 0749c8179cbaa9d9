"""Makes views of tensors for view operators, and records their autograd nodes; XLA runs nothing until a view is read.

A view that was made before costs one dictionary look-up in its chain, a Tensor, its ViewMeta, and the node if it is
recorded.
"""

from functools import partial
from typing import Any

from ..config import state, to_outer_forward_level
from ..engine.edges import gradient_edge
from ..engine.hooks import hooks_of, move_retained_hook
from ..engine.view_nodes import ChainBackward, ChainsBackward, chain_node, chains_node, restrided_node
from ..errors import public_caller
from ..execution.runner import runner
from ..tensor import Tensor, make_view
from ..views.chain import ViewChain
from ..views.meta import CreationMeta, chain_now, check_inplace, relation_of
from ..views.named.arguments import NO_DIM, int_of
from ..views.part import within
from .error_names import name_error
from .override_calls import ask_view
from .ruled_views import plainly, ruled, rules_of
from .wrong_arguments import require_tensor

DEFAULT = CreationMeta.DEFAULT


def view(self: Tensor, key: tuple[Any, ...], name: str, creation: CreationMeta = DEFAULT) -> Tensor:
    """Make the view of `self` that `key` = (PyTorch's name, *arguments) describes, recorded as a node called `name`.

    Raises PyTorch's errors for arguments that make no view.
    """
    out = try_view(self, key, name, creation)
    assert out is not None
    return out


def try_view(
    self: Tensor, key: tuple[Any, ...], name: str, creation: CreationMeta = DEFAULT, grow: Any = None
) -> Tensor | None:
    """Make a view as `view` does; return None if the layout allows no view, and a copy is needed (`reshape`).

    `grow`: the function that makes the chain, by the rules of an `xgrad.Backend`.
    """
    if not runner.plain:
        if (mode := state.operator_mode) is not None:
            return mode.view(key[0], self, partial(try_view, self, key, name, creation))
        if grow is None and runner.views and (rules := rules_of(self)) is not None:
            return ruled(rules, self, [key], partial(try_view, self, key, name, creation))
    if self.__class__ is not Tensor:
        if (result := ask_view(self, key)) is not NotImplemented:
            return result
        require_tensor(public_caller() or key[0], self)
    if self._storage is None or self._version_counter is None:
        self._share()
    chain = self._chain
    try:
        for argument in key:  # the first is a name
            if argument.__class__ in NO_DIM:
                int_of(argument)
        seen = chain.children.get(key) if grow is None else grow(chain, key)
        if seen is None:
            seen = chain.view(*key)
            if seen is None:
                return None
    except Exception as error:
        name_error(error)
        raise
    if chain.is_root:
        relative = seen
    elif key[0] == "as_strided":
        out = _strided(self, seen, name, creation)
        if self._tangents is not None:
            _strided_tangent(self, out, key)
        return out
    else:
        root = ViewChain.root(chain.shape, chain.dtype)
        relative = (root.children.get(key) or root.view(*key)) if grow is None else grow(root, key)
    out = attach_view(self, seen, relative, name, creation)
    if out._requires_grad:
        out._grad_fn.key = key
    return out


def attach_view(
    self: Tensor,
    seen: ViewChain,
    relative: ViewChain,
    name: str,
    creation: CreationMeta = DEFAULT,
    tangent: bool = True,
) -> Tensor:
    """Make a view and record it, with its tangent; its chain is `seen` from the root, `relative` from `self`."""
    out = make_view(self, seen, relative, name, creation)
    # `self.requires_grad`, written out as in call.py
    if (self._requires_grad or (self._view is not None and self._view.base._requires_grad)) and state.grad_enabled:
        out._grad_fn = chain_node(name, relative, gradient_edge(self))
        out._requires_grad = True
    if tangent and self._tangents is not None:
        _view_tangent(self, out, relative, name)
    return out


def _strided(self: Tensor, seen: ViewChain, name: str, creation: CreationMeta) -> Tensor:
    """Make the view of `as_strided`, which addresses the storage beyond `self`: its gradient goes to the base at once.

    (PyTorch sends it through the view and drops the part outside of the view.)  If the base requires no grad, as the
    base of a view that is a leaf does not, the gradient goes to the view.
    """
    parent = self._view
    if parent is not None and parent.chain is self._chain:
        record = state.grad_enabled and self.requires_grad
        own = gradient_edge(self)[0] if record else None  # raises for a stale view
        out = make_view(self, seen, seen, name, creation)
        if record:
            chain = relation_of(out)[0]
            if _leads_nowhere(own):
                node = chain_node(name, chain, (None, 0))
            elif parent.base.requires_grad:
                node = chain_node(name, chain, gradient_edge(parent.base))
            else:
                node = restrided_node(name, relation_of(self)[0], chain, gradient_edge(self))
            out._grad_fn, out._requires_grad = node, True
        return out
    relative = _from_part(self._chain, seen)
    if relative is not None:
        return attach_view(self, seen, relative, name, creation, tangent=False)
    # It addresses elements outside of `self`, a detached part of the storage: so is the alias.
    out = self._alias()
    out._chain, out._cache, out._cache_generation = seen, None, -1
    if state.grad_enabled and self.requires_grad:
        out._grad_fn, out._requires_grad = restrided_node(name, self._chain, seen, gradient_edge(self)), True
    return out


def _from_part(chain: ViewChain, seen: ViewChain) -> ViewChain | None:
    """The chain from `chain`'s view to `seen`, an `as_strided` of its storage; None if that is not inside the view."""
    back = chain.inverse()
    return within(chain, seen) if back is None else back.concat(seen)


def _strided_tangent(self: Tensor, out: Tensor, key: tuple) -> None:
    """Give an `as_strided` its tangent: the same `as_strided` of the tangent, if its storage has the same layout."""
    tangent = self._tangent_at(state.forward_level)
    if tangent is None:
        return
    tangent._share()
    if tangent._chain is not self._chain:
        raise RuntimeError(
            "as_strided of a dual tensor whose tangent is laid out in another way than itself: make the dual of the "
            "base, and the view of the dual"
        )
    out._set_tangent(state.forward_level, view(tangent, key, "AsStridedBackward0"))


def _leads_nowhere(node: Any) -> bool:
    """Return whether `node` is the history of a view that was made under no_grad, or of a view of one."""
    while isinstance(node, (ChainBackward, ChainsBackward)):
        node = node.next_edges[0][0]
    return node is None


def _view_tangent(self: Tensor, out: Tensor, relative: ViewChain, name: str) -> None:
    """Give a view its tangent: the same view of the tangent, so that a write into either shows in both."""
    level = state.forward_level
    tangent = self._tangent_at(level)
    levels = state.forward_level, state.outer_forward_levels
    try:
        outer = to_outer_forward_level()
        if outer >= 0:
            _view_tangent(self, out, relative, name)
        if tangent is not None:
            out._set_tangent(level, view_along(tangent, relative, name))
    finally:
        state.forward_level, state.outer_forward_levels = levels


def tangent_of_view(self: Tensor, level: int) -> Tensor:
    """The tangent of a view whose base has got one since the view was made: the same view of it."""
    meta = self._view
    assert meta is not None
    whole = meta.base._tangent_at(level)
    assert whole is not None
    modes = state.grad_enabled, state.forward_level, state.outer_forward_levels
    state.grad_enabled = True  # it is stored, so it must not depend on the first reader's mode
    try:
        if level == state.forward_level:
            to_outer_forward_level()
        tangent = view_along(whole, chain_now(meta), meta.name)
    finally:
        state.grad_enabled, state.forward_level, state.outer_forward_levels = modes
    self._set_tangent(level, tangent)
    return tangent


def view_along(self: Tensor, relative: ViewChain, name: str) -> Tensor:
    """Make the view of `self` that a chain describes, recorded as a node called `name`.

    A tangent may have another dtype than the tensor whose views the chain belongs to.
    """
    if relative.root_dtype != self._dtype:
        steps, relative = relative.steps, ViewChain.root(relative.root_shape, self._dtype)
        for step in steps:
            relative = relative.then(step)
    self._share()
    return attach_view(self, self._chain.concat(relative), relative, name)


def _base_of(self: Tensor, name: str, new: Any) -> Tensor | None:
    """Return a view's base, None if this is not a view, after a check of the tensor that is to take a place of both."""
    if not isinstance(new, Tensor):
        raise TypeError(f"{name}(): argument 'new_base' (position 1) must be Tensor, not {type(new).__name__}")
    return self._base


def view_func(self: Tensor, new_base: Tensor, symint_visitor_fn: Any = None, tensor_visitor_fn: Any = None) -> Any:
    """Apply this view's chain to another base with the same layout, recorded as a view of that.

    None if this is not a view, or if `new_base` differs from the base in shape, strides or offset.  The visitors, which
    PyTorch asks about symbolic sizes and tensors among a view's arguments, are not called: xgrad has neither.
    Raises `TypeError` if `new_base` is not a Tensor.

    Source: PyTorch's `Tensor._view_func`.

    >>> import xgrad
    >>> row = xgrad.zeros(2, 3)[1]
    >>> row._view_func(xgrad.arange(6.0).reshape(2, 3))
    tensor([3., 4., 5.])
    >>> row._view_func(xgrad.zeros(3)) is None
    True
    """
    base = _base_of(self, "_view_func", new_base)
    if base is None or new_base.shape != base.shape or new_base._geometry() != base._geometry():
        return None
    return view_along(new_base, relation_of(self)[0], self._view.name)  # pyright: ignore[reportOptionalMemberAccess]


def view_func_unsafe(
    self: Tensor, new_base: Tensor, symint_visitor_fn: Any = None, tensor_visitor_fn: Any = None
) -> Any:
    """`view_func` for a base of any shape: of another one the view is `as_strided`, at the places of this view."""
    base, chain = _base_of(self, "_view_func_unsafe", new_base), self._chain
    if base is None:
        return None
    if base.shape == new_base.shape:
        return view_along(new_base, relation_of(self)[0], self._view.name)  # pyright: ignore[reportOptionalMemberAccess]
    if not chain.expressible:
        raise RuntimeError("_view_func_unsafe: a view that shows other values applies to bases of one shape only")
    seen = chain.geometry
    return view(new_base, ("as_strided", seen.sizes, seen.strides, seen.offset), "AsStridedBackward0")


def rev_view_func_unsafe(self: Tensor, new_view: Tensor) -> Any:
    """The base that `new_view` would be this view of, as a view of `new_view`; None if this is not a view.

    Raises `RuntimeError` if this view shows a part of its base, or shows it in another dtype.

    Source: PyTorch's `Tensor._rev_view_func_unsafe`.

    >>> import xgrad
    >>> xgrad.zeros(2, 3).t()._rev_view_func_unsafe(xgrad.ones(3, 2)).shape
    xgrad.Size([2, 3])
    """
    if _base_of(self, "_rev_view_func_unsafe", new_view) is None:
        return None
    meta: Any = self._view
    back = chain_now(meta).inverse()
    if back is None or new_view.shape != self.shape:
        raise RuntimeError(
            f"No _rev_view_func() found from the shape {list(new_view.shape)}: the view has {list(self.shape)}, and it "
            "must show all of its base in the same dtype"
        )
    return view_along(new_view, back, meta.name)


def views_of(self: Tensor, keys: list[tuple[Any, ...]], name: str, grow: Any = None) -> tuple[Tensor, ...]:
    """Make the views of `self` by one operation (split, unbind); they have one node.

    They must not be written in place while they are recorded.
    """
    if not runner.plain:
        if (mode := state.operator_mode) is not None:
            return mode.view(name.removesuffix("Backward0").lower(), self, partial(views_of, self, keys, name))
        if grow is None and runner.views and (rules := rules_of(self)) is not None:
            return ruled(rules, self, keys, partial(views_of, self, keys, name))
    self._share()
    grow = grow or plainly
    chain, root = self._chain, ViewChain.root(self.shape, self._dtype)
    chains = tuple(grow(root, key) for key in keys)
    outs = tuple(
        make_view(self, grow(chain, key), relative, name, CreationMeta.MULTI_OUTPUT_NODE)
        for key, relative in zip(keys, chains)
    )
    if outs and state.grad_enabled and self.requires_grad:
        node = chains_node(name, chains, gradient_edge(self))
        node.key = tuple(keys)  # pyright: ignore[reportAttributeAccessIssue]
        for i, out in enumerate(outs):
            out._grad_fn, out._output_nr, out._requires_grad = node, i, True
    if self._tangents is not None:
        for out, relative in zip(outs, chains):
            _view_tangent(self, out, relative, name)
    return outs


def bits_of(self: Tensor, key: tuple[Any, ...], grow: Any = None) -> Tensor:
    """View the same bits as another dtype: same storage and version counter, outside of the graph, as in PyTorch."""
    if grow is None and runner.views and (rules := rules_of(self)) is not None:
        return ruled(rules, self, [key], partial(bits_of, self, key))
    self._share()
    seen = self._chain.view(*key)
    alias = self._alias()
    alias._chain, alias._cache, alias._cache_generation = seen, None, -1
    if alias._level is not None:
        alias._bits(ViewChain.root(self.shape, self._dtype).view(*key))
    return alias


def view_inplace(self: Tensor, key: tuple[Any, ...], name: str) -> Tensor:
    """Run an in-place view operation (t_, squeeze_, ...): the tensor becomes another view of its storage.

    The operation is appended to the tensor's chain *and* to autograd's chain (the chain in its ViewMeta, or for a base
    the chain `_moved` from its first value): forgetting the second gives silently wrong gradients later.
    """
    if not runner.plain and (mode := state.operator_mode) is not None:
        return mode.view(f"{key[0]}_", self, partial(view_inplace, self, key, name))
    if runner.views and (rules := rules_of(self)) is not None:
        rules.require(self, key)  # the tensor itself moves, by xgrad's own steps: no alias is made
    chain = self._chain
    if key[0] == "as_strided" and chain is not None and not chain.is_root:  # which addresses the storage
        relative = _from_part(chain, chain.view(*key))
        if relative is None:
            raise RuntimeError(
                f"as_strided_ of a tensor of shape {list(self.shape)} that shows a part of its storage reaches beyond "
                "that part: take as_strided of the base"
            )
    else:
        relative = ViewChain.root(self.shape, self._dtype).view(*key)
    move(self, relative, name)
    if self._requires_grad and isinstance(self._grad_fn, ChainBackward):
        self._grad_fn.key = key
    return self


def move(self: Tensor, relative: ViewChain, name: str) -> Tensor:
    """Run `view_inplace` for a view that a chain describes."""
    record = state.grad_enabled and self.requires_grad
    if record:
        check_inplace(self)
    if self._inference:
        self._bump(0)  # refuses, outside of inference mode
    meta = self._view
    self._share()
    chain = self._chain
    before = self.grad_fn if record else None
    edge = gradient_edge(self) if record else (None, 0)
    seen = chain.concat(relative)
    if self._level is not None:
        self._move(relative, name)
    self._chain, self._cache, self._cache_generation = seen, None, -1
    if meta is not None:
        meta.chain = meta.chain.concat(relative)
        meta.name = name
    else:
        moved = self._moved or ViewChain.root(chain.shape, chain.dtype)
        self._moved = moved.concat(relative)
    self._bump()
    if record:
        node = chain_node(name, relative, edge)
        if before is not None:
            move_retained_hook(self, node)
            earlier = hooks_of(self)
            if earlier is not None:
                self._earlier_hooks = node, earlier
        self._grad_fn, self._output_nr, self._requires_grad = node, 0, True
        if meta is not None:  # unrecorded, it makes a view's grad_fn stale like any other in-place operation
            meta.attr_version = self._version
    if self._tangents is not None:
        for tangent in self._tangents.values():
            move(tangent, relative, name)
    return self
