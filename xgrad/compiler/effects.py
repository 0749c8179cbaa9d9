"""For xgrad.compile: records which tensors a traced function returns or changes, and makes the tensors of each call.

An `Outputs` numbers the arrays that the program returns, and writes a `Recipe` for each tensor that `Making` makes of
them in a call.  An `Effects` has the changes of tensors from outside, which exist before the call.  Tensors that
share a storage in the trace share one after the call; a view comes with its base.

Invariant: a recipe refers to arrays and tensors by number, and to no object of the trace, so that no tracer outlives
it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import jax

from ..tensor import Tensor, blank
from ..views.meta import ViewMeta
from ..views.storage import UNTRACKED, Storage, Tracer, VersionCounter
from .guards.containers import INTERNAL
from .guards.guard import is_scalar
from .overlay import HOOKS, Reached, _read
from .reached_tensors import Again, Trace, is_plain

# Attributes of a tensor from outside that a call may change: by `Effects`, in a new tensor, or by the trace itself.
_REPEATED = {"_array", "_storage", "_chain", "_grad", "_requires_grad", "_grad_fn", "_output_nr"}
_KEPT = ("_is_param", "_inference", "_grad_dtype", "_retains_grad", "_hooks", "_post_accumulate_hooks")  # when made
_OWN = {"_cache", "_cache_generation", "_traced", "_version_counter", "_owned", "_accumulator", "_trace"}

_INPLACE_VIEW = (
    "xgrad.compile: the function changes the shape of a tensor from outside in place (t_, squeeze_, ...), which a "
    "compiled program cannot repeat. Use the out-of-place form inside, or change the tensor outside."
)
_CHANGED = (
    "xgrad.compile: the function changes {what} of a tensor from outside (shape {shape}), which a compiled program "
    "cannot repeat. Do it outside of the function."
)
_SPARSE = (
    "xgrad.compile: a sparse tensor with a history or a .grad cannot leave a compiled function: return a detach() of it"
)
SPARSE_GRADIENT = (
    "xgrad.compile: a backward outside gives no sparse gradients (here of a tensor of the shape {}). Call backward() "
    "inside of the compiled function, or make the gradient dense, by sparse=False in the embedding."
)
RETAINED = (
    "xgrad.compile: the function returns a tensor that retains its gradient and leads to other results: a backward "
    "outside would not reach it. Call retain_grad() outside, and compute what follows there, or call backward() inside."
)
_NAMES = {
    "_hooks": "the hooks", "_post_accumulate_hooks": "the hooks", "_retains_grad": "retain_grad", "_view": "the base",
    "_tangents": "the tangents", "_grad_dtype": "grad_dtype",
}  # fmt: skip


ONCE = (Iterator, AsyncIterator, Awaitable)  # kinds that can be iterated or awaited only once


class Recipe(NamedTuple):
    """A description of one tensor that each call makes."""

    kind: type[Any]
    given: int | None  # the number of the tensor from outside whose storage it shares,
    root: int  # or of the array of its new storage
    chain: Any
    given_counter: int | None  # the number of the tensor from outside whose version counter it shares,
    counter: int  # or of its new counter; -1 for none
    version: int
    requires_grad: bool
    edge: int | None  # its result number in the call's node
    view: (
        tuple[Any, ...] | None
    )  # (reference to the base, chain, whether its grad_fn holds, creation meta, name, tracking)
    grad: tuple[Any, ...] | None  # a reference
    rest: dict[str, Any]  # other attributes
    parts: tuple[tuple[str, tuple[bool, int]], ...] = ()  # references to a sparse tensor's parts, by their names


class Effects(NamedTuple):
    """The changes that a call makes to tensors from outside, which are numbered as in `Trace.reached`."""

    writes: list[tuple[int, int, int]]  # (of a tensor, of the array that its storage gets, of its former root)
    versions: list[tuple[int, int]]  # (of a tensor, the rise of its version)
    grads: list[tuple[int, tuple[Any, ...] | None]]
    data: list[tuple[int, tuple[Any, ...]]]
    flags: list[tuple[int, bool]]
    histories: list[tuple[int, int | None]]  # (of a tensor, its result number in the call's node)
    keys: list[tuple[int, int]]  # (of a generator, of the array that is its new key)


class Outputs:
    """Collects the program's results, and the recipes for tensors."""

    def __init__(self, trace: Trace, outside: Callable[[Any], int | None]) -> None:
        self.trace, self.outside = trace, outside
        self.arrays: list[Any] = []
        self.recipes: list[Recipe] = []
        self.constants: list[Any] = []  # returned by each call as they are
        self.edges: list[Tensor] = []  # tensors of the trace with a history: the results of the call's node
        self._made: dict[int, int] = {}
        self._keep: list[Tensor] = []  # holds references, so that ids are not used again
        self._roots: dict[int, int] = {}
        self._counters: dict[int, int] = {}
        for reached in trace.reached:  # counters that the trace made are the tensors' own in each call
            counter = reached.now.get("_version_counter")
            if counter is not None:
                trace.owners.setdefault(id(counter), reached)
        # The first results, in the order that `split` gives to the operands that they replace: JAX hands the memory of
        # donated operands to results of their shape, first to first, and XLA copies what is read after that.
        self._written: dict[int, int] = {}
        for reached in trace.reached:
            storage = reached.storage
            if storage._array is not reached.root.tracer and id(storage) not in self._written:
                self._written[id(storage)] = self.array(storage._array)

    def array(self, array: Any) -> int:
        """Add an array to the program's results, and return its number."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def reference(self, tensor: Tensor) -> tuple[bool, int]:
        """Return (True, number of the recipe) for a tensor of the trace, (False, number) for one from outside."""
        tensor._requires_grad  # noqa: B018 - the overlay adds it, if it is from outside
        reached = self.trace.by_id.get(id(tensor))
        if reached is not None:
            return False, reached.number
        number = self._made.get(id(tensor))
        if number is None:
            recipe = self._recipe(tensor)
            number = self._made[id(tensor)] = len(self.recipes)
            self._keep.append(tensor)
            self.recipes.append(recipe)
        return True, number

    def known(self, tensor: Tensor) -> tuple[bool, int] | None:
        """Return the reference of a tensor that is from outside or has a recipe, else None."""
        reached, number = self.trace.by_id.get(id(tensor)), self._made.get(id(tensor))
        return (False, reached.number) if reached is not None else None if number is None else (True, number)

    def plan(self, value: Any) -> tuple[str, Any]:
        """Return how each call builds a value: (kind, parts)."""
        if isinstance(value, Tensor):
            made, number = self.reference(value)
            return "made" if made else "given", number
        if isinstance(value, Tracer):
            return "array", self.array(value)
        if value.__class__ in (list, tuple):
            return value.__class__.__name__, [self.plan(item) for item in value]
        if value.__class__ is dict:  # a pytree would sort its keys
            return "dict", {key: self.plan(item) for key, item in value.items()}
        alone = isinstance(value, ONCE)  # JAX would warn
        leaves, tree = ([value], None) if alone else jax.tree_util.tree_flatten(value, is_leaf=lambda n: n is not value)
        if len(leaves) == 1 and leaves[0] is value:
            number = None if is_scalar(value) else self.outside(value)
            if number is not None:
                return "given", number
            self.constants.append(value)
            return "constant", value
        return "tree", (tree, [self.plan(leaf) for leaf in leaves])

    def edge(self, tensor: Tensor) -> int | None:
        """Add a tensor to the results of the call's node, and return its number; None if it has no history."""
        if tensor._grad_fn is None:
            return None
        self.edges.append(tensor)
        return len(self.edges) - 1

    def _recipe(self, tensor: Tensor) -> Recipe:
        attributes = _read(tensor, "__dict__")
        storage, view, counter = (attributes.get(name) for name in ("_storage", "_view", "_version_counter"))
        if type(tensor)._sparse is True and tensor.layout == "sparse_coo":
            return self._recipe_of_parts(tensor, attributes)
        if storage is None and attributes.get("_array") is None:
            raise NotImplementedError(f"xgrad.compile: a {type(tensor).__name__} cannot leave a compiled function")
        if attributes.get("_tangents"):
            raise NotImplementedError(
                "xgrad.compile: a dual tensor cannot leave a compiled function: unpack_dual() it, and return both parts"
            )
        base = None
        if view is not None:
            holds = view.attr_version == tensor._version
            base = (self.reference(view.base), view.chain, holds, view.creation_meta, view.name, view.tracking)
        owner, owned_counter = self.trace.owners.get(id(storage)), self.trace.owners.get(id(counter))
        if owner is not None and owner.by_value:
            raise Again
        root = -1
        if owner is None:
            key = id(tensor if storage is None else storage)
            if key not in self._roots:
                self._roots[key] = self.array(tensor._held())
            root = self._roots[key]
        grad = attributes.get("_grad")
        return Recipe(
            type(tensor),
            None if owner is None else owner.number,
            root,
            None if storage is None else tensor._chain,
            None if owned_counter is None else owned_counter.number,
            -1 if counter is None else self._counters.setdefault(id(counter), len(self._counters)),
            0 if counter is None else counter.__dict__.get("value", 0),
            attributes.get("_requires_grad", False),
            self.edge(tensor),
            base,
            None if grad is None else self.reference(grad),
            {name: attributes[name] for name in _KEPT if name in attributes},
        )

    def _recipe_of_parts(self, tensor: Tensor, attributes: dict[str, Any]) -> Recipe:
        """Return the recipe of a sparse tensor, such as a gradient."""
        if attributes.get("_grad_fn") is not None or attributes.get("_grad") is not None:
            raise NotImplementedError(_SPARSE)
        parts = tuple((name, self.reference(attributes[name])) for name in ("_index", "_entries"))
        counter = attributes.get("_version_counter")
        return Recipe(
            type(tensor), None, -1, None, None,
            -1 if counter is None else self._counters.setdefault(id(counter), len(self._counters)),
            0 if counter is None else counter.__dict__.get("value", 0),
            attributes.get("_requires_grad", False), None, None, None,
            {name: attributes[name] for name in (*_KEPT, "_sizes", "_coalesced") if name in attributes}, parts,
        )  # fmt: skip

    # ------------------------------------------------------------ changes of tensors from outside

    def effects(self) -> Effects:
        """Return the changes of tensors from outside.  Raises `NotImplementedError` if no program can repeat one."""
        found = Effects([], [], [], [], [], [], [])
        written: set[int] = set()
        for i, reached in enumerate(self.trace.reached):  # the list may grow meanwhile
            storage, now, before = reached.storage, reached.now, reached.before
            written_to = storage._array is not reached.root.tracer or now.get("_storage") is not storage
            if reached.by_value and (written_to or not is_plain(now)):
                raise Again
            if reached.by_value:
                continue
            self._check(reached)
            if storage._array is not reached.root.tracer and id(storage) not in written:
                written.add(id(storage))
                number = self._written.get(id(storage))
                if number is None or self.arrays[number] is not storage._array:
                    number = self.array(storage._array)
                found.writes.append((i, number, reached.root.number))
            self._count(reached, found, written)
            if now.get("_storage") is not storage:
                found.data.append((i, self.reference(_data_of(now))))
            if reached.grad_written:
                grad = now.get("_grad")
                found.grads.append((i, None if grad is None else self.reference(grad)))
            history = now.get("_grad_fn")
            if history is not reached.outside and now.get("_view") is None:
                found.histories.append((i, self.edge(reached.tensor)))
            elif now.get("_requires_grad", False) is not before.get("_requires_grad", False):
                found.flags.append((i, now.get("_requires_grad", False)))
        for i, (_, root, twin) in enumerate(self.trace.generators):
            if twin._key is not root.tracer:
                found.keys.append((i, self.array(twin._key)))
        return found

    def _check(self, reached: Reached) -> None:
        now, before = reached.now, reached.before
        for name in now.keys() | before.keys():
            if name in HOOKS:
                same = (now.get(name) or {}) == reached.hooks.get(name, {}) and self.trace.hooks_stayed(reached)
            else:
                same = now.get(name) is before.get(name)
            if name in _REPEATED or name in _OWN or same:
                continue
            if name in _NAMES:
                shape = list(reached.root.aval.shape)
                raise NotImplementedError(_CHANGED.format(what=_NAMES[name], shape=shape))
            if name == "_moved":
                raise NotImplementedError(_INPLACE_VIEW)
            if name not in INTERNAL:
                shape = list(reached.root.aval.shape)
                raise NotImplementedError(_CHANGED.format(what=f"the attribute {name!r}", shape=shape))
        node = now.get("_grad_fn")
        stays = node is reached.outside or now.get("_view") is not None
        if node is not None and stays and node._hooks:  # hooks registered here would be lost
            raise NotImplementedError(_CHANGED.format(what="the hooks", shape=list(reached.root.aval.shape)))
        if now.get("_storage") is reached.storage:
            chain = now["_chain"]
            if chain is not before.get("_chain") and not (before.get("_storage") is None and chain.is_root):
                raise NotImplementedError(_INPLACE_VIEW)

    def _count(self, reached: Reached, found: Effects, seen: set[int]) -> None:
        counter = reached.now.get("_version_counter")
        if counter is None or id(counter) in seen:
            return
        seen.add(id(counter))
        before = self.trace.counters.get(id(counter))
        rise = _value(counter.__dict__) - (0 if before is None else _value(before[1]))
        if rise:
            found.versions.append((reached.number, rise))


def _value(attributes: dict) -> int:
    return attributes.get("value", 0) + attributes.get("_told", 0)


def _data_of(attributes: dict[str, Any]) -> Tensor:
    """Return a bare tensor with the value that `.data =` assigned."""
    tensor = blank(Tensor)
    tensor._version_counter = VersionCounter()  # first: the overlay takes tensors with arrays for outside ones
    for name in ("_array", "_storage", "_chain"):
        if attributes.get(name) is not None:
            _read(tensor, "__dict__")[name] = attributes[name]
    return tensor


def has_tensors(plan: tuple[str, Any]) -> bool:
    """Return True if a value that `Outputs.plan` described has a part that each call computes."""
    kind, what = plan
    if kind in ("list", "tuple", "tree"):
        return any(map(has_tensors, what[1] if kind == "tree" else what))
    return any(map(has_tensors, what.values())) if kind == "dict" else kind != "constant"


def is_constant(plan: tuple[str, Any]) -> bool:
    """Return True for a number, a string, and the like, and for lists and tuples of these."""
    kind, what = plan
    return is_scalar(what) if kind == "constant" else kind in ("list", "tuple") and all(map(is_constant, what))


class Making:
    """Makes the tensors of one call, by their recipes."""

    __slots__ = ("arrays", "counters", "made", "node", "storages", "tensors")

    def __init__(self, arrays: Any, tensors: list[Tensor], node: Any) -> None:
        self.arrays: Any = arrays
        self.tensors: list[Tensor] = tensors
        self.node: Any = node
        self.made: list[Tensor] = []
        self.storages: dict[int, Storage] = {}
        self.counters: dict[int, VersionCounter] = {}

    def get(self, reference: tuple[bool, int]) -> Tensor:
        made, number = reference
        return self.made[number] if made else self.tensors[number]

    def make(self, recipe: Recipe) -> None:
        """Make one tensor; the tensors that its recipe refers to exist already."""
        tensor = object.__new__(recipe.kind)
        attributes = tensor.__dict__
        if recipe.parts:
            attributes.update((name, self.get(reference)) for name, reference in recipe.parts)
        elif recipe.given is None and recipe.chain is None:
            attributes["_array"] = self.arrays[recipe.root]
        else:
            if recipe.given is not None:
                storage = self.tensors[recipe.given]._share()
            else:
                storage = self.storages.get(recipe.root)
                if storage is None:
                    storage = self.storages[recipe.root] = Storage(self.arrays[recipe.root], True, None)
            attributes["_storage"], attributes["_chain"] = storage, recipe.chain
        counter = self._counter(recipe)
        if counter is not None:
            attributes["_version_counter"] = counter
            if recipe.given is None and recipe.chain is not None and attributes["_storage"].counter is None:
                attributes["_storage"].counter = counter
        if recipe.rest:
            attributes.update(recipe.rest)
        if recipe.requires_grad and (recipe.edge is None or self.node is not None):
            attributes["_requires_grad"] = True
        if recipe.edge is not None and self.node is not None:
            attributes["_grad_fn"], attributes["_output_nr"] = self.node, recipe.edge
        if recipe.view is not None:
            base, chain, holds, creation, name, tracking = recipe.view
            assert counter is not None  # views have one
            now = counter.value if holds else -1
            attributes["_view"] = ViewMeta(self.get(base), chain, now, creation, name, tracking)
        if recipe.grad is not None:
            attributes["_grad"] = self.get(recipe.grad)
        self.made.append(tensor)

    def _counter(self, recipe: Recipe) -> VersionCounter | None:
        if recipe.given_counter is not None:
            owner = self.tensors[recipe.given_counter]
            owner._bump(0)
            return owner._version_counter
        if recipe.counter < 0:
            return None
        counter = self.counters.get(recipe.counter)
        if counter is None:
            counter = self.counters[recipe.counter] = UNTRACKED if recipe.rest.get("_inference") else VersionCounter()
            if recipe.version:
                counter.value = recipe.version
        return counter
