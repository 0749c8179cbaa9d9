"""torch.utils._pytree under `as_torch()`: takes apart trees of lists, tuples, dictionaries, ..., and rebuilds them.

As there, `None` and tensors are leaves, and a dictionary's values are in the order in which they were set (JAX sorts
its keys): packages zip leaves.  A class that is registered is one of `jax.tree_util` too, whose trees xgrad's own
transforms take apart.  (PyTorch: torch/utils/_pytree.py.)
"""

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax

PyTree = Context = KeyEntry = Any
MappingKey, SequenceKey, GetAttrKey = jax.tree_util.DictKey, jax.tree_util.SequenceKey, jax.tree_util.GetAttrKey
keystr = jax.tree_util.keystr
__all__ = [
    "LeafSpec", "PyTree", "TreeSpec", "register_pytree_node", "tree_all", "tree_any", "tree_flatten",
    "tree_flatten_with_path", "tree_iter", "tree_leaves", "tree_map", "tree_map_", "tree_map_only",
    "tree_map_with_path", "tree_structure", "tree_unflatten",
]  # fmt: skip


class NodeDef(NamedTuple):
    """How nodes of a class are taken apart and made."""

    type: Any
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Any, Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None


class TreeSpec:
    """The structure of a tree: the class of its node, None for a leaf, what the class keeps, and the children's."""

    def __init__(self, type: Any, context: Any, children_specs: Sequence["TreeSpec"]) -> None:
        self.type, self.context, self.children_specs = type, context, [*children_specs]
        self.num_children = len(self.children_specs)
        self.num_leaves: int = 1 if type is None else sum(child.num_leaves for child in self.children_specs)
        self.num_nodes: int = 1 + sum(child.num_nodes for child in self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Return the tree of this structure with these leaves.  Raises `ValueError` for another number of them."""
        given = [*leaves]
        if len(given) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return self._made(iter(given))

    def _made(self, leaves: Iterator[Any]) -> Any:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._made(leaves) for c in self.children_specs], self.context)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Return the parts of a tree where this structure has leaves.  Raises `ValueError` if it has another."""
        if self.type is None:
            return [tree]
        kind = _get_node_type(tree)
        children, context = SUPPORTED_NODES[kind].flatten_fn(tree) if kind in SUPPORTED_NODES else ([], None)
        if kind is not self.type and not {kind, self.type} <= _MAPPINGS:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {kind!r}.")
        if kind in _MAPPINGS:
            if tree.keys() != (names := dict.fromkeys(self._keys())).keys():
                raise ValueError(f"Node keys mismatch; expected {[*names]}, but got {[*tree]}.")
            children = [tree[name] for name in names]
        elif len(children) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        elif context != self.context and kind is not deque:
            raise ValueError(f"Node context mismatch for custom node type {kind!r}.")
        parts = zip(self.children_specs, children, strict=True)
        return [leaf for spec, child in parts for leaf in spec.flatten_up_to(child)]

    def _keys(self) -> list[Any]:
        return self.context[1] if self.type is defaultdict else self.context

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        ours = self.type, self.context, self.children_specs
        return ours == (other.type, other.context, other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), *self.children_specs))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return [*d.values()], [*d]


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], [*d]


def _dict_unflatten(values: Iterable[Any], context: Iterable[Any]) -> dict[Any, Any]:
    return dict(zip(context, values))


def _default_unflatten(values: Iterable[Any], context: Any) -> Any:
    return defaultdict(context[0], zip(context[1], values))


_MAPPINGS: set[Any] = {dict, OrderedDict, defaultdict}
_plain = (
    NodeDef(list, lambda x: (x, None), lambda children, _: [*children]),
    NodeDef(tuple, lambda x: ([*x], None), lambda children, _: tuple(children)),
    NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
    NodeDef(OrderedDict, _dict_flatten, lambda v, keys: OrderedDict(zip(keys, v)), _dict_flatten_with_keys),
    NodeDef(defaultdict, lambda d: ([*d.values()], [d.default_factory, [*d]]), _default_unflatten),
    NodeDef(deque, lambda x: ([*x], x.maxlen), lambda children, most: deque(children, maxlen=most)),
    NodeDef(namedtuple, lambda x: ([*x], type(x)), lambda children, made: made(*children)),
)
SUPPORTED_NODES: dict[Any, NodeDef] = {node.type: node for node in _plain}


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    return namedtuple if issubclass(kind, tuple) and hasattr(kind, "_fields") and kind not in SUPPORTED_NODES else kind


def _is_leaf(tree: Any, is_leaf: Any = None) -> bool:
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in SUPPORTED_NODES


def register_pytree_node(
    cls: type, flatten_fn: Callable[..., Any], unflatten_fn: Callable[..., Any], *,
    flatten_with_keys_fn: Callable[..., Any] | None = None, **options: Any,
) -> None:  # fmt: skip
    """Make a class one of trees: `flatten_fn(x)` gives (children, context), `unflatten_fn(children, context)` an x."""
    make: Any = lambda context, children: unflatten_fn([*children], context)  # noqa: E731
    if flatten_with_keys_fn is None:
        jax.tree_util.register_pytree_node(cls, lambda x: flatten_fn(x), make)
    else:
        jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys_fn, make, flatten_fn)
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


def _with_keys(tree: Any, kind: Any) -> tuple[list[tuple[Any, Any]], Any]:
    node = SUPPORTED_NODES[kind]
    if node.flatten_with_keys_fn is not None:
        return node.flatten_with_keys_fn(tree)
    children, context = node.flatten_fn(tree)
    if kind is namedtuple:
        return [(GetAttrKey(name), child) for name, child in zip(tree._fields, children)], context
    if kind in _MAPPINGS:
        return [(MappingKey(name), child) for name, child in zip(tree, children)], context
    return [(SequenceKey(i), child) for i, child in enumerate(children)], context


def tree_flatten_with_path(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    """Return (path, leaf) of the leaves, and the structure."""
    if _is_leaf(tree, is_leaf):
        return [((), tree)], LeafSpec()
    parts, context = _with_keys(tree, kind := _get_node_type(tree))
    found: list[Any] = []
    specs = []
    for key, child in parts:
        leaves, spec = tree_flatten_with_path(child, is_leaf)
        found += [((key, *path), leaf) for path, leaf in leaves]
        specs.append(spec)
    return found, TreeSpec(kind, context, specs)


def tree_flatten(tree: Any, is_leaf: Any = None) -> tuple[list[Any], TreeSpec]:
    """Return the leaves and the structure."""
    leaves: list[Any] = []
    return leaves, _flattened(tree, is_leaf, leaves)


def _flattened(tree: Any, is_leaf: Any, leaves: list[Any]) -> TreeSpec:
    if _is_leaf(tree, is_leaf):
        leaves.append(tree)
        return LeafSpec()
    children, context = SUPPORTED_NODES[kind := _get_node_type(tree)].flatten_fn(tree)
    return TreeSpec(kind, context, [_flattened(child, is_leaf, leaves) for child in children])


def tree_unflatten(leaves: Any, treespec: Any) -> Any:
    """Return the tree of these leaves."""
    if not isinstance(treespec, TreeSpec):
        leaves, treespec = treespec, leaves
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Any = None) -> list[Any]:
    """Return the leaves."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Any = None) -> Iterator[Any]:
    """Iterate over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Any = None) -> TreeSpec:
    """Return the structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """Return the tree of `func` at each leaf."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *map(spec.flatten_up_to, rests)))


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """Return the tree of `func(path, leaf)` at each leaf."""
    leaves, spec = tree_flatten_with_path(tree, is_leaf)
    others = zip(*map(spec.flatten_up_to, rests), strict=True) if rests else [()] * len(leaves)
    return spec.unflatten(func(*pair, *more) for pair, more in zip(leaves, others))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Any = None) -> Any:
    """Call `func` at each leaf, and return the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kinds: Any, func: Callable[..., Any], tree: Any, is_leaf: Any = None) -> Any:
    """Return the tree of `func` at each leaf of a class of `kinds`, or for which the function `kinds` is true."""
    asked = kinds if callable(kinds) and not isinstance(kinds, type) else lambda x: isinstance(x, kinds)
    return tree_map(lambda x: func(x) if asked(x) else x, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Return True if `pred` is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Any = None) -> bool:
    """Return True if `pred` is true of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))
